//! The variables of a job: precedence and expansion.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, fchown},
    path::Path,
};

use crate::{isolation::User, protocol::Variable};

/// Variables that the shell does not allow to set.
const READ_ONLY: &[&str] = &["BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID", "_"];

/// The variables of a job, with their values as the script sees them.
pub(crate) struct Variables(Vec<(String, String)>);

impl Variables {
    /// Writes the files of file variables and expands references to other variables, once, as GitLab Runner does.
    pub(crate) fn new(
        job_variables: &[Variable],
        runner_variables: &[(&str, String)],
        files: &Path,
        owner: Option<&User>,
    ) -> io::Result<Self> {
        let runner_variables = runner_variables.iter().map(|(key, value)| Variable {
            key: (*key).to_owned(),
            value: value.clone(),
            file: false,
            raw: true,
        });
        // The last variable of a name wins, and those of the runner win over all others.
        let mut latest: Vec<Variable> = Vec::new();
        for variable in job_variables
            .iter()
            .cloned()
            .chain(runner_variables)
            .filter(|it| is_name(&it.key) && !it.value.contains('\0'))
        {
            latest.retain(|it| it.key != variable.key);
            latest.push(variable);
        }
        let path = |key: &str| files.join(key).display().to_string();
        let shell_value = |name: &str| {
            let variable = latest.iter().find(|it| it.key == name);
            variable.map(|it| if it.file { path(&it.key) } else { it.value.clone() })
        };
        let mut values = Vec::with_capacity(latest.len());
        for variable in &latest {
            let value =
                if variable.raw { variable.value.clone() } else { expand(&variable.value, |name| shell_value(name)) };
            if variable.file {
                write(&files.join(&variable.key), &value, owner)?;
                values.push((variable.key.clone(), path(&variable.key)));
            } else {
                values.push((variable.key.clone(), value));
            }
        }
        Ok(Self(values))
    }

    /// Returns the value of a variable, or an empty text.
    pub(crate) fn get(&self, key: &str) -> &str {
        self.0.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value)
    }

    /// Expands variables in a text.
    pub(crate) fn expand(&self, text: &str) -> String {
        expand(text, |name| Some(self.get(name).to_owned()))
    }

    /// Returns the `export` commands of all variables.
    pub(crate) fn exports(&self) -> String {
        self.0.iter().fold(String::new(), |all, (key, value)| all + &format!("export {key}={}\n", quote(value)))
    }
}

/// Quotes a text for the shell.
pub(crate) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn write(path: &Path, content: &str, owner: Option<&User>) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content.as_bytes())?;
    if let Some(user) = owner {
        fchown(&file, Some(user.uid), Some(user.gid))?;
    }
    Ok(())
}

fn is_name(key: &str) -> bool {
    let is_allowed = |ch: char| ch.is_ascii_alphanumeric() || ch == '_';
    !key.is_empty()
        && key.chars().all(is_allowed)
        && !key.starts_with(|first: char| first.is_ascii_digit())
        && !READ_ONLY.contains(&key)
}

/// Expands `$NAME` and `${NAME}`; `$$` is a dollar sign, and unknown variables are empty.
fn expand(text: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded += before;
        if let Some(inside) = after.strip_prefix('{')
            && let Some((name, after)) = inside.split_once('}')
        {
            expanded += &value(name).unwrap_or_default();
            rest = after;
            continue;
        }
        if let Some(after) = after.strip_prefix('$') {
            expanded.push('$');
            rest = after;
            continue;
        }
        let end = after.find(|ch: char| !ch.is_ascii_alphanumeric() && ch != '_').unwrap_or(after.len());
        let (name, after) = after.split_at(end);
        if name.is_empty() {
            expanded.push('$');
        } else {
            expanded += &value(name).unwrap_or_default();
        }
        rest = after;
    }
    expanded + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(key: &str, value: &str) -> Variable {
        Variable { key: key.to_owned(), value: value.to_owned(), file: false, raw: false }
    }

    #[test]
    fn the_last_variable_wins_and_values_are_expanded() {
        let folder = tempfile::tempdir().expect("a folder");
        let job_variables = [
            variable("A", "first"),
            variable("PATHS", "$A/${B}/$UNKNOWN/$$/100$"),
            variable("A", "second"),
            variable("B", "bee"),
            variable("NESTED", "$PATHS"),
            variable("CI_SERVER", "no"),
            variable("not a name", "x"),
            variable("UID", "0"),
            Variable { raw: true, ..variable("RAW", "$A") },
            Variable { file: true, ..variable("KEY", "for $A") },
            variable("WHERE", "$KEY"),
        ];
        let variables =
            Variables::new(&job_variables, &[("CI_SERVER", "yes".to_owned())], folder.path(), None).expect("written");
        let key = folder.path().join("KEY");
        assert_eq!(variables.get("A"), "second");
        assert_eq!(variables.get("PATHS"), "second/bee//$/100$");
        assert_eq!(variables.get("NESTED"), "$A/${B}/$UNKNOWN/$$/100$");
        assert_eq!(variables.get("RAW"), "$A");
        assert_eq!(variables.get("CI_SERVER"), "yes");
        assert_eq!(variables.get("KEY"), key.display().to_string());
        assert_eq!(variables.get("WHERE"), key.display().to_string());
        assert_eq!(std::fs::read_to_string(&key).expect("written"), "for second");
        assert_eq!(variables.expand("x-$A-${B}"), "x-second-bee");
        let exports = variables.exports();
        assert!(!exports.contains("not a name") && !exports.contains("export UID"), "{exports}");
    }

    #[test]
    fn values_are_quoted_for_the_shell() {
        assert_eq!(quote("it's $HOME `x`\n"), "'it'\\''s $HOME `x`\n'");
    }
}
