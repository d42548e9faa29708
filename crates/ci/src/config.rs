//! A CI file, read and found right.

use crate::budget::{Budget, MAX_JOBS, MAX_NAME, MAX_STAGES};
use crate::checks;
use crate::defaults::{self, GLOBAL};
use crate::entries::{ARRAY_OF_STRINGS, entry, known_keys, mapping};
use crate::extends;
use crate::includes::{self, Include};
use crate::invalid::{Invalid, Place};
use crate::jobs::{self, Desk, Job};
use crate::patterns::Patterns;
use crate::references;
use crate::rules::{self, Of, Rule};
use crate::value::{Key, Map, Value};
use crate::variables::{self, Variables};

/// The stage before all others.
pub const FIRST_STAGE: &str = ".pre";
/// The stage after all others.
pub const LAST_STAGE: &str = ".post";

/// A CI file, read and found right.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// All stages in their order, `.pre` and `.post` included.
    pub stages: Vec<String>,
    /// The global variables.
    pub variables: Variables,
    /// Rules for the whole pipeline, if there are any.
    pub workflow: Option<Vec<Rule>>,
    /// The visible jobs, in the order of the file.
    pub jobs: Vec<Job>,
}

impl Config {
    /// Reads a file with everything that it includes, and tells its first error.
    pub fn load(text: &str, files: &dyn Include) -> Result<Self, Invalid> {
        let mut budget = Budget::new();
        let root = includes::load(text, files, &mut budget)?;
        let root = extends::follow(root, &mut budget)?;
        let root = references::follow(root, &mut budget)?;
        let mut patterns = Patterns::default();
        let config = read(&root, &mut patterns, &mut budget);
        match patterns.excess() {
            Some(excess) => Err(Invalid::new(excess)),
            None => config,
        }
    }
}

fn read(root: &Map, patterns: &mut Patterns, budget: &mut Budget) -> Result<Config, Invalid> {
    let defaults = defaults::read(root)?;
    let variables = root.get("variables").map(|value| variables::read(value, Place::top("variables"))).transpose()?;
    let stages = read_stages(root)?;
    let workflow = root.get("workflow").map(|value| read_workflow(value, patterns)).transpose()?.flatten();

    let entries: Vec<(&Key, &Value)> = root.iter().filter(|(key, _)| !is_reserved(key)).collect();
    let visible = entries.iter().filter(|(key, _)| !is_hidden(key)).count();
    let place = Place::top("jobs");
    if visible == 0 {
        return Err(place.invalid("config should contain at least one visible job"));
    }
    if visible > MAX_JOBS {
        return Err(place.invalid(format_args!("config contains {visible} jobs (maximum is {MAX_JOBS})")));
    }
    let mut desk = Desk { defaults: &defaults, patterns, budget };
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
                return Err(place.at(&key.text).invalid("config can't be blank"));
            }
        } else {
            jobs.push(jobs::read(key, value, &mut desk)?);
        }
    }
    checks::check(&jobs, &stages)?;
    Ok(Config { stages, variables: variables.unwrap_or_default(), workflow, jobs })
}

fn is_reserved(key: &Key) -> bool {
    GLOBAL.contains(&key.text.as_str())
        || ["variables", "stages", "types", "default", "workflow"].contains(&key.text.as_str())
}

fn is_hidden(key: &Key) -> bool {
    key.text.starts_with('.')
}

/// Reads the stages, or takes the usual ones; `.pre` and `.post` are always there.
fn read_stages(root: &Map) -> Result<Vec<String>, Invalid> {
    let read = |key: &str| {
        let place = Place::top(key);
        root.get(key)
            .map(|value| value.lines().ok_or_else(|| place.invalid(format_args!("config {ARRAY_OF_STRINGS}"))))
            .transpose()
    };
    let (stages, types) = (read("stages")?, read("types")?);
    let given = stages.or(types).unwrap_or_else(|| ["build", "test", "deploy"].map(str::to_owned).to_vec());
    let place = Place::top("stages");
    if given.len() > MAX_STAGES {
        return Err(place.invalid(format_args!("config contains {} stages (maximum is {MAX_STAGES})", given.len())));
    }
    if given.iter().any(|stage| stage.chars().count() > MAX_NAME) {
        return Err(place.invalid(format_args!("config name is too long (maximum is {MAX_NAME} characters)")));
    }
    let mut ordered = vec![FIRST_STAGE.to_owned()];
    for stage in given {
        if !ordered.contains(&stage) && stage != LAST_STAGE {
            ordered.push(stage);
        }
    }
    ordered.push(LAST_STAGE.to_owned());
    Ok(ordered)
}

/// Reads `workflow`; its name and `auto_cancel` are accepted, but nothing here has a use for them.
fn read_workflow(value: &Value, patterns: &mut Patterns) -> Result<Option<Vec<Rule>>, Invalid> {
    let place = Place::top("workflow");
    let map = mapping(value, place)?;
    known_keys(map, place, &["rules", "name", "auto_cancel"])?;
    entry(map, "name", place, "should be a string", Value::as_text)?;
    map.get("rules").map(|value| rules::read(value, place.at("rules"), Of::Workflow, patterns)).transpose()
}
