//! `cargo xtask cluster --clients`: stock clients through the load balancer of a cluster whose nodes are restarted.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, ExitStatus, Stdio},
};

use anyhow::{Context as _, Result, bail};

use crate::{
    clients::{ClientPackages, StockClient},
    cluster,
    steps::{Report, TestCounts, summary},
};

/// The ways to restart nodes, as the cluster program names them.
const MODES: [&str; 3] = ["none", "stop", "kill"];

/// What a client reports if its connection was lost, or the load balancer lost its connection to a node.
const LOST_CONNECTION: [&str; 22] = [
    // The page of haproxy, and the words of requests, python-gitlab, git, node-gitlab, ruby-gitlab and pytest.
    "502 Bad Gateway",
    "502 Server Error",
    "Error: 502",
    "error: 502",
    "Server Error 502",
    "code 502",
    "assert 502 ==",
    "ECONNRESET",
    "EPIPE",
    "socket hang up",
    "other side closed",
    "fetch failed",
    "Connection reset",
    "Connection aborted",
    "ConnectionError",
    "Remote end closed connection",
    "RemoteDisconnected",
    "end of file reached",
    "hung up unexpectedly",
    "early EOF",
    "closed by remote host",
    "Connection closed by",
];

/// What to run.
pub(crate) struct ClientsOptions {
    modes: Vec<&'static str>,
    rounds: u64,
    seed: u64,
    /// A part of the names of the clients to run.
    only: Option<String>,
    /// Flags of the cluster program.
    passed_on: Vec<String>,
}

impl ClientsOptions {
    /// Parses and validates the flags.
    pub(crate) fn read(flags: &[String]) -> Result<Self> {
        let mut options = Self { modes: vec!["stop", "kill"], rounds: 1, seed: 1, only: None, passed_on: Vec::new() };
        let mut iter = flags.iter();
        while let Some(flag) = iter.next() {
            let mut value = || iter.next().with_context(|| format!("{flag} requires a value"));
            match flag.as_str() {
                "--clients" | "--short" => {}
                "--restarts" => {
                    let mode = value()?;
                    let known = MODES.into_iter().find(|known| known == mode);
                    let names = MODES.join(", ");
                    options.modes =
                        vec![known.with_context(|| format!("unknown kind of restarts {mode}; choose from {names}"))?];
                }
                "--rounds" => options.rounds = value()?.parse().context("--rounds requires a number")?,
                "--seed" => options.seed = value()?.parse().context("--seed requires a number")?,
                "--only" => options.only = Some(value()?.clone()),
                "--gable" | "--test-bucket" => options.passed_on.extend([flag.clone(), value()?.clone()]),
                other => bail!(
                    "unknown flag {other}; cluster --clients accepts --restarts, --rounds, --seed, --only, --gable and \
                     --test-bucket"
                ),
            }
        }
        if options.rounds == 0 {
            bail!("--rounds requires a number above 0");
        }
        // The names do not depend on the packages, which are not installed yet.
        let clients = ClientPackages::default().stock_clients();
        if !clients.iter().any(|client| options.selects(client)) {
            let names: Vec<&str> = clients.iter().map(|client| client.name.as_str()).collect();
            bail!("--only selects no client; choose a part of one of these names: {}", names.join("; "));
        }
        Ok(options)
    }

    fn selects(&self, client: &StockClient) -> bool {
        self.only.as_ref().is_none_or(|only| client.name.contains(only))
    }
}

