//! Chores of this repository: `cargo xtask test`, `cargo xtask check`, `cargo xtask bench`, `cargo xtask crash`.

#![expect(clippy::print_stdout, reason = "a tool talks to the person at the terminal")]

mod bench;
mod check;
mod clients;
mod crash;
mod gable;
mod leash;
mod machine;
mod postgres;
mod scratch;
mod steps;
mod test;
mod workspace;

use std::process::ExitCode;

/// What ends a chore early: one sentence for the person at the terminal.
type Outcome<T = ()> = Result<T, String>;

const USAGE: &str = "\
cargo xtask test [--sqlite] [--postgres] [--clients]   all tests, or only the named parts
cargo xtask check                                      formatting, lints, documents, licences, then all tests
cargo xtask bench [--basics] [--project] [--lists] [--growth] [--repository] [--issues] [--sqlite] [--postgres]
                  [--all-rows] [--seconds N] [--json]  the goals of the design, measured: all parts, or the named ones
cargo xtask crash [--runs N] [--only NAME] [--seed N] [--model NAME] [--report FILE] [--sqlite] [--postgres]
                                                       kills the server in storms of writes, cuts its power and fills its
                                                       disk: 300 kills altogether unless told otherwise";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.split_first() {
        Some((chore, rest)) if chore == "test" => test::Parts::read(rest).and_then(test::run),
        Some((chore, [])) if chore == "check" => check::run(),
        Some((chore, rest)) if chore == "bench" => bench::run(rest),
        Some((chore, rest)) if chore == "crash" => crash::Plan::read(rest).and_then(crash::run),
        _ => Err(format!("the chores are\n{USAGE}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("xtask: {sentence}");
            ExitCode::FAILURE
        }
    }
}
