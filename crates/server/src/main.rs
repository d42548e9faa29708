//! The `gable` binary.

mod admin;
mod commands;
mod config;
mod data_folder;
mod listener;
mod operations;
mod serve;
mod worker;

use std::process::ExitCode;

use clap::Parser as _;

use crate::commands::{Command, Gable};

/// What ends the program early: one sentence for the operator.
type Outcome = Result<(), String>;

fn main() -> ExitCode {
    let outcome = match Gable::parse().command {
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
