//! `cargo xtask test`: everything that can fail, on both databases and with clients that others wrote.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Outcome, clients,
    machine::{self, BUBBLEWRAP, CURL, OPENSSL, POSTGRES, SLIRP, SSH},
    postgres::Postgres,
    steps::{self, Report, Tally},
    workspace::{self, cargo},
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
    let mut built = Vec::new();
    let compiled = report.step("build", || {
        built = build()?;
        Ok(())
    });
    if !compiled {
        return;
    }
    if parts.sqlite {
        report.step("tests on SQLite", || {
            machine::provide(&[CURL, SSH, BUBBLEWRAP, SLIRP])?;
            steps::run_tests(in_parallel(&mut cargo(&["test", "--workspace", "--no-fail-fast"])))
        });
    }
    if parts.postgres {
        report.step("tests on PostgreSQL", || {
            machine::provide(&[POSTGRES, OPENSSL, CURL, SSH, BUBBLEWRAP, SLIRP])?;
            let postgres = Postgres::start()?;
            let mut tally = Tally::default();
            for program in built.iter().filter(|program| WITH_DATABASE.contains(&program.package.as_str())) {
                let mut tests = Command::new(&program.path);
                workspace::forget_settings(&mut tests);
                tests.current_dir(workspace::root().join("crates").join(&program.package));
                tests.env("GABLE_TEST_DATABASE", postgres.url()).env("GABLE_TEST_DATABASE_CA", postgres.authority());
                tests.args(WITHOUT_DATABASE.iter().flat_map(|name| ["--skip", name]));
                tally += steps::run_tests(in_parallel(&mut tests))?;
            }
            Ok(tally)
        });
    }
    if parts.clients {
        clients::run(report);
    }
}

/// The packages whose tests use a database. The others have run on SQLite, where it makes no difference.
const WITH_DATABASE: [&str; 3] = ["server", "wire", "courier"];

/// Tests of those packages that take long and are about something else than the database: memory, archives, files of
/// repositories. Of the tables of who gets what, those of projects in groups are made on both databases. All of them have run
/// on SQLite.
const WITHOUT_DATABASE: [&str; 10] = [
    "access_to_projects::lesson_13_access_to_a_personal_project",
    "access_to_projects::lesson_19_access_to_a_project_after_it_ended",
    "hostile_repositories::",
    "hostile_requests::",
    "malformed_fetches::",
    "slow_clients::",
    "backup_damage::damage_to_any_file_of_a_repository",
    "contents::few_archives_are_made_at_once",
    "git_story::a_push_over_the_size_limit_is_refused",
    "imports::servers_without_end",
];

/// A compiled program with tests.
struct TestProgram {
    package: String,
    path: PathBuf,
}

/// Compiles the programs and all tests. Every step uses what this command builds: a command that selects other packages
/// selects other features of dependencies, and would compile most of them again.
fn build() -> Outcome<Vec<TestProgram>> {
    let messages = "--message-format=json-render-diagnostics";
    let output = steps::read(&mut cargo(&["test", "--workspace", "--no-run", messages]))?;
    let programs: Vec<TestProgram> = output.lines().filter_map(test_program).collect();
    for package in WITH_DATABASE {
        if !programs.iter().any(|program| program.package == package) {
            return Err(format!("cargo names no program with the tests of {package}"));
        }
    }
    Ok(programs)
}

/// The program of a message of cargo, if the message is about one with tests.
fn test_program(message: &str) -> Option<TestProgram> {
    let field = |name: &str| {
        let (_, rest) = message.split_once(&format!("\"{name}\":\""))?;
        rest.split_once('"').map(|(value, _)| value)
    };
    if field("reason") != Some("compiler-artifact") || !message.contains("\"test\":true},\"features\"") {
        return None;
    }
    let package = Path::new(field("manifest_path")?).parent()?.file_name()?.to_str()?.to_owned();
    Some(TestProgram { package, path: field("executable")?.into() })
}

/// Sets how many tests run at once, unless the caller of the whole command has.
fn in_parallel(tests: &mut Command) -> &mut Command {
    if std::env::var_os(THREADS).is_none() {
        // Many stories wait: for a commit to be on disk, for a lease to end, for a server to start.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        tests.env(THREADS, (2 * cores).to_string());
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_with_tests_are_found_among_the_messages_of_cargo() {
        let message = |test: bool, executable: &str| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"manifest_path\":\"/src/crates/wire/Cargo.toml\",\"target\":\
                 {{\"kind\":[\"lib\"],\"test\":true}},\"profile\":{{\"opt_level\":\"0\",\"test\":{test}}},\
                 \"features\":[],\"executable\":{executable},\"fresh\":true}}"
            )
        };
        let found = test_program(&message(true, "\"/target/debug/deps/wire-1\"")).expect("a program");
        assert_eq!((found.package.as_str(), found.path.as_path()), ("wire", Path::new("/target/debug/deps/wire-1")));
        assert!(test_program(&message(false, "\"/target/debug/gable\"")).is_none());
        assert!(test_program(&message(true, "null")).is_none());
        assert!(test_program("{\"reason\":\"build-finished\",\"success\":true}").is_none());
    }
}
