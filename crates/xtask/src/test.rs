//! `cargo xtask test`: everything that can fail, on both databases and with clients that others wrote.

use crate::{
    Outcome, clients,
    machine::{self, BUBBLEWRAP, CURL, OPENSSL, POSTGRES, SLIRP, SSH},
    postgres::Postgres,
    steps::{self, Report},
    workspace::cargo,
};

/// How many tests run at once, as the test harness wants to be told.
const THREADS: &str = "RUST_TEST_THREADS";

/// Which parts to run.
pub(crate) struct Parts {
    sqlite: bool,
    postgres: bool,
    clients: bool,
}

impl Parts {
    /// Every part.
    pub(crate) const ALL: Self = Self { sqlite: true, postgres: true, clients: true };

    /// The parts named by flags; all of them if none is.
    pub(crate) fn read(flags: &[String]) -> Outcome<Self> {
        if flags.is_empty() {
            return Ok(Self::ALL);
        }
        let mut parts = Self { sqlite: false, postgres: false, clients: false };
        for flag in flags {
            match flag.as_str() {
                "--sqlite" => parts.sqlite = true,
                "--postgres" => parts.postgres = true,
                "--clients" => parts.clients = true,
                other => return Err(format!("test knows --sqlite, --postgres and --clients, not {other}")),
            }
        }
        Ok(parts)
    }
}

/// Runs the parts and prints the sum.
pub(crate) fn run(parts: Parts) -> Outcome {
    let mut report = Report::default();
    add(&mut report, parts);
    report.finish()
}

/// Runs the parts as steps of a longer report.
pub(crate) fn add(report: &mut Report, parts: Parts) {
    if !report.step("build", || steps::run(&mut cargo(&["build", "--workspace", "--bins"]))) {
        return;
    }
    if parts.sqlite {
        report.step("tests on SQLite", || {
            machine::provide(&[CURL, SSH, BUBBLEWRAP, SLIRP])?;
            steps::run_tests(&mut tests(&["--workspace"]))
        });
    }
    if parts.postgres {
        report.step("tests on PostgreSQL", || {
            machine::provide(&[POSTGRES, OPENSSL, CURL, SSH, BUBBLEWRAP, SLIRP])?;
            let postgres = Postgres::start()?;
            let database = [("GABLE_TEST_DATABASE", postgres.url())];
            let authority = [("GABLE_TEST_DATABASE_CA", postgres.authority())];
            // The others never touch a database, and have had their turn.
            let those = ["-p", "server", "-p", "wire", "-p", "courier"];
            steps::run_tests(tests(&those).envs(database).envs(authority))
        });
    }
    if parts.clients {
        clients::run(report);
    }
}

fn tests(packages: &[&str]) -> std::process::Command {
    let mut tests = cargo(&["test", "--no-fail-fast"]);
    tests.args(packages);
    if std::env::var_os(THREADS).is_none() {
        // Many stories wait: for a commit to be on disk, for a lease to end, for a server to start.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        tests.env(THREADS, (2 * cores).to_string());
    }
    tests
}