/// Runs every selected client in each mode, a number of times.
pub(crate) fn run(options: &ClientsOptions) -> Result<()> {
    let packages = ClientPackages::install()?;
    let mut report = Report::default();
    let mut rows = Vec::new();
    for mode in &options.modes {
        for client in packages.stock_clients().iter().filter(|client| options.selects(client)) {
            let mut row = Row { name: client.name.clone(), mode, ..Row::default() };
            for round in 0..options.rounds {
                report.step(&format!("{}, restarts: {mode}, round {}", client.name, round + 1), || {
                    let outcome = run_client(client, mode, options.seed.wrapping_add(round), &options.passed_on)?;
                    let (counts, explained_by_kill) = outcome.count_unexplained(mode);
                    row.add(&outcome, counts, explained_by_kill);
                    Ok(counts)
                });
            }
            rows.push(row);
        }
    }
    println!(
        "\n| Client | Restarts | Runs | Restarts of a node | HTTP requests | SSH connections | Interrupted | Tests passed | \
         Failed by an interruption | Tests and requests that failed otherwise |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    );
    for row in rows {
        println!("{}", row.print());
    }
    report.finish()
}

/// The results of all runs of a client in a mode.
#[derive(Default)]
struct Row {
    name: String,
    mode: &'static str,
    runs: u32,
    numbers: RunNumbers,
    passed: u32,
    failed: u32,
    explained_by_kill: u32,
}

impl Row {
    fn add(&mut self, outcome: &Outcome, counts: TestCounts, explained_by_kill: u32) {
        self.runs += 1;
        let numbers = outcome.numbers.unwrap_or_default();
        self.numbers.restarts += numbers.restarts;
        self.numbers.requests += numbers.requests;
        self.numbers.ssh_connections += numbers.ssh_connections;
        self.numbers.interrupted += numbers.interrupted;
        self.passed += counts.passed;
        self.failed += counts.failed;
        self.explained_by_kill += explained_by_kill;
    }

    fn print(&self) -> String {
        let RunNumbers { restarts, requests, ssh_connections, interrupted, .. } = self.numbers;
        format!(
            "| {} | {} | {} | {restarts} | {requests} | {ssh_connections} | {interrupted} | {} | {} | {} |",
            self.name, self.mode, self.runs, self.passed, self.explained_by_kill, self.failed
        )
    }
}

/// Runs a client on a new cluster.
fn run_client(client: &StockClient, mode: &str, seed: u64, flags: &[String]) -> Result<Outcome> {
    let (postgres, mut cluster) = cluster::short_form()?;
    let node_flags = [client.flags, &["--dialect", client.dialect]].concat().join(" ");
    cluster.args(["--short", "--seed", &seed.to_string(), "--restarts", mode, "--node-flags", &node_flags]).args(flags);
    cluster.arg("--").arg(client.command.get_program()).args(client.command.get_args());
    for (name, value) in client.command.get_envs() {
        match value {
            Some(value) => cluster.env(name, value),
            None => cluster.env_remove(name),
        };
    }
    cluster.env("GABLE_DIALECT", client.dialect).env("PYTHONDONTWRITEBYTECODE", "1");
    let (lines, status) = read_lines(&mut cluster)?;
    drop(postgres);
    println!("the cluster has ended ({status})");
    Ok(Outcome::parse(&lines, status.success()))
}

/// Runs a program, prints its output, and returns the lines with its status.
fn read_lines(command: &mut Command) -> Result<(Vec<String>, ExitStatus)> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start the cluster")?;
    let output = child.stdout.take().context("the cluster has no output")?;
    let mut lines = Vec::new();
    for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        println!("{line}");
        lines.push(line);
    }
    let status = child.wait().context("cannot wait for the cluster")?;
    Ok((lines, status))
}

/// The numbers that the cluster program prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RunNumbers {
    restarts: u32,
    requests: u32,
    ssh_connections: u32,
    interrupted: u32,
    failed: u32,
}

impl RunNumbers {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.strip_prefix("restarts: ")?.split("; ");
        let mut number = |name: &str| fields.next()?.strip_prefix(name)?.parse().ok();
        Some(Self {
            restarts: number("")?,
            requests: number("requests: ")?,
            ssh_connections: number("ssh connections: ")?,
            interrupted: number("interrupted: ")?,
            failed: number("failed: ")?,
        })
    }
}

