//! `cargo xtask test`: runs all tests on both databases and with third-party clients, the web interface in Chromium,
//! and a cluster of which parts fail.

use std::process::Command;

use anyhow::{Result, bail};

use crate::{
    build::{self, TestBinary},
    clients, cluster,
    postgres::Postgres,
    steps::{self, Report, TestCounts},
    system::{self, BUBBLEWRAP, CURL, OPENSSL, POSTGRES, SLIRP, SSH},
    web,
    workspace::{self, cargo},
};

/// The variable that sets the number of tests to run in parallel.
const THREADS: &str = "RUST_TEST_THREADS";

/// The parts to run.
pub(crate) struct Parts {
    sqlite: bool,
    postgres: bool,
    clients: bool,
    web: bool,
    cluster: bool,
}

impl Parts {
    /// Every part.
    pub(crate) const ALL: Self = Self { sqlite: true, postgres: true, clients: true, web: true, cluster: true };

    /// Parses the flags; without flags, all parts are selected.
    pub(crate) fn read(flags: &[String]) -> Result<Self> {
        if flags.is_empty() {
            return Ok(Self::ALL);
        }
        let mut parts = Self { sqlite: false, postgres: false, clients: false, web: false, cluster: false };
        for flag in flags {
            match flag.as_str() {
                "--sqlite" => parts.sqlite = true,
                "--postgres" => parts.postgres = true,
                "--clients" => parts.clients = true,
                "--web" => parts.web = true,
                "--cluster" => parts.cluster = true,
                other => {
                    bail!("unknown flag {other}; test accepts --sqlite, --postgres, --clients, --web and --cluster")
                }
            }
        }
        Ok(parts)
    }
}

/// Runs the parts and prints the totals.
pub(crate) fn run(parts: Parts) -> Result<()> {
    let mut report = Report::default();
    add(&mut report, parts);
    report.finish()
}

/// Runs the parts as steps of a longer report.
pub(crate) fn add(report: &mut Report, parts: Parts) {
    let mut built = Vec::new();
    let compiled = report.step("build", || {
        built = build::build()?;
        for package in DATABASE_PACKAGES {
            if !built.iter().any(|program| program.package == package) {
                bail!("cargo has built no tests of {package}");
            }
        }
        Ok(())
    });
    if !compiled {
        return;
    }
    if parts.sqlite {
        report.step("tests on SQLite", || {
            system::install_missing(&[CURL, SSH, BUBBLEWRAP, SLIRP])?;
            let mut tests = cargo(&["test", "--workspace", "--no-fail-fast", "--"]);
            steps::run_tests(in_parallel(tests.args(skip(&STANDBY_TESTS))))
        });
    }
    if parts.postgres {
        report.step("tests on PostgreSQL", || {
            system::install_missing(&[POSTGRES, OPENSSL, CURL, SSH, BUBBLEWRAP, SLIRP])?;
            let postgres = Postgres::start()?;
            let command = |program: &TestBinary, arguments: &[&str]| {
                let mut tests = Command::new(&program.path);
                workspace::remove_build_variables(&mut tests);
                tests.current_dir(workspace::root().join("crates").join(&program.package));
                tests
                    .env("GABLE_TEST_DATABASE", postgres.url())
                    .env("GABLE_TEST_DATABASE_CA", postgres.ca_certificate());
                in_parallel(tests.args(arguments));
                tests
            };
            let mut counts = TestCounts::default();
            let skipped: Vec<&str> = skip(&SQLITE_ONLY).chain(skip(&STANDBY_TESTS)).collect();
            for program in built.iter().filter(|program| DATABASE_PACKAGES.contains(&program.package.as_str())) {
                counts += steps::run_tests(&mut command(program, &skipped))?;
            }
            // The standby is started for few tests: it would repeat the writes of all others.
            let standby = postgres.start_standby()?;
            let mut on_standby = TestCounts::default();
            for program in built.iter().filter(|program| program.package == "server") {
                let mut tests = command(program, &STANDBY_TESTS);
                on_standby += steps::run_tests(tests.env("GABLE_TEST_STANDBY", standby.url()))?;
            }
            if on_standby.failed == 0 && !u32::try_from(STANDBY_TESTS.len()).is_ok_and(|all| on_standby.passed == all) {
                println!("{} of {} tests that require a standby have run", on_standby.passed, STANDBY_TESTS.len());
                on_standby.failed = 1;
            }
            counts += on_standby;
            Ok(counts)
        });
    }
    if parts.clients {
        clients::run(report);
    }
    if parts.web {
        web::run(report);
    }
    if parts.cluster {
        cluster::add(report);
    }
}

