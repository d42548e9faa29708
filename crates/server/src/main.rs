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
mod forge_options;
mod generate;
mod health;
mod instance;
mod listener;
mod log_writer;
mod logging;
mod memory;
mod migrate;
mod migrate_store;
mod monitoring;
mod permissions;
mod readiness_log;
mod repository;
mod runner;
mod secret_variables;
mod serve;
mod shared_instance;
mod signals;
mod slow_clients;
mod suggestions;
mod time_span;
mod tls;

use std::process::ExitCode;

use clap::Parser as _;

use crate::commands::{Cli, Command};

fn main() -> ExitCode {
    // The runner starts this for each program of a job; it is not a command for users.
    let mut arguments = std::env::args_os().skip(1);
    if runner::SUPERVISE_ARGUMENTS.iter().all(|word| arguments.next().is_some_and(|argument| argument == *word)) {
        return ::runner::supervise(arguments);
    }
    memory::configure_allocator();
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => return commands::report_parse_error(&error),
    };
    // Commands that log report this in their log.
    if !matches!(command, Command::Serve(_) | Command::Runner(commands::RunnerCommand::Run(_))) {
        for message in suggestions::unknown_variables() {
            exit::print_stderr(format_args!("warning: {message}"));
        }
    }
    let outcome = match command {
        Command::Serve(settings) => config::load(settings).and_then(|config| Ok(serve::run(config)?)),
        Command::Backup(command) => backup::run(command),
        Command::Restore(command) => backup::restore::run(command),
        Command::MigrateDatabase(command) => backup::migrate::run(command),
        Command::MigrateStore(command) => migrate_store::run(command),
        Command::Admin(command) => admin::run(command),
        Command::Repository(command) => repository::run(command),
        Command::Doctor(command) => return doctor::run(command),
        Command::Migrate(command) => migrate::run(command),
        Command::Runner(command) => runner::run(command),
        Command::Health(health) => health::run(health),
        Command::Generate(command) => generate::run(command),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            exit::print_stderr(format_args!("gable: {failure}"));
            failure.code()
        }
    }
}
