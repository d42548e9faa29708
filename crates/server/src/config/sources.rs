//! The sources of settings, in order of precedence: flags, variables, the configuration file and the defaults.
//!
//! Everything follows from the declarations of the flags: an entry of the file is read as if it were a flag, so all sources
//! have the same names, the same syntax and the same checks.

use std::{
    collections::BTreeMap,
    env,
    error::Error as _,
    ffi::{OsStr, OsString},
    fs,
    marker::PhantomData,
    path::Path,
};

use anyhow::{Context as _, Result, anyhow, bail};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, parser::ValueSource};
use toml::{Spanned, Value};

use super::settings::Settings;
use crate::suggestions::nearest;

/// The values of settings as text, by the name of the flag.
type Values = BTreeMap<String, Vec<OsString>>;

/// The settings of the group `T` that are given by flags or variables.
pub(crate) struct ExplicitSettings<T> {
    values: Values,
    group: PhantomData<T>,
}

impl<T: Args> Args for ExplicitSettings<T> {
    fn augment_args(command: Command) -> Command {
        // Service managers may leave variables empty.
        let is_empty = |variable: &OsStr| env::var_os(variable).is_some_and(|value| value.is_empty());
        let settings = T::augment_args(Command::new("settings"));
        let empty = settings.get_arguments().filter(|setting| setting.get_env().is_some_and(is_empty));
        empty.fold(T::augment_args(command), |command, setting| command.mut_arg(setting.get_id(), without_variable))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<T: Args> FromArgMatches for ExplicitSettings<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut values = Values::new();
        for setting in T::augment_args(Command::new("settings")).get_arguments() {
            let id = setting.get_id().as_str();
            if matches.value_source(id).is_some_and(|source| source != ValueSource::DefaultValue) {
                let given = matches.get_raw(id).into_iter().flatten().map(OsStr::to_owned).collect();
                values.insert(name(setting).to_owned(), given);
            }
        }
        Ok(Self { values, group: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T> ExplicitSettings<T> {
    /// Adds the settings in the file and the defaults.
    pub(super) fn complete(self) -> Result<Settings> {
        let mut values = self.values;
        values.retain(|_, values| values.iter().any(|value| !value.is_empty()));
        if let Some(path) = values.get("config").and_then(|paths| paths.first()) {
            for (name, in_file) in read_file(Path::new(path))? {
                values.entry(name).or_insert(in_file);
            }
        }
        let flags = values.iter().flat_map(|(name, values)| values.iter().map(move |value| flag(name, value)));
        Ok(Settings::from_arg_matches(&declarations().try_get_matches_from(flags)?)?)
    }
}

/// Returns the declarations of all settings, without their variables.
fn declarations() -> Command {
    Settings::augment_args(Command::new("settings").no_binary_name(true)).mut_args(without_variable)
}

fn without_variable(setting: Arg) -> Arg {
    setting.env(None::<&'static str>)
}

fn name(setting: &Arg) -> &str {
    setting.get_long().expect("every setting is a flag with a long name")
}

fn flag(name: &str, value: &OsStr) -> OsString {
    let mut flag = OsString::from(format!("--{name}="));
    flag.push(value);
    flag
}

/// Reads and checks a configuration file.
fn read_file(path: &Path) -> Result<Values> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read the configuration file {}", path.display()))?;
    let line = |offset: usize| text[..offset].matches('\n').count() + 1;
    let context = |offset| format!("line {} of the configuration file {}", line(offset), path.display());
    let entries: BTreeMap<Spanned<String>, Spanned<Value>> = toml::from_str(&text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        anyhow!(syntax_error(&text, line(offset), &error)).context(context(offset))
    })?;
    let mut entries: Vec<(Spanned<String>, Spanned<Value>)> = entries.into_iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let settings = declarations();
    let mut values = Values::new();
    for (key, value) in entries {
        let offset = key.span().start;
        let value = parse_entry(&settings, key.get_ref(), value.get_ref()).with_context(|| context(offset))?;
        if !value.is_empty() {
            values.insert(key.into_inner(), value);
        }
    }
    Ok(values)
}

/// Describes a syntax error with the key on its line. The line itself is not repeated: it may contain a password.
fn syntax_error(text: &str, line: usize, error: &toml::de::Error) -> String {
    let message = error.message().lines().collect::<Vec<_>>().join(" ");
    let key = text.lines().nth(line - 1).and_then(|line| line.split_once('=')).map(|(key, _)| key.trim());
    let is_plain = |key: &&str| key.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-');
    match key.filter(|key| !key.is_empty()).filter(is_plain) {
        Some(key) if !message.contains('`') => format!("{key}: {message}"),
        _ => message,
    }
}

/// Returns the values of an entry, or why it is invalid; an empty string counts as not set.
fn parse_entry(settings: &Command, key: &str, value: &Value) -> Result<Vec<OsString>> {
    // A file cannot name another one.
    let known = || settings.get_arguments().filter(|setting| name(setting) != "config");
    let Some(setting) = known().find(|setting| name(setting) == key) else {
        if let Some(similar) = nearest(key, known().map(name)) {
            bail!("unknown field `{key}`; did you mean `{similar}`?");
        }
        let names: Vec<String> = known().map(|setting| format!("`{}`", name(setting))).collect();
        bail!("unknown field `{key}`, expected one of {}", names.join(", "));
    };
    let texts = match value {
        Value::Array(values) if matches!(setting.get_action(), ArgAction::Append) => values.iter().map(text).collect(),
        value => text(value).map(|text| vec![text]),
    };
    let texts: Vec<OsString> = texts.with_context(|| format!("{key}: expected a string, a number or a boolean"))?;
    let values: Vec<OsString> = texts.into_iter().filter(|text| !text.is_empty()).collect();
    let command = Command::new("setting").no_binary_name(true).arg(setting.clone());
    match command.try_get_matches_from(values.iter().map(|value| flag(key, value))) {
        Ok(_) => Ok(values),
        Err(error) => Err(anyhow!("{key}: {}", value_error(setting, &error))),
    }
}

fn text(value: &Value) -> Option<OsString> {
    match value {
        Value::String(text) => Some(text.into()),
        Value::Integer(number) => Some(number.to_string().into()),
        Value::Float(number) => Some(number.to_string().into()),
        Value::Boolean(boolean) => Some(boolean.to_string().into()),
        Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    }
}

/// Returns why a value is invalid: clap's message without the flag.
fn value_error(setting: &Arg, error: &clap::Error) -> String {
    error.source().map_or_else(
        || {
            let names: Vec<String> = setting.get_possible_values().iter().map(|it| it.get_name().to_owned()).collect();
            format!("expected one of {}", names.join(", "))
        },
        ToString::to_string,
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns the settings given by flags, and by a file with this text.
    pub(in crate::config) fn settings(flags: &[&str], file: &str) -> Result<Settings> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gable.toml").display().to_string();
        fs::write(&path, file).expect("written");
        let flags = flags.iter().copied().chain(["--config", path.as_str()]);
        let matches = declarations().try_get_matches_from(flags).expect("valid flags");
        let explicit = ExplicitSettings::<Settings>::from_arg_matches(&matches).expect("valid flags");
        explicit.complete().map_err(|error| anyhow!(format!("{error:#}").replace(&path, "FILE")))
    }

    fn refusal(file: &str) -> String {
        settings(&[], file).err().expect("refused").to_string()
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let error = refusal("data = \"x\"\ndatabse = \"postgres://ann:s3cret@host/db\"\n");
        assert_eq!(error, "line 2 of the configuration file FILE: unknown field `databse`; did you mean `database`?");
        let error = refusal("\ncolour = 1\n");
        assert!(
            error.starts_with("line 2 of the configuration file FILE: unknown field `colour`, expected one of `data`")
        );
        assert!(refusal("config = \"other.toml\"").contains("unknown field `config`"));
    }

    #[test]
    fn an_invalid_value_is_reported_with_its_setting_and_the_accepted_forms() {
        assert_eq!(
            refusal("\nmax-push-size = \"big\""),
            "line 2 of the configuration file FILE: max-push-size: big is not a size; write a number of bytes, or one with \
             a unit such as 64K, 10M, 2G or 1T"
        );
        assert_eq!(
            refusal("backup-every-hours = \"often\""),
            "line 1 of the configuration file FILE: backup-every-hours: often is not a duration; write a number of hours, \
             or one with a unit such as 30s, 5m, 2h or 7d"
        );
        for (entry, reason) in [
            ("client-timeout-seconds = 0", "must be greater than 0"),
            ("max-body-size = -1", "-1 is not a size; "),
            ("max-body-size = 1.5", "1.5 is not a size; "),
            ("max-body-size = true", "true is not a size; "),
            ("log-format = \"xml\"", "expected one of human, json"),
            ("allow-local-network = \"yes\"", "expected one of true, false"),
            ("default-projects-limit = -1", "-1 is not in 0.."),
            ("listen = [\"127.0.0.1:1\"]", "expected a string, a number or a boolean"),
        ] {
            let (key, _) = entry.split_once(" = ").expect("an entry");
            let expected = format!("line 1 of the configuration file FILE: {key}: {reason}");
            let error = refusal(entry);
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn a_syntax_error_is_reported_without_the_line() {
        let error = refusal("listen = \"127.0.0.1:1\"\ndatabase = \"postgres://ann:s3cret@host/db\n");
        assert!(error.starts_with("line ") && error.contains(" of the configuration file FILE: "), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }

    #[test]
    fn an_empty_value_counts_as_not_set() {
        let settings = settings(&["--listen="], "listen = \"[::1]:9\"\ndata = \"\"\ndialect = \"\"\n").expect("read");
        assert_eq!(settings.listen.listen, "[::1]:9");
        assert_eq!((settings.location.data.as_path(), settings.dialect.as_str()), (Path::new("./gable-data"), "spec"));
    }
}
