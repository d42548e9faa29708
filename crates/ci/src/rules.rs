//! `rules`: the first one that fits decides whether and how a job is made.

use serde::{Deserialize, Serialize};

use crate::entries::{BOOLEAN, attribute, known_keys, mapping, text_or_texts};
use crate::expression::Expression;
use crate::invalid::{Invalid, Place};
use crate::patterns::Patterns;
use crate::value::{Map, Value, flatten};
use crate::variables::{self, Variables};

/// When a job starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum When {
    /// When everything before it went well.
    #[default]
    OnSuccess,
    /// When something before it failed.
    OnFailure,
    /// When everything before it has ended.
    Always,
    /// When somebody says so.
    Manual,
}

impl When {
    /// The word of files and interfaces.
    pub fn word(self) -> &'static str {
        match self {
            Self::OnSuccess => "on_success",
            Self::OnFailure => "on_failure",
            Self::Always => "always",
            Self::Manual => "manual",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::OnSuccess, Self::OnFailure, Self::Always, Self::Manual].into_iter().find(|when| when.word() == word)
    }
}

/// What a rule says about `when`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The job is made.
    When(When),
    /// The job, or the pipeline, is not made.
    Never,
}

/// One rule: everything that it names must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// An expression.
    pub condition: Option<Expression>,
    /// Paths, one of which must have changed.
    pub changes: Option<Vec<String>>,
    /// Paths, one of which must be there.
    pub exists: Option<Vec<String>>,
    /// What follows; nothing said means the job's own `when`.
    pub verdict: Option<Verdict>,
    /// Whether the job may fail, if the rule says so.
    pub allow_failure: Option<bool>,
    /// Variables that come with the rule.
    pub variables: Variables,
}

/// Where rules stand: those of `workflow` know fewer words.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    Job,
    Workflow,
}

/// Reads `rules`; lists among them are opened, as references make them.
pub(crate) fn read(value: &Value, place: Place<'_>, of: Of, patterns: &mut Patterns) -> Result<Vec<Rule>, Invalid> {
    let refuse = || place.invalid("config should be an array of hashes");
    let items = flatten(value.as_list().ok_or_else(refuse)?).ok_or_else(refuse)?;
    items
        .into_iter()
        .map(|item| {
            let place = place.at("rule");
            read_rule(mapping(item, place)?, place, of, patterns)
        })
        .collect()
}

fn read_rule(map: &Map, place: Place<'_>, of: Of, patterns: &mut Patterns) -> Result<Rule, Invalid> {
    let known: &[&str] = match of {
        Of::Job => &["if", "changes", "exists", "when", "allow_failure", "variables"],
        Of::Workflow => &["if", "changes", "exists", "when", "variables"],
    };
    known_keys(map, place, known)?;
    let wanted = match of {
        Of::Job => "should be on_success, on_failure, always, manual or never",
        Of::Workflow => "should be always or never",
    };
    let rule = Rule {
        condition: attribute(map, "if", place, "invalid expression syntax", |value| {
            Expression::parse(value.as_text()?, patterns)
        })?,
        changes: attribute(map, "changes", place, "should be an array of strings", |value| {
            read_paths(value, "compare_to")
        })?,
        exists: attribute(map, "exists", place, "should be an array of strings", |value| read_paths(value, ""))?,
        verdict: attribute(map, "when", place, wanted, |value| read_verdict(value, of))?,
        allow_failure: attribute(map, "allow_failure", place, BOOLEAN, Value::as_bool)?,
        variables: map
            .get("variables")
            .map(|value| variables::read(value, place.at("variables")))
            .transpose()?
            .unwrap_or_default(),
    };
    for (key, paths) in [("changes", &rule.changes), ("exists", &rule.exists)] {
        if paths.as_ref().is_some_and(|paths| paths.len() > MAX_PATHS) {
            return Err(place.invalid(format_args!("{key} has too many entries (maximum {MAX_PATHS})")));
        }
    }
    Ok(rule)
}

/// Reads paths: a list, or a mapping with `paths` and one more key. What to compare with is left to the caller, who
/// hands in what changed.
fn read_paths(value: &Value, also: &str) -> Option<Vec<String>> {
    let paths = match value {
        Value::Map(map) => {
            let known = map.iter().all(|(key, _)| key.text == "paths" || (!also.is_empty() && key.text == also));
            map.get("paths").filter(|_| known).and_then(Value::lines)?
        }
        Value::List(_) => value.lines()?,
        other => text_or_texts(other)?,
    };
    Some(paths)
}

/// How many paths one rule may name.
const MAX_PATHS: usize = 50;

fn read_verdict(value: &Value, of: Of) -> Option<Verdict> {
    match (value.as_text()?, of) {
        ("never", _) => Some(Verdict::Never),
        ("always", Of::Workflow) => Some(Verdict::When(When::Always)),
        (_, Of::Workflow) => None,
        (word, Of::Job) => When::parse(word).map(Verdict::When),
    }
}
