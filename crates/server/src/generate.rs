//! `gable generate`: completions, manual pages and the table of settings, generated from the command line definition.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;

use crate::{
    commands::{Cli, GenerateCommand},
    exit::{CommandResult, print_stdout},
};

/// Runs a `generate` command.
pub(crate) fn run(command: GenerateCommand) -> CommandResult {
    match command {
        GenerateCommand::Completions { shell } => {
            // Into memory first: clap_complete panics on a closed pipe.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "gable", &mut script);
            print_stdout(&script)?;
        }
        GenerateCommand::Man { folder } => write_manual_pages(&folder)?,
        GenerateCommand::Settings => print_stdout(settings_table().as_bytes())?,
    }
    Ok(())
}

/// Writes one page per command: `gable.1`, `gable-serve.1`, `gable-admin-user.1` …
fn write_manual_pages(folder: &Path) -> Result<()> {
    let context = || format!("cannot write manual pages to {}", folder.display());
    fs::create_dir_all(folder).with_context(context)?;
    // Pages for `help` subcommands would double their number.
    clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), folder).with_context(context)
}

/// Returns the table of all settings for docs/configuration.md.
fn settings_table() -> String {
    let gable = Cli::command();
    let mut table = "| Name | Default | Description |\n|---|---|---|\n".to_owned();
    for setting in gable.find_subcommand("serve").into_iter().flat_map(clap::Command::get_arguments) {
        // These are not settings.
        let Some(name) = setting.get_long().filter(|name| !["config", "help", "version"].contains(name)) else {
            continue;
        };
        let help = setting.get_help().map(ToString::to_string).unwrap_or_default();
        // A default that depends on something else is in the text.
        let (description, default) = match (help.split_once(" [default: "), setting.get_default_values()) {
            (Some((description, default)), _) => (description, format!("`{}`", default.trim_end_matches(']'))),
            (None, [default]) => (help.as_str(), format!("`{}`", default.display())),
            (None, _) => (help.as_str(), String::new()),
        };
        table += &format!("| `{name}` | {default} | {} |\n", description.replace('|', "\\|"));
    }
    table
}
