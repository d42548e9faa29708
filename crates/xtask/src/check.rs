//! `cargo xtask check`: all checks of CI.

use std::{collections::BTreeSet, fs, path::PathBuf, process::Command};

use anyhow::{Context as _, Result};

use crate::{
    steps::{self, Report},
    system,
    test::{self, Parts},
    workspace::{self, cargo},
};

/// The version of cargo-deny that is installed if it is missing.
const CARGO_DENY_VERSION: &str = "0.20.2";

/// Runs all checks, the cheapest first.
pub(crate) fn run() -> Result<()> {
    let mut report = Report::default();
    report.step("formatting", || steps::run(&mut cargo(&["fmt", "--all", "--check"])));
    report.step("lints", || {
        steps::run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]))
    });
    report.step("documents", || {
        steps::run(cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "--deny warnings"))
    });
    report.step("dependencies", || {
        count_dependencies()?;
        match cargo_deny() {
            Ok(program) => check_dependencies(&program),
            // The registry may be unreachable; that does not change the licenses.
            Err(error) => {
                println!("skipped cargo-deny: {error:#}");
                Ok(())
            }
        }
    });
    test::add(&mut report, Parts::ALL);
    report.finish()
}

/// Prints the number of third-party crates.
fn count_dependencies() -> Result<()> {
    let tree = steps::read(&mut cargo(&["tree", "--package", "server", "--edges", "normal", "--prefix", "none"]))?;
    // Cargo prints the folder of workspace crates and a star for repeated ones, both in parentheses.
    let shipped: BTreeSet<&str> =
        tree.lines().map(|line| line.trim_end_matches(" (*)")).filter(|line| !line.contains(" (/")).collect();
    let lock = workspace::root().join("Cargo.lock");
    let lock = fs::read_to_string(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
    let locked = lock.lines().filter(|line| line.starts_with("source = ")).count();
    println!("{} third-party crates in the binary, {locked} in Cargo.lock", shipped.len());
    Ok(())
}

/// Runs cargo-deny without advisories, whose database changes from day to day.
fn check_dependencies(cargo_deny: &PathBuf) -> Result<()> {
    let mut command = Command::new(cargo_deny);
    steps::run(command.current_dir(workspace::root()).args([
        "--log-level",
        "error",
        "check",
        "bans",
        "licenses",
        "sources",
    ]))
}

/// Returns the path of cargo-deny; installs it into the cache folder if it is missing.
fn cargo_deny() -> Result<PathBuf> {
    let folder = workspace::cache_folder().join("tools");
    let installed = folder.join("bin/cargo-deny");
    if let Some(program) = system::find("cargo-deny").or_else(|| installed.is_file().then(|| installed.clone())) {
        return Ok(program);
    }
    let mut install =
        cargo(&["install", "cargo-deny", "--version", CARGO_DENY_VERSION, "--locked", "--quiet", "--root"]);
    steps::run(install.arg(&folder))?;
    Ok(installed)
}
