//! What somebody may have meant who wrote a name that there is not.

use std::collections::BTreeSet;

use clap::CommandFactory as _;

use crate::commands::Gable;

/// How alike two names have to be, from 0 to 1; the same as for flags.
const ALIKE: f64 = 0.7;
/// Variables that no flag stands for, because they hold secrets.
const SECRETS: [&str; 4] =
    ["GABLE_ROOT_PASSWORD", "GABLE_ROOT_TOKEN", "GABLE_REGISTRATION_TOKEN", "GABLE_RUNNER_TOKEN"];

/// The known name that is most like this one, if one is like it at all.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let rated = known.into_iter().map(|one| (strsim::jaro_winkler(name, one), one));
    let best = rated.filter(|(alike, _)| *alike > ALIKE).max_by(|one, other| one.0.total_cmp(&other.0));
    best.map(|(_, name)| name)
}

/// A sentence for each `GABLE_…` variable that no command reads: a misspelled one would be ignored silently.
pub(crate) fn unknown_variables() -> Vec<String> {
    let mut known: BTreeSet<String> = SECRETS.map(str::to_owned).into();
    collect(&Gable::command(), &mut known);
    let set = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let unknown = set.filter(|name| name.starts_with("GABLE_") && !known.contains(name));
    // The value is not repeated: it may be a secret.
    let mut sentences: Vec<String> = unknown
        .map(|name| match nearest(&name, known.iter().map(String::as_str)) {
            Some(like) => format!("the variable {name} is unknown and ignored; did you mean {like}?"),
            None => format!("the variable {name} is unknown and ignored"),
        })
        .collect();
    sentences.sort();
    sentences
}

fn collect(command: &clap::Command, known: &mut BTreeSet<String>) {
    let variables = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str());
    known.extend(variables.map(str::to_owned));
    for below in command.get_subcommands() {
        collect(below, known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_are_alike_are_suggested() {
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
