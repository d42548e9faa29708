//! The `rules` keyword: the first matching rule decides whether and how a job is added.

use serde::{Deserialize, Serialize};

use crate::config_error::{ConfigError, KeyPath};
use crate::expression::Expression;
use crate::fields::{BOOLEAN, expect_map, read_attribute, reject_unknown_keys, text_or_texts};
use crate::patterns::PatternCache;
use crate::value::{Map, Value, flatten};
use crate::variables::{self, Variables};

/// When a job starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum When {
    /// When everything before it succeeded.
    #[default]
    OnSuccess,
    /// When something before it failed.
    OnFailure,
    /// When everything before it has ended.
    Always,
    /// When a user starts it.
    Manual,
}

impl When {
    /// Returns the keyword used in CI files and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OnSuccess => "on_success",
            Self::OnFailure => "on_failure",
            Self::Always => "always",
            Self::Manual => "manual",
        }
    }

    /// Parses the keyword.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::OnSuccess, Self::OnFailure, Self::Always, Self::Manual].into_iter().find(|when| when.as_str() == word)
    }
}

/// The `when` of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleOutcome {
    /// The job is added.
    When(When),
    /// The job, or the pipeline, is not created.
    Never,
}

/// One rule; all its conditions must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// The expression of `if`.
    pub condition: Option<Expression>,
    /// Paths, one of which must have changed.
    pub changes: Option<Vec<String>>,
    /// Paths, one of which must exist.
    pub exists: Option<Vec<String>>,
    /// The `when` of the rule; `None` means the job's own `when`.
    pub outcome: Option<RuleOutcome>,
    /// Overrides whether the job may fail.
    pub allow_failure: Option<bool>,
    /// Variables that the rule adds.
    pub variables: Variables,
}

/// Where rules are used; those of `workflow` allow fewer keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleScope {
    Job,
    Workflow,
}

/// Reads `rules`; nested lists, which references produce, are flattened.
pub(crate) fn read(
    value: &Value,
    key_path: KeyPath<'_>,
    scope: RuleScope,
    patterns: &mut PatternCache,
) -> Result<Vec<Rule>, ConfigError> {
    let error = || key_path.error("config should be an array of hashes");
    let items = flatten(value.as_list().ok_or_else(error)?).ok_or_else(error)?;
    items
        .into_iter()
        .map(|item| {
            let key_path = key_path.child("rule");
            read_rule(expect_map(item, key_path)?, key_path, scope, patterns)
        })
        .collect()
}

fn read_rule(
    map: &Map,
    key_path: KeyPath<'_>,
    scope: RuleScope,
    patterns: &mut PatternCache,
) -> Result<Rule, ConfigError> {
    let known: &[&str] = match scope {
        RuleScope::Job => &["if", "changes", "exists", "when", "allow_failure", "variables"],
        RuleScope::Workflow => &["if", "changes", "exists", "when", "variables"],
    };
    reject_unknown_keys(map, key_path, known)?;
    let expected_when = match scope {
        RuleScope::Job => "should be on_success, on_failure, always, manual or never",
        RuleScope::Workflow => "should be always or never",
    };
    let rule = Rule {
        condition: read_attribute(map, "if", key_path, "invalid expression syntax", |value| {
            Expression::parse(value.as_text()?, patterns)
        })?,
        changes: read_attribute(map, "changes", key_path, "should be an array of strings", |value| {
            read_paths(value, "compare_to")
        })?,
        exists: read_attribute(map, "exists", key_path, "should be an array of strings", |value| {
            read_paths(value, "")
        })?,
        outcome: read_attribute(map, "when", key_path, expected_when, |value| read_outcome(value, scope))?,
        allow_failure: read_attribute(map, "allow_failure", key_path, BOOLEAN, Value::as_bool)?,
        variables: map
            .get("variables")
            .map(|value| variables::read(value, key_path.child("variables")))
            .transpose()?
            .unwrap_or_default(),
    };
    for (key, paths) in [("changes", &rule.changes), ("exists", &rule.exists)] {
        if paths.as_ref().is_some_and(|paths| paths.len() > MAX_PATHS) {
            return Err(key_path.error(format_args!("{key} has too many entries (maximum {MAX_PATHS})")));
        }
    }
    Ok(rule)
}

/// Reads paths: a list, or a mapping with `paths` and one more key. `compare_to` is ignored: the caller passes the
/// changes.
fn read_paths(value: &Value, extra_key: &str) -> Option<Vec<String>> {
    let paths = match value {
        Value::Map(map) => {
            let known =
                map.iter().all(|(key, _)| key.text == "paths" || (!extra_key.is_empty() && key.text == extra_key));
            map.get("paths").filter(|_| known).and_then(Value::flattened_texts)?
        }
        Value::List(_) => value.flattened_texts()?,
        other => text_or_texts(other)?,
    };
    Some(paths)
}

/// The maximum number of paths in one rule.
const MAX_PATHS: usize = 50;

fn read_outcome(value: &Value, scope: RuleScope) -> Option<RuleOutcome> {
    match (value.as_text()?, scope) {
        ("never", _) => Some(RuleOutcome::Never),
        ("always", RuleScope::Workflow) => Some(RuleOutcome::When(When::Always)),
        (_, RuleScope::Workflow) => None,
        (word, RuleScope::Job) => When::parse(word).map(RuleOutcome::When),
    }
}
