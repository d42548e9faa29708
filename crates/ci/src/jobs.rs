//! A job as the file describes it.

use serde::{Deserialize, Serialize};

use crate::artifacts::{self, Artifacts};
use crate::budget::{Budget, MAX_NAME};
use crate::caches::{self, Cache};
use crate::defaults::{Defaults, Inherited};
use crate::durations::read_seconds;
use crate::entries::{ARRAY_OF_STRINGS, BOOLEAN, STRING, attribute, entry, known_keys, owned_text};
use crate::environments::{self, Environment};
use crate::images::{self, Image, Service};
use crate::invalid::{Invalid, Place};
use crate::needs::{self, Need};
use crate::parallel::{self, Parallel};
use crate::patterns::{self, Patterns};
use crate::refs::{self, Policy};
use crate::retries::{self, Retry, read_exit_codes};
use crate::rules::{self, Of, Rule, When};
use crate::value::{Key, Map, Value};
use crate::variables::{self, Variables};

/// A visible job of a file, with everything that it inherits.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// The name of its stage.
    pub stage: String,
    /// What runs: the lines before the script, then the script.
    pub script: Vec<String>,
    /// What runs afterwards, whatever happened.
    pub after_script: Vec<String>,
    /// The image that it runs in.
    pub image: Option<Image>,
    /// Services beside it.
    pub services: Vec<Service>,
    /// Its own variables, over the global ones.
    pub variables: Variables,
    /// The tags that a runner must have.
    pub tags: Vec<String>,
    /// When it starts.
    pub when: When,
    /// Whether its failure matters.
    pub allow_failure: AllowFailure,
    /// For which pipelines it is made.
    pub selection: Selection,
    /// What it leaves behind.
    pub artifacts: Option<Artifacts>,
    /// What the runner keeps for it.
    pub cache: Vec<Cache>,
    /// Whose artifacts it gets; nothing said means those of all earlier stages.
    pub dependencies: Option<Vec<String>>,
    /// What it waits for; nothing said means all earlier stages.
    pub needs: Option<Vec<Need>>,
    /// Where it deploys to.
    pub environment: Option<Environment>,
    /// The regular expression, between slashes, that finds the coverage in its trace.
    pub coverage: Option<String>,
    /// How often it is tried again.
    pub retry: Retry,
    /// After how many seconds it is stopped.
    pub timeout: Option<u64>,
    /// Whether a newer pipeline may cancel it.
    pub interruptible: bool,
    /// Into how many jobs it is split.
    pub parallel: Parallel,
    /// How many bytes of text it carries.
    pub(crate) weight: usize,
}

/// Whether the failure of a job matters to the pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AllowFailure {
    /// It does.
    #[default]
    No,
    /// It does not.
    Yes,
    /// It does not if the script ended with one of these codes.
    ExitCodes(Vec<i64>),
}

impl AllowFailure {
    /// Tells whether a failure with this exit code is allowed.
    pub fn tolerates(&self, exit_code: Option<i64>) -> bool {
        match self {
            Self::No => false,
            Self::Yes => true,
            Self::ExitCodes(codes) => exit_code.is_some_and(|code| codes.contains(&code)),
        }
    }
}

/// For which pipelines a job is made.
#[derive(Clone, Debug, PartialEq)]
pub enum Selection {
    /// Those that `only` names and `except` does not.
    Policies {
        /// Which ones; nothing said means all.
        only: Option<Policy>,
        /// Which ones not.
        except: Option<Policy>,
    },
    /// Those for which the first rule that fits says so.
    Rules(Vec<Rule>),
}

const KEYS: [&str; 25] = [
    "script",
    "stage",
    "type",
    "image",
    "services",
    "before_script",
    "after_script",
    "variables",
    "cache",
    "only",
    "except",
    "rules",
    "tags",
    "allow_failure",
    "when",
    "dependencies",
    "needs",
    "artifacts",
    "environment",
    "coverage",
    "retry",
    "timeout",
    "parallel",
    "interruptible",
    // It has been followed before a job is read; only an empty one is left.
    "extends",
];

/// What reading a job needs besides the job.
pub(crate) struct Desk<'a> {
    pub(crate) defaults: &'a Defaults,
    pub(crate) patterns: &'a mut Patterns,
    pub(crate) budget: &'a mut Budget,
}