/// The packages whose tests use a database; only these run on PostgreSQL.
const DATABASE_PACKAGES: [&str; 3] = ["server", "webhooks", "wire"];

/// The tests that require a standby of PostgreSQL; without one they do nothing, and pass.
const STANDBY_TESTS: [&str; 6] = [
    "cluster::read_replica::lists_are_read_from_a_standby_that_is_not_behind",
    "cluster::read_replica::without_a_usable_standby_lists_are_read_from_the_primary_and_the_log_says_why",
    "cluster::read_replica::a_standby_that_refuses_some_connections_is_used",
    "cluster::read_replica::a_role_that_may_not_read_the_position_is_named_in_the_log",
    "cluster::read_replica::lists_do_not_wait_for_a_standby_that_does_not_answer",
    "cluster::read_replica::after_a_promotion_lists_are_read_from_another_standby",
];

/// Slow tests of those packages that do not depend on the database engine: transports, memory, archives, files of
/// repositories and backups, pages of code, and crashes of what is outside of the database; and tests of the lock of
/// SQLite. They run on SQLite only. Of the access tables, those of projects in groups are checked on both.
const SQLITE_ONLY: [&str; 30] = [
    "policy::access::the_access_table",
    "policy::access_to_pages::",
    "policy::access_to_projects::access_to_a_personal_project_by_role_and_visibility",
    "repository::hostile_repositories::",
    "repository::malformed_fetches::",
    "repository::git_clients::",
    "repository::contents::",
    "http::hostile_requests::",
    "http::slow_clients::",
    "ci::runner_access::the_access_table_of_runners",
    "ci::runner_end_to_end::",
    "admin::backup_damage::",
    "admin::backup_formats::",
    "admin::admin_commands::commands_do_not_prevent_a_server_from_starting",
    "admin::admin_commands::commands_succeed_during_many_writes",
    "admin::admin_commands::concurrent_commands_succeed",
    "admin::admin_commands::errors_are_reported_in_one_line",
    "crash::disk_full_crashes::",
    "crash::power_cuts::no_acknowledged_write_is_lost",
    "crash::power_cuts::no_project_and_no_file_is_lost",
    "crash::power_cuts::no_webhook_delivery_is_lost",
    "contract::contract::",
    "web::code_history::",
    "web::code_pages::",
    "web::differences::",
    "web::help::",
    "web::hostile_content::",
    "web::lint::",
    "web::page_sizes::",
    "projects::imports::endless_imports_use_the_slots_of_one_user_only",
];

/// Returns the arguments of a test program that skip tests.
fn skip<'a>(names: &[&'a str]) -> impl Iterator<Item = &'a str> {
    names.iter().flat_map(|name| ["--skip", name])
}

/// Sets the number of tests to run in parallel, unless the environment does.
fn in_parallel(tests: &mut Command) -> &mut Command {
    if std::env::var_os(THREADS).is_none() {
        // Many tests wait: for a sync to disk, for a lease to expire, for a server to start.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        tests.env(THREADS, (2 * cores).to_string());
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_skipped_test_exists() {
        for name in SQLITE_ONLY.into_iter().chain(STANDBY_TESTS) {
            assert!(workspace::has_integration_test(name), "no test {name}");
        }
    }

    #[test]
    fn every_test_that_requires_a_standby_is_listed() {
        let file = workspace::root().join("crates/server/tests/it/cluster/read_replica.rs");
        let source = std::fs::read_to_string(file).expect("tests of read replicas");
        let conditions = ["= standby() else {", "if standby().is_none() {"];
        let found: usize = conditions.iter().map(|condition| source.matches(condition).count()).sum();
        assert_eq!(found, STANDBY_TESTS.len());
    }
}
