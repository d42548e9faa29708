//! The `gable` binary.

mod admin;
mod commands;
mod config;
mod data_folder;
mod listener;
mod log_writer;
mod operations;
mod serve;
mod worker;

use std::process::ExitCode;

use clap::Parser as _;

use crate::commands::{Command, Gable};

/// A request is many small allocations; this allocator halves what they cost.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What ends the program early: one sentence for the operator.
type Outcome = Result<(), String>;

fn main() -> ExitCode {
    let command = match Gable::try_parse() {
        Ok(gable) => gable.command,
        Err(told) => return commands::tell(&told),
    };
    let outcome = match command {
        Command::Serve(settings) => config::load(settings).and_then(serve::run),
        Command::Admin(command) => admin::run(command),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("gable: {sentence}");
            ExitCode::FAILURE
        }
    }
}