/// Reads a job. First come the checks of the job itself, then those of its entries, as in the original.
pub(crate) fn read(key: &Key, value: &Value, desk: &mut Desk<'_>) -> Result<Job, Invalid> {
    let jobs = Place::top("jobs");
    let place = jobs.at(&key.text);
    let map = match value {
        Value::Map(map) => map,
        Value::Null => return Err(place.invalid("config can't be blank")),
        _ => return Err(place.invalid("config should be a hash")),
    };
    if map.is_empty() {
        return Err(place.invalid("config can't be blank"));
    }
    known_keys(map, place, &KEYS)?;
    if map.get("script").is_none_or(is_blank) {
        return Err(place.invalid("script can't be blank"));
    }
    if !key.is_text {
        return Err(place.invalid("name should be a symbol"));
    }
    if key.text.contains(char::is_control) {
        return Err(place.invalid("name should not contain line breaks or other control characters"));
    }
    let own = Own::read(map, place)?;
    let defaults = desk.defaults;
    let mut inherit = Inheriting { budget: &mut *desk.budget, bytes: 0 };

    let mut script = inherit.take(map, "before_script", &defaults.before_script, |value| {
        value.lines().ok_or_else(|| place.at("before_script").invalid("config should be an array of strings"))
    })?;
    script.get_or_insert_default().extend(
        entry(map, "script", place, "should be a string or an array of strings", read_script)?.unwrap_or_default(),
    );
    let stage = entry(map, "stage", place, STRING, owned_text)?;
    let old_stage = entry(map, "type", place, STRING, owned_text)?;
    let after_script = inherit.take(map, "after_script", &defaults.after_script, |value| {
        value.lines().ok_or_else(|| place.at("after_script").invalid("config should be an array of strings"))
    })?;
    let cache = inherit.take(map, "cache", &defaults.cache, |value| caches::read(value, place.at("cache")))?;
    let image = inherit.take(map, "image", &defaults.image, |value| images::read_image(value, place.at("image")))?;
    let services = inherit
        .take(map, "services", &defaults.services, |value| images::read_services(value, place.at("services")))?;
    let selection = read_selection(map, place, desk.patterns)?;
    let variables = map.get("variables").map(|value| variables::read(value, place.at("variables"))).transpose()?;
    let environment =
        map.get("environment").map(|value| environments::read(value, place.at("environment"))).transpose()?;
    let artifacts =
        inherit.take(map, "artifacts", &defaults.artifacts, |value| artifacts::read(value, place.at("artifacts")))?;
    let coverage = entry(map, "coverage", place, "must be a regular expression", |value| {
        let text = value.as_text().filter(|text| patterns::split(text).is_some())?;
        desk.patterns.compile(text).map(|_| text.to_owned())
    })?;
    let retry = inherit.take(map, "retry", &defaults.retry, |value| retries::read(value, place.at("retry")))?;
    let needs = map.get("needs").map(|value| needs::read(value, place.at("needs"))).transpose()?;
    let parallel = map.get("parallel").map(|value| parallel::read(value, place.at("parallel"))).transpose()?;
    let interruptible = inherit.take(map, "interruptible", &defaults.interruptible, |value| {
        value.as_bool().ok_or_else(|| place.at("interruptible").invalid("config should be a boolean value"))
    })?;
    let timeout = inherit.take(map, "timeout", &defaults.timeout, |value| read_timeout(value, place))?;
    let tags = inherit.take(map, "tags", &defaults.tags, |value| {
        value.lines().ok_or_else(|| place.invalid("tags should be an array of strings"))
    })?;
    let parallel = parallel.unwrap_or_default();
    check_name(&key.text, &parallel, place)?;

    let weight = map.weight().bytes + inherit.bytes;
    Ok(Job {
        name: key.text.clone(),
        stage: stage.or(old_stage).unwrap_or_else(|| "test".to_owned()),
        script: script.unwrap_or_default(),
        after_script: after_script.unwrap_or_default(),
        image,
        services: services.unwrap_or_default(),
        variables: variables.unwrap_or_default(),
        tags: tags.unwrap_or_default(),
        when: own.when,
        allow_failure: own.allow_failure,
        selection,
        artifacts,
        cache: cache.unwrap_or_default(),
        dependencies: own.dependencies,
        needs,
        environment,
        coverage,
        retry: retry.unwrap_or_default(),
        timeout,
        interruptible: interruptible.unwrap_or_default(),
        parallel,
        weight,
    })
}

