//! `gable generate`: completions, manual pages and the list of settings, made from the command line so that they cannot
//! differ from it.

use std::{fs, path::Path};

use clap::CommandFactory as _;

use crate::{
    Outcome,
    commands::{Gable, GenerateCommand},
    exit::{Ending, show},
};

/// Does what the command says.
pub(crate) fn run(command: GenerateCommand) -> Ending {
    match command {
        GenerateCommand::Completions { shell } => {
            // In memory first: what is written to a closed pipe in there panics.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Gable::command(), "gable", &mut script);
            show(&script)?;
        }
        GenerateCommand::Man { folder } => write_pages(&folder)?,
        GenerateCommand::Settings => show(settings().as_bytes())?,
    }
    Ok(())
}

/// One page for each command and each command below it: `gable.1`, `gable-serve.1`, `gable-admin-user.1` …
fn write_pages(folder: &Path) -> Outcome {
    let failed = |error: std::io::Error| format!("cannot write manual pages to {}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(failed)?;
    // `help` of a command is no command of its own, and would double the number of pages.
    clap_mangen::generate_to(Gable::command().disable_help_subcommand(true), folder).map_err(failed)
}

/// The table of all settings, as the documentation shows it.
fn settings() -> String {
    let gable = Gable::command();
    let mut table = "| Name | Default | What it is |\n|---|---|---|\n".to_owned();
    for setting in gable.find_subcommand("serve").into_iter().flat_map(clap::Command::get_arguments) {
        // The file cannot name itself, and help is no setting.
        let Some(name) = setting.get_long().filter(|name| !["config", "help", "version"].contains(name)) else {
            continue;
        };
        let help = setting.get_help().map(ToString::to_string).unwrap_or_default();
        let (what, default) = match help.split_once(" [default: ") {
            Some((what, default)) => (what, format!("`{}`", default.trim_end_matches(']'))),
            None => (help.as_str(), String::new()),
        };
        table += &format!("| `{name}` | {default} | {} |\n", what.replace('|', "\\|"));
    }
    table
}
