//! `cargo xtask check`: what CI says, said here first.

use std::{collections::BTreeSet, fs, path::PathBuf, process::Command};

use crate::{
    Outcome, machine,
    steps::{self, Report},
    test::{self, Parts},
    workspace::{self, cargo},
};

/// The release of cargo-deny that is installed where there is none.
const DENY: &str = "0.20.2";

/// Checks everything, cheapest first.
pub(crate) fn run() -> Outcome {
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
        match deny() {
            Ok(program) => check_dependencies(&program),
            // Not everybody can reach a registry; the licences do not change by that.
            Err(sentence) => {
                println!("skipped cargo-deny: {sentence}");
                Ok(())
            }
        }
    });
    test::add(&mut report, Parts::ALL);
    report.finish()
}

/// Prints how many crates of others we lean on.
fn count_dependencies() -> Outcome {
    let tree = steps::read(&mut cargo(&["tree", "--package", "server", "--edges", "normal", "--prefix", "none"]))?;
    // Our own crates are shown with their folder, and repeated ones with a star, both in parentheses.
    let shipped: BTreeSet<&str> =
        tree.lines().map(|line| line.trim_end_matches(" (*)")).filter(|line| !line.contains(" (/")).collect();
    let lock = workspace::root().join("Cargo.lock");
    let lock = fs::read_to_string(&lock).map_err(|error| format!("cannot read {}: {error}", lock.display()))?;
    let locked = lock.lines().filter(|line| line.starts_with("source = ")).count();
    println!("{} crates of others in the binary, {locked} in Cargo.lock", shipped.len());
    Ok(())
}

/// Advisories are left out: their database is fetched from elsewhere, and a check must not depend on the day.
fn check_dependencies(deny: &PathBuf) -> Outcome {
    let mut command = Command::new(deny);
    steps::run(command.current_dir(workspace::root()).args([
        "--log-level",
        "error",
        "check",
        "bans",
        "licenses",
        "sources",
    ]))
}

/// cargo-deny, installed beside the build where there is none.
fn deny() -> Outcome<PathBuf> {
    let folder = workspace::kept().join("tools");
    let own = folder.join("bin/cargo-deny");
    if let Some(program) = machine::find("cargo-deny").or_else(|| own.is_file().then(|| own.clone())) {
        return Ok(program);
    }
    let mut install = cargo(&["install", "cargo-deny", "--version", DENY, "--locked", "--quiet", "--root"]);
    steps::run(install.arg(&folder))?;
    Ok(own)
}