/// The attributes that the job checks itself.
struct Own {
    allow_failure: AllowFailure,
    when: When,
    dependencies: Option<Vec<String>>,
}

impl Own {
    fn read(map: &Map, place: Place<'_>) -> Result<Self, Invalid> {
        attribute(map, "tags", place, ARRAY_OF_STRINGS, Value::lines)?;
        let when = "should be on_success, on_failure, always or manual";
        Ok(Self {
            allow_failure: attribute(map, "allow_failure", place, BOOLEAN, read_allow_failure)?.unwrap_or_default(),
            when: attribute(map, "when", place, when, |value| When::parse(value.as_text()?))?.unwrap_or_default(),
            dependencies: attribute(map, "dependencies", place, ARRAY_OF_STRINGS, Value::texts)?,
        })
    }
}

/// Takes what a job says itself or else what it inherits; copies are paid for.
struct Inheriting<'a> {
    budget: &'a mut Budget,
    bytes: usize,
}

impl Inheriting<'_> {
    fn take<T: Clone>(
        &mut self,
        map: &Map,
        key: &str,
        inherited: &Inherited<T>,
        read: impl FnOnce(&Value) -> Result<T, Invalid>,
    ) -> Result<Option<T>, Invalid> {
        if let Some(value) = map.get(key) {
            return read(value).map(Some);
        }
        self.budget.charge(inherited.weight)?;
        self.bytes += inherited.weight.bytes;
        Ok(inherited.value.clone())
    }
}

fn is_blank(value: &Value) -> bool {
    match value {
        Value::Text(text) => text.trim().is_empty(),
        Value::List(items) => items.is_empty(),
        Value::Map(map) => map.is_empty(),
        Value::Bool(yes) => !yes,
        _ => false,
    }
}

fn read_script(value: &Value) -> Option<Vec<String>> {
    value.as_text().map_or_else(|| value.lines(), |text| Some(vec![text.to_owned()]))
}

fn read_allow_failure(value: &Value) -> Option<AllowFailure> {
    match value {
        Value::Bool(true) => Some(AllowFailure::Yes),
        Value::Bool(false) => Some(AllowFailure::No),
        Value::Map(map) if map.len() == 1 => {
            map.get("exit_codes").and_then(read_exit_codes).map(AllowFailure::ExitCodes)
        }
        _ => None,
    }
}

/// Reads `timeout`, which is never zero and never endless.
pub(crate) fn read_timeout(value: &Value, place: Place<'_>) -> Result<u64, Invalid> {
    let seconds = match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        other => other.as_text().and_then(read_seconds),
    };
    seconds
        .filter(|seconds| (1..=MAX_TIMEOUT).contains(seconds))
        .ok_or_else(|| place.invalid("timeout should be a duration"))
}

/// The longest time that a job may ask for: thirty days.
const MAX_TIMEOUT: u64 = 30 * 24 * 60 * 60;

fn read_selection(map: &Map, place: Place<'_>, patterns: &mut Patterns) -> Result<Selection, Invalid> {
    let mut read = |key: &str| map.get(key).map(|value| refs::read(value, place.at(key), patterns)).transpose();
    let (only, except) = (read("only")?, read("except")?);
    let Some(value) = map.get("rules") else { return Ok(Selection::Policies { only, except }) };
    let beside: Vec<&str> = ["only", "except"].into_iter().filter(|key| map.get(key).is_some()).collect();
    if !beside.is_empty() {
        return Err(place.invalid(format_args!("config key may not be used with `rules`: {}", beside.join(", "))));
    }
    rules::read(value, place.at("rules"), Of::Job, patterns).map(Selection::Rules)
}

/// Refuses a name that does not fit into the database, with what `parallel` adds to it.
fn check_name(name: &str, parallel: &Parallel, place: Place<'_>) -> Result<(), Invalid> {
    if name.is_empty() {
        return Err(place.invalid("name can't be blank"));
    }
    let longest = match parallel {
        Parallel::One => 0,
        Parallel::Count(_) => " 200/200".len(),
        Parallel::Matrix(combinations) => combinations
            .iter()
            .map(|combination| ": []".len() + combination.label.chars().count())
            .max()
            .unwrap_or_default(),
    };
    if name.chars().count() + longest > MAX_NAME {
        return Err(place.invalid(format_args!("name is too long (maximum is {MAX_NAME} characters)")));
    }
    Ok(())
}
