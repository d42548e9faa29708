//! The `gable` binary.

mod access_lines;
mod admin;
mod backup;
mod byte_size;
mod commands;
mod config;
mod data_folder;
mod doctor;
mod exit;
mod generate;
mod health;
mod instance;
mod listener;
mod log_writer;
mod memory;
mod migrate;
mod operations;
mod pace;
mod permissions;
mod runner;
mod serve;
mod suggestions;
mod time_span;
mod tls;
mod worker;

use std::process::ExitCode;

use clap::Parser as _;

use crate::commands::{Command, Gable};

/// What ends a step early: one sentence for the operator.
type Outcome = Result<(), String>;

fn main() -> ExitCode {
    // What the runner starts for each program of a job is no command for people, and has no need of the rest.
    let mut arguments = std::env::args_os().skip(1);
    if runner::SUPERVISE.iter().all(|word| arguments.next().is_some_and(|it| it == *word)) {
        return ::runner::supervise(arguments);
    }
    memory::set_allocator_up();
    let command = match Gable::try_parse() {
        Ok(gable) => gable.command,
        Err(told) => return commands::tell(&told),
    };
    // Those that log say it in their log.
    if !matches!(command, Command::Serve(_) | Command::Runner(commands::RunnerCommand::Run(_))) {
        for sentence in suggestions::unknown_variables() {
            exit::complain(format_args!("warning: {sentence}"));
        }
    }
    let outcome = match command {
        Command::Serve(settings) => config::load(*settings).and_then(|config| Ok(serve::run(config)?)),
        Command::Backup(command) => backup::run(command),
        Command::Restore(command) => backup::restore::run(command),
        Command::MigrateDatabase(command) => backup::migrate::run(command),
        Command::Admin(command) => admin::run(command),
        Command::Doctor(command) => return doctor::run(command),
        Command::Migrate(command) => migrate::run(command),
        Command::Runner(command) => runner::run(command),
        Command::Health(health) => health::run(health),
        Command::Generate(command) => generate::run(command),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            exit::complain(format_args!("gable: {failure}"));
            failure.code()
        }
    }
}
