//! Chores of this repository: `cargo xtask test`, `cargo xtask check`, `cargo xtask bench`, `cargo xtask seed`,
//! `cargo xtask load`, `cargo xtask crash`, `cargo xtask dist`.

#![expect(clippy::print_stdout, reason = "a tool talks to the person at the terminal")]

mod bench;
mod check;
mod clients;
mod crash;
mod dist;
mod gable;
mod leash;
mod load;
mod machine;
mod postgres;
mod scratch;
mod seed;
mod steps;
mod test;
mod workspace;

use std::process::ExitCode;

/// What ends a chore early: one sentence for the person at the terminal.
type Outcome<T = ()> = Result<T, String>;

const USAGE: &str = "\
cargo xtask test [--sqlite] [--postgres] [--clients]   all tests, or only the named parts
cargo xtask check                                      formatting, lints, documents, licences, then all tests
cargo xtask bench [--basics] [--project] [--lists] [--growth] [--repository] [--issues] [--hooks] [--pipelines] [--sqlite] [--postgres]
                  [--all-rows] [--seconds N] [--json]  the goals of the design, measured: all parts, or the named ones
cargo xtask seed --data DIR [--projects N] [--database URL] [--seed N]
                                                       a whole forge on disk, the same each time; 10,000 projects unless told otherwise
cargo xtask load [--users N] [--seconds N] [--until-it-bends] [--data DIR] [--database URL] [--projects N] [--seed N] [--json]
                                                       10,000 users at once for a minute, and then more
cargo xtask crash [--runs N] [--only NAME] [--seed N] [--model NAME] [--report FILE] [--sqlite] [--postgres]
                                                       kills the server in storms of writes, cuts its power and fills its
                                                       disk: 300 kills altogether unless told otherwise
cargo xtask dist [--profile NAME]                      an archive and a Debian package, from a release build";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.split_first() {
        Some((chore, rest)) if chore == "test" => test::Parts::read(rest).and_then(test::run),
        Some((chore, [])) if chore == "check" => check::run(),
        Some((chore, rest)) if chore == "bench" => bench::run(rest),
        Some((chore, rest)) if chore == "seed" => seed::run(rest),
        Some((chore, rest)) if chore == "load" => load::run(rest),
        Some((chore, rest)) if chore == "crash" => crash::Plan::read(rest).and_then(crash::run),
        Some((chore, rest)) if chore == "dist" => dist::Distribution::read(rest).and_then(dist::run),
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
