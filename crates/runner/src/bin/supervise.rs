//! The supervisor as a separate program, for the tests of this crate; the same as `gable runner supervise`.

use std::process::ExitCode;

fn main() -> ExitCode {
    runner::supervise(std::env::args_os().skip(1))
}