/// The result of one run.
struct Outcome {
    counts: TestCounts,
    /// `None` if the cluster itself failed.
    numbers: Option<RunNumbers>,
    /// The texts of the failed tests.
    failures: Vec<String>,
    /// Whether the client succeeded and no request failed without a kill.
    succeeded: bool,
}

impl Outcome {
    fn parse(lines: &[String], succeeded: bool) -> Self {
        let mut counts = TestCounts::default();
        for line in lines {
            counts += summary(line).unwrap_or_default();
        }
        let numbers = lines.iter().find_map(|line| RunNumbers::parse(line));
        Self { counts, numbers, failures: failures(lines), succeeded }
    }

    /// Returns the counts without the failures that a kill explains, and the number of these. Each has to be a lost
    /// connection, and there cannot be more of them than interrupted requests.
    fn count_unexplained(&self, mode: &str) -> (TestCounts, u32) {
        let mut counts = self.counts;
        let Some(numbers) = self.numbers else {
            counts.failed += 1;
            return (counts, 0);
        };
        let mut explained_by_kill = 0;
        if mode == "kill" && counts.failed > 0 {
            let is_lost = |text: &&String| LOST_CONNECTION.iter().any(|symptom| text.contains(symptom));
            let lost = u32::try_from(self.failures.iter().filter(is_lost).count()).unwrap_or(u32::MAX);
            explained_by_kill = lost.min(numbers.interrupted).min(counts.failed);
            println!("{} tests failed, {explained_by_kill} of them by an interrupted request", counts.failed);
            counts.failed -= explained_by_kill;
        }
        // Requests that failed without a reason are wrong also if the client has repeated them.
        counts.failed += numbers.failed;
        // A client that ended otherwise than its tests, such as by a crash after the last one, has failed too.
        if counts.passed == 0 || (!self.succeeded && counts.failed == 0 && explained_by_kill == 0) {
            counts.failed += 1;
        }
        (counts, explained_by_kill)
    }
}

