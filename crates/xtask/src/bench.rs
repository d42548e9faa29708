//! `cargo xtask bench`: builds what is shipped and measures it.

use std::process::Command;

use crate::{
    Outcome, steps,
    workspace::{cargo, program, root, target},
};

/// Measures; the flags go to the bench itself.
pub(crate) fn run(flags: &[String]) -> Outcome {
    steps::run(&mut cargo(&["build", "--release", "--package", "server", "--package", "bench", "--bins"]))?;
    let mut bench = Command::new(program("release", "bench"));
    bench.current_dir(root()).arg("--gable").arg(program("release", "gable"));
    steps::run(bench.arg("--folder").arg(target().join("bench")).args(flags))
}
