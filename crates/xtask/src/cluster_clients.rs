//! `cargo xtask cluster --clients`: stock clients through the load balancer of a cluster whose nodes are restarted.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

use crate::{
    clients::{ClientPackages, StockClient},
    cluster,
    steps::{Report, TestCounts, summary},
};

/// What a client reports if its connection was lost, or the load balancer has lost that to a node.
const LOST_CONNECTION: [&str; 19] = [
    "502",
    "503",
    "Bad Gateway",
    "Service Unavailable",
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

/// Runs every client in each mode, a number of times; the other flags are those of the cluster program.
pub(crate) fn run(flags: &[String]) -> Result<()> {
    let (mut modes, mut rounds, mut only, mut seed) = (vec!["stop", "kill"], 1, None, 1);
    let mut passed_on = Vec::new();
    let mut iter = flags.iter();
    while let Some(flag) = iter.next() {
        let mut value = || iter.next().with_context(|| format!("{flag} requires a value"));
        match flag.as_str() {
            "--clients" | "--short" => {}
            "--restarts" => modes = vec![value()?.as_str()],
            "--rounds" => rounds = value()?.parse().context("--rounds requires a number")?,
            "--seed" => seed = value()?.parse().context("--seed requires a number")?,
            "--only" => only = Some(value()?.as_str()),
            "--gable" | "--test-bucket" => passed_on.extend([flag.clone(), value()?.clone()]),
            other => bail!(
                "unknown flag {other}; cluster --clients accepts --restarts, --rounds, --seed, --only, --gable and \
                 --test-bucket"
            ),
        }
    }
    let packages = ClientPackages::install()?;
    let mut report = Report::default();
    let mut rows = Vec::new();
    for mode in modes {
        for number in 0..packages.stock_clients().len() {
            let mut row = Row::default();
            for round in 0..rounds {
                let client = packages.stock_clients().remove(number);
                if only.is_some_and(|only| !client.name.contains(only)) {
                    continue;
                }
                row.mode = mode.to_owned();
                row.name = client.name.clone();
                report.step(&format!("{}, restarts: {mode}, round {}", client.name, round + 1), || {
                    let outcome = run_client(&client, mode, seed + round, &passed_on)?;
                    let (counts, excused) = outcome.judge(mode);
                    row.add(&outcome, counts, excused);
                    Ok(counts)
                });
            }
            if !row.name.is_empty() {
                rows.push(row);
            }
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
    mode: String,
    runs: u32,
    numbers: RunNumbers,
    passed: u32,
    failed: u32,
    excused: u32,
}

impl Row {
    fn add(&mut self, outcome: &Outcome, counts: TestCounts, excused: u32) {
        self.runs += 1;
        let numbers = outcome.numbers.unwrap_or_default();
        self.numbers.restarts += numbers.restarts;
        self.numbers.requests += numbers.requests;
        self.numbers.ssh_connections += numbers.ssh_connections;
        self.numbers.interrupted += numbers.interrupted;
        self.passed += counts.passed;
        self.failed += counts.failed;
        self.excused += excused;
    }

    fn print(&self) -> String {
        let RunNumbers { restarts, requests, ssh_connections, interrupted, .. } = self.numbers;
        format!(
            "| {} | {} | {} | {restarts} | {requests} | {ssh_connections} | {interrupted} | {} | {} | {} |",
            self.name, self.mode, self.runs, self.passed, self.excused, self.failed
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
    let outcome = Outcome::parse(&read_lines(&mut cluster)?);
    drop(postgres);
    Ok(outcome)
}

/// Runs a program, prints its output, and returns the lines.
fn read_lines(command: &mut Command) -> Result<Vec<String>> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start the cluster")?;
    let output = child.stdout.take().context("the cluster has no output")?;
    let mut lines = Vec::new();
    for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        println!("{line}");
        lines.push(line);
    }
    child.wait().context("cannot wait for the cluster")?;
    Ok(lines)
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
}

impl Outcome {
    fn parse(lines: &[String]) -> Self {
        let mut counts = TestCounts::default();
        for line in lines {
            counts += summary(line).unwrap_or_default();
        }
        let numbers = lines.iter().find_map(|line| RunNumbers::parse(line));
        Self { counts, numbers, failures: failures(lines) }
    }

    /// Returns the counts without the failures that a kill explains, and the number of these. Each has to be a lost connection, and there cannot
    /// be more of them than interrupted requests.
    fn judge(&self, mode: &str) -> (TestCounts, u32) {
        let mut counts = self.counts;
        let Some(numbers) = self.numbers else {
            counts.failed += 1;
            return (counts, 0);
        };
        let mut excused = 0;
        if mode == "kill" && counts.failed > 0 {
            let is_lost = |text: &&String| LOST_CONNECTION.iter().any(|symptom| text.contains(symptom));
            let explained = u32::try_from(self.failures.iter().filter(is_lost).count()).unwrap_or(u32::MAX);
            excused = explained.min(numbers.interrupted).min(counts.failed);
            println!("{} tests failed, {excused} of them by an interrupted request", counts.failed);
            counts.failed -= excused;
        }
        // Requests that failed without a reason are wrong also if the client has repeated them.
        counts.failed += numbers.failed;
        if counts.passed == 0 {
            counts.failed += 1;
        }
        (counts, excused)
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

    fn outcome(output: &str) -> Outcome {
        Outcome::parse(&output.lines().map(ToOwned::to_owned).collect::<Vec<_>>())
    }

    const NUMBERS: &str = "restarts: 3; requests: 90; ssh connections: 4; interrupted: 1; failed: 0";
    const PYTEST: &str = "=== FAILURES ===\n_ ERROR at setup of test_a _\nE   GitlabHttpError: 502\n____ test_b ____\n_ _ _ _\nE   assert 1 == 2\n\
                          === short test summary info ===\nFAILED x.py::test_a - 502\nFAILED x.py::test_b\n\
                          2 failed, 5 passed in 3.1s\n";

    #[test]
    fn failures_are_found_in_the_output_of_clients() {
        let failed = outcome(PYTEST).failures;
        assert_eq!(
            failed,
            [
                "_ ERROR at setup of test_a _\nE   GitlabHttpError: 502\n",
                "____ test_b ____\n_ _ _ _\nE   assert 1 == 2\n"
            ]
        );
        let failed = outcome("FAILED a: x\n  at b\nFAILED c: 503\n1 passed, 2 failed in 3 s\n").failures;
        assert_eq!(failed, ["FAILED a: x\n  at b\n", "FAILED c: 503\n"]);
    }

    #[test]
    fn a_kill_explains_lost_connections_only() {
        let judge = |output: &str, mode| outcome(output).judge(mode).0.failed;
        let both = format!("{PYTEST}{NUMBERS}");
        assert_eq!(judge(&both, "kill"), 1);
        assert_eq!(judge(&both, "stop"), 2);
        assert_eq!(judge(&both.replace("assert 1 == 2", "502"), "kill"), 1, "one request was interrupted");
        assert_eq!(judge(&format!("9 passed in 2s\n{NUMBERS}"), "kill"), 0);
        assert_eq!(judge(&format!("9 passed in 2s\n{NUMBERS}").replace("failed: 0", "failed: 2"), "kill"), 2);
        assert_eq!(judge("9 passed in 2s\n", "kill"), 1, "the cluster has failed");
        assert_eq!(judge(NUMBERS, "stop"), 1, "no test has run");
    }
}
