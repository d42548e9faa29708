//! `cargo xtask seed`: creates a reproducible instance for experiments and measurements.

use std::process::Command;

use anyhow::Result;

use crate::{
    steps,
    workspace::{cargo, program},
};

/// Creates the data set; the flags are passed to the bench program.
pub(crate) fn run(flags: &[String]) -> Result<()> {
    steps::run(&mut cargo(&["build", "--release", "--package", "bench", "--bins"]))?;
    let mut seed = Command::new(program("release", "bench"));
    steps::run(seed.arg("seed").args(flags))
}
