//! `cargo xtask load`: everybody at once, against what is shipped.

use std::process::Command;

use crate::{
    Outcome, steps,
    workspace::{cargo, program, target},
};

/// Drives the load; the flags go to the bench, which knows how.
pub(crate) fn run(flags: &[String]) -> Outcome {
    steps::run(&mut cargo(&["build", "--release", "--package", "server", "--package", "bench", "--bins"]))?;
    let mut load = Command::new(program("release", "bench"));
    load.arg("load").arg("--gable").arg(program("release", "gable"));
    steps::run(load.arg("--folder").arg(target().join("bench")).args(flags))
}
