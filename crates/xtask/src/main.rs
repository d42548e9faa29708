//! Development tasks: `cargo xtask test`, `cargo xtask check`, `cargo xtask bench`, `cargo xtask seed`,
//! `cargo xtask load`, `cargo xtask crash`, `cargo xtask cluster`, `cargo xtask pictures`, `cargo xtask dist`.

#![expect(clippy::print_stdout, reason = "a command-line tool prints to the terminal")]

mod bench;
mod build;
mod check;
mod child_guard;
mod clients;
mod cluster;
mod cluster_clients;
mod cluster_examples;
mod crash;
mod dist;
mod gable_server;
mod load;
mod postgres;
mod python;
mod seed;
mod steps;
mod system;
mod temp_folder;
mod test;
mod web;
mod workspace;

use std::process::ExitCode;

use anyhow::anyhow;

const USAGE: &str = "\
cargo xtask test [--sqlite] [--postgres] [--clients] [--web] [--cluster]
                                                       run all tests, or only these parts
cargo xtask check                                      check formatting, lints, documentation and licenses, then run all tests
cargo xtask bench [--basics] [--project] [--lists] [--growth] [--repository] [--issues] [--hooks] [--pipelines] [--pushes] [--web] [--sqlite] [--postgres]
                  [--before PROGRAM] [--all-rows] [--seconds N] [--json]
                                                       run all benchmarks, or only these; compare with an earlier version
cargo xtask seed --data DIR [--projects N] [--database URL] [--seed N]
                                                       create a reproducible instance; default: 10,000 projects
cargo xtask load [--users N] [--seconds N] [--until-overload] [--data DIR] [--database URL] [--projects N] [--seed N] [--json]
                                                       run a load test; default: 10,000 users for a minute, then more
cargo xtask crash [--runs N] [--only NAME] [--seed N] [--model NAME] [--report FILE] [--sqlite] [--postgres]
                                                       crash the server during writes: kills, power cuts and full
                                                       disks; default: 300 crashes in total
cargo xtask cluster [--short] [--bench] [--faults LIST] [--rounds N] [--hold SECONDS] [--seed N] [--report FILE]
                    [--results FILE] [--think-time N] [--keep] [--folder DIR] [--gable PROGRAM] [--old-gable PROGRAM]
                    [--garage PROGRAM] [--test-bucket PROGRAM]
                    [--node-flags FLAGS] [--restarts none|stop|kill] [-- COMMAND]
                                                       let parts of a cluster of three nodes fail under load; the full
                                                       form requires root; default: 50 rounds of each fault
cargo xtask cluster --clients [--restarts none|stop|kill] [--rounds N] [--seed N] [--only NAME] [--gable PROGRAM] [--test-bucket PROGRAM]
                                                       run stock clients while nodes are restarted; default: once with
                                                       SIGTERM, once with SIGKILL
cargo xtask pictures [FOLDER]                          take pictures of the web interface; default: target/pictures
cargo xtask dist [--profile NAME]                      build an archive and a Debian package";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.split_first() {
        Some((command, rest)) if command == "test" => test::Parts::read(rest).and_then(test::run),
        Some((command, [])) if command == "check" => check::run(),
        Some((command, rest)) if command == "bench" => bench::run(rest),
        Some((command, rest)) if command == "seed" => seed::run(rest),
        Some((command, rest)) if command == "load" => load::run(rest),
        Some((command, rest)) if command == "crash" => crash::CrashOptions::read(rest).and_then(crash::run),
        Some((command, rest)) if command == "cluster" => cluster::run(rest),
        Some((command, rest)) if command == "pictures" => web::take_pictures(rest),
        Some((command, rest)) if command == "dist" => dist::DistOptions::read(rest).and_then(dist::run),
        _ => Err(anyhow!("usage:\n{USAGE}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
