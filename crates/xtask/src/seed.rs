//! `cargo xtask seed`: a whole forge on disk, always the same, to try and to measure things on.

use std::process::Command;

use crate::{
    Outcome, steps,
    workspace::{cargo, program},
};

/// Makes the data set; the flags go to the bench, which knows how.
pub(crate) fn run(flags: &[String]) -> Outcome {
    steps::run(&mut cargo(&["build", "--release", "--package", "bench", "--bins"]))?;
    let mut seed = Command::new(program("release", "bench"));
    steps::run(seed.arg("seed").args(flags))
}
