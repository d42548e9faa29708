//! Suggestions for misspelled names, and warnings about unknown variables.

use std::collections::BTreeSet;

use clap::CommandFactory as _;

use crate::{commands::Cli, secret_variables};

/// The minimum similarity of a suggestion, from 0 to 1; the same as clap uses for flags.
const MIN_SIMILARITY: f64 = 0.7;

/// Returns the most similar known name, if one is similar enough.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known.into_iter().map(|one| (strsim::jaro_winkler(name, one), one));
    let best =
        scored.filter(|(similarity, _)| *similarity > MIN_SIMILARITY).max_by(|one, other| one.0.total_cmp(&other.0));
    best.map(|(_, name)| name)
}

/// Returns a warning for each `GABLE_…` variable that no command reads; a misspelled one would be ignored silently. An empty
/// variable counts as not set.
pub(crate) fn unknown_variables() -> Vec<String> {
    let mut known: BTreeSet<String> = secret_variables::ALL.map(str::to_owned).into();
    collect_variables(&Cli::command(), &mut known);
    let set = std::env::vars_os().filter(|(_, value)| !value.is_empty());
    let set = set.filter_map(|(name, _)| name.into_string().ok());
    let unknown = set.filter(|name| name.starts_with("GABLE_") && !known.contains(name));
    // The value is not repeated: it may be a secret.
    let mut messages: Vec<String> = unknown
        .map(|name| match nearest(&name, known.iter().map(String::as_str)) {
            Some(suggestion) => format!("unknown variable {name} is ignored; did you mean {suggestion}?"),
            None => format!("unknown variable {name} is ignored"),
        })
        .collect();
    messages.sort();
    messages
}

fn collect_variables(command: &clap::Command, known: &mut BTreeSet<String>) {
    let variables = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str());
    known.extend(variables.map(str::to_owned));
    for subcommand in command.get_subcommands() {
        collect_variables(subcommand, known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_names_are_suggested() {
        let known = ["data", "database", "listen", "ssh-listen", "max-push-size"];
        let check = |name: &str, expected: Option<&str>| assert_eq!(nearest(name, known), expected, "{name}");
        check("databse", Some("database"));
        check("lisen", Some("listen"));
        check("ssh_listen", Some("ssh-listen"));
        check("max-push", Some("max-push-size"));
        check("colour", None);
        check("", None);
    }
}