/// Returns the texts of failed tests in the output of pytest and of the scripts.
fn failures(lines: &[String]) -> Vec<String> {
    let mut failures: Vec<String> = Vec::new();
    let mut is_inside = false;
    for line in lines {
        let is_start_in_pytest =
            line.starts_with('_') && line.ends_with('_') && !line.trim_matches(['_', ' ']).is_empty();
        let is_start_in_script = line.starts_with("FAILED ") && !line.contains(".py::");
        if is_start_in_pytest || is_start_in_script {
            failures.push(String::new());
            is_inside = true;
        } else if line.starts_with("===") || line.starts_with("the client's own fault") || summary(line).is_some() {
            is_inside = false;
        }
        if let (true, Some(text)) = (is_inside, failures.last_mut()) {
            text.push_str(line);
            text.push('\n');
        }
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(output: &str, succeeded: bool) -> Outcome {
        Outcome::parse(&output.lines().map(ToOwned::to_owned).collect::<Vec<_>>(), succeeded)
    }

    const NUMBERS: &str = "restarts: 3; requests: 90; ssh connections: 4; interrupted: 1; failed: 0";
    const PYTEST: &str = "=== FAILURES ===\n_ ERROR at setup of test_a _\nE   GitlabHttpError: 502: x\n____ test_b ____\n\
                          _ _ _ _\nE   assert 1 == 2\n=== short test summary info ===\nFAILED x.py::test_a - 502\n\
                          FAILED x.py::test_b\n2 failed, 5 passed in 3.1s\n";

    #[test]
    fn failures_are_found_in_the_output_of_clients() {
        let failed = outcome(PYTEST, false).failures;
        assert_eq!(
            failed,
            [
                "_ ERROR at setup of test_a _\nE   GitlabHttpError: 502: x\n",
                "____ test_b ____\n_ _ _ _\nE   assert 1 == 2\n"
            ]
        );
        let failed = outcome("FAILED a: x\n  at b\nFAILED c: 503\n1 passed, 2 failed in 3 s\n", false).failures;
        assert_eq!(failed, ["FAILED a: x\n  at b\n", "FAILED c: 503\n"]);
    }

    #[test]
    fn a_kill_explains_lost_connections_only() {
        let failed = |output: &str, mode| outcome(output, false).count_unexplained(mode).0.failed;
        let both = format!("{PYTEST}{NUMBERS}");
        assert_eq!(failed(&both, "kill"), 1);
        assert_eq!(failed(&both, "stop"), 2);
        assert_eq!(failed(&both.replace("assert 1 == 2", "502 Bad Gateway"), "kill"), 1, "one request was interrupted");
        // A status of Gable, an id and a duration are no lost connection.
        for other in ["GitlabHttpError: 503: x", "assert 15020 == 2", "id 502", "took 502 ms"] {
            assert_eq!(failed(&both.replace("GitlabHttpError: 502: x", other), "kill"), 2, "{other}");
        }
    }

    #[test]
    fn lost_connections_are_recognized_in_the_words_of_each_client() {
        for text in [
            "POST /projects: 502 <html><body><h1>502 Bad Gateway</h1>",
            "requests.exceptions.HTTPError: 502 Server Error: Bad Gateway for url: http://127.0.0.1/",
            "gitlab.exceptions.GitlabCreateError: 502: <html>",
            "fatal: unable to access 'x': The requested URL returned error: 502",
            "Gitlab::Error::BadGateway: Server responded with code 502, message: . Request URI: x",
            "assert 502 == 201",
            "Connection closed by 127.0.0.1 port 22",
            "Connection to 127.0.0.1 closed by remote host.",
        ] {
            let output = format!("FAILED a: {text}\n9 passed, 1 failed in 2 s\n{NUMBERS}");
            assert_eq!(outcome(&output, false).count_unexplained("kill").1, 1, "{text}");
        }
    }

    #[test]
    fn a_run_fails_also_without_failed_tests() {
        let failed = |output: &str, mode, succeeded| outcome(output, succeeded).count_unexplained(mode).0.failed;
        let passed = format!("9 passed in 2s\n{NUMBERS}");
        for mode in MODES {
            assert_eq!(failed(&passed, mode, true), 0);
            assert_eq!(failed(&passed, mode, false), 1, "the client has crashed after its tests");
            assert_eq!(failed(&passed.replace("failed: 0", "failed: 2"), mode, false), 2, "requests have failed");
            assert_eq!(failed("9 passed in 2s\n", mode, false), 1, "the cluster has failed");
            assert_eq!(failed(NUMBERS, mode, true), 1, "no test has run");
        }
        let lost = format!("{}{NUMBERS}", PYTEST.replace("assert 1 == 2", "x").replace("2 failed", "1 failed"));
        assert_eq!(failed(&lost, "kill", false), 0, "a kill explains the failed test, and with it the status");
    }

    #[test]
    fn flags_are_validated_before_anything_runs() {
        let read = |flags: &str| ClientsOptions::read(&flags.split(' ').map(ToOwned::to_owned).collect::<Vec<_>>());
        let check = |flags, expected: &str| {
            let error = read(flags).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(expected), "{flags}: {error}");
        };
        check("--clients --restarts typo", "unknown kind of restarts typo; choose from none, stop, kill");
        check("--clients --only typo", "--only selects no client; choose a part of one of these names: python-gitlab");
        check("--clients --rounds 0", "--rounds requires a number above 0");
        check("--clients --rounds", "--rounds requires a value");
        check("--clients --faults node-kill", "unknown flag --faults");
        let options = read("--clients --restarts kill --only python --gable x").expect("valid");
        assert_eq!((options.modes, options.passed_on), (vec!["kill"], vec!["--gable".to_owned(), "x".to_owned()]));
        assert_eq!(read("--clients").expect("valid").modes, ["stop", "kill"]);
    }
}
