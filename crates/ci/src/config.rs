//! A CI file that has been read and validated.

use crate::budget::{Budget, MAX_JOBS, MAX_NAME_LENGTH, MAX_STAGES};
use crate::checks;
use crate::config_error::{ConfigError, KeyPath};
use crate::defaults::{self, GLOBAL_KEYS};
use crate::extends;
use crate::fields::{ARRAY_OF_STRINGS, expect_map, read_entry, reject_unknown_keys};
use crate::includes::{self, LocalFiles};
use crate::jobs::{self, Job, JobReadContext};
use crate::patterns::PatternCache;
use crate::references;
use crate::rules::{self, Rule, RuleScope};
use crate::value::{Key, Map, Value};
use crate::variables::{self, Variables};

/// The stage before all others.
pub const FIRST_STAGE: &str = ".pre";
/// The stage after all others.
pub const LAST_STAGE: &str = ".post";

/// A CI file that has been read and validated.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// All stages in order, `.pre` and `.post` included.
    pub stages: Vec<String>,
    /// The global variables.
    pub variables: Variables,
    /// The `workflow` rules, if there are any.
    pub workflow: Option<Vec<Rule>>,
    /// The visible jobs, in the order of the file.
    pub jobs: Vec<Job>,
}

impl Config {
    /// Reads a file with all its includes; returns its first error.
    pub fn load(text: &str, files: &dyn LocalFiles) -> Result<Self, ConfigError> {
        let mut budget = Budget::new();
        let root = includes::load(text, files, &mut budget)?;
        let root = extends::resolve(root, &mut budget)?;
        let root = references::resolve(root, &mut budget)?;
        let mut patterns = PatternCache::default();
        let config = read(&root, &mut patterns, &mut budget);
        match patterns.limit_error() {
            Some(message) => Err(ConfigError::new(message)),
            None => config,
        }
    }
}

fn read(root: &Map, patterns: &mut PatternCache, budget: &mut Budget) -> Result<Config, ConfigError> {
    let defaults = defaults::read(root)?;
    let variables =
        root.get("variables").map(|value| variables::read(value, KeyPath::root("variables"))).transpose()?;
    let stages = read_stages(root)?;
    let workflow = root.get("workflow").map(|value| read_workflow(value, patterns)).transpose()?.flatten();

    let entries: Vec<(&Key, &Value)> = root.iter().filter(|(key, _)| !is_reserved(key)).collect();
    let visible = entries.iter().filter(|(key, _)| !is_hidden(key)).count();
    let key_path = KeyPath::root("jobs");
    if visible == 0 {
        return Err(key_path.error("config should contain at least one visible job"));
    }
    if visible > MAX_JOBS {
        return Err(key_path.error(format_args!("config contains {visible} jobs (maximum is {MAX_JOBS})")));
    }
    let mut cx = JobReadContext { defaults: &defaults, patterns, budget };
    let mut jobs = Vec::with_capacity(visible);
    for (key, value) in entries {
        if is_hidden(key) {
            let blank = match value {
                Value::Null => true,
                Value::Map(map) => map.is_empty(),
                Value::List(items) => items.is_empty(),
                Value::Text(text) => text.is_empty(),
                _ => false,
            };
            if blank {
                return Err(key_path.child(&key.text).error("config can't be blank"));
            }
        } else {
            jobs.push(jobs::read(key, value, &mut cx)?);
        }
    }
    checks::check(&jobs, &stages)?;
    Ok(Config { stages, variables: variables.unwrap_or_default(), workflow, jobs })
}

fn is_reserved(key: &Key) -> bool {
    GLOBAL_KEYS.contains(&key.text.as_str())
        || ["variables", "stages", "types", "default", "workflow"].contains(&key.text.as_str())
}

fn is_hidden(key: &Key) -> bool {
    key.text.starts_with('.')
}

/// Reads the stages, with GitLab's default; `.pre` and `.post` are always added.
fn read_stages(root: &Map) -> Result<Vec<String>, ConfigError> {
    let read = |key: &str| {
        let key_path = KeyPath::root(key);
        root.get(key)
            .map(|value| {
                value.flattened_texts().ok_or_else(|| key_path.error(format_args!("config {ARRAY_OF_STRINGS}")))
            })
            .transpose()
    };
    let (stages, types) = (read("stages")?, read("types")?);
    let names = stages.or(types).unwrap_or_else(|| ["build", "test", "deploy"].map(str::to_owned).to_vec());
    let key_path = KeyPath::root("stages");
    if names.len() > MAX_STAGES {
        return Err(key_path.error(format_args!("config contains {} stages (maximum is {MAX_STAGES})", names.len())));
    }
    if names.iter().any(|stage| stage.chars().count() > MAX_NAME_LENGTH) {
        return Err(key_path.error(format_args!("config name is too long (maximum is {MAX_NAME_LENGTH} characters)")));
    }
    let mut ordered = vec![FIRST_STAGE.to_owned()];
    for stage in names {
        if !ordered.contains(&stage) && stage != LAST_STAGE {
            ordered.push(stage);
        }
    }
    ordered.push(LAST_STAGE.to_owned());
    Ok(ordered)
}

/// Reads `workflow`; `name` and `auto_cancel` are accepted and ignored.
fn read_workflow(value: &Value, patterns: &mut PatternCache) -> Result<Option<Vec<Rule>>, ConfigError> {
    let key_path = KeyPath::root("workflow");
    let map = expect_map(value, key_path)?;
    reject_unknown_keys(map, key_path, &["rules", "name", "auto_cancel"])?;
    read_entry(map, "name", key_path, "should be a string", Value::as_text)?;
    map.get("rules").map(|value| rules::read(value, key_path.child("rules"), RuleScope::Workflow, patterns)).transpose()
}
