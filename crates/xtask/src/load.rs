//! `cargo xtask load`: a load test of the release binary.

use std::process::Command;

use anyhow::Result;

use crate::{
    steps,
    workspace::{cargo, program, target},
};

/// Runs the load test; the flags are passed to the bench program.
pub(crate) fn run(flags: &[String]) -> Result<()> {
    steps::run(&mut cargo(&["build", "--release", "--package", "server", "--package", "bench", "--bins"]))?;
    let mut load = Command::new(program("release", "bench"));
    load.arg("load").arg("--gable").arg(program("release", "gable"));
    steps::run(load.arg("--folder").arg(target().join("bench")).args(flags))
}
