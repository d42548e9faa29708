//! The supervisor as a program of its own, for the tests of this crate; `gable runner supervise` is the same.

use std::process::ExitCode;

fn main() -> ExitCode {
    runner::supervise(std::env::args_os().skip(1))
}
