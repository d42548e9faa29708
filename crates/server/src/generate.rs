//! `gable generate`: completions and manual pages, made from the command line so that they cannot differ from it.

use std::{fs, path::Path};

use clap::CommandFactory as _;

use crate::{
    Outcome,
    commands::{Gable, GenerateCommand},
};

/// Does what the command says.
pub(crate) fn run(command: GenerateCommand) -> Outcome {
    match command {
        GenerateCommand::Completions { shell } => {
            clap_complete::generate(shell, &mut Gable::command(), "gable", &mut std::io::stdout());
            Ok(())
        }
        GenerateCommand::Man { folder } => write_pages(&folder),
    }
}

/// One page for each command and each command below it: `gable.1`, `gable-serve.1`, `gable-admin-user.1` …
fn write_pages(folder: &Path) -> Outcome {
    let failed = |error: std::io::Error| format!("cannot write manual pages to {}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(failed)?;
    // `help` of a command is no command of its own, and would double the number of pages.
    clap_mangen::generate_to(Gable::command().disable_help_subcommand(true), folder).map_err(failed)
}
