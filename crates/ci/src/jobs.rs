//! A job as defined in the file.

use serde::{Deserialize, Serialize};

use crate::artifacts::{self, Artifacts};
use crate::budget::{Budget, MAX_NAME_LENGTH};
use crate::caches::{self, Cache};
use crate::config_error::{ConfigError, KeyPath};
use crate::defaults::{Defaults, Inherited};
use crate::durations::parse_seconds;
use crate::environments::{self, Environment};
use crate::fields::{ARRAY_OF_STRINGS, BOOLEAN, STRING, owned_text, read_attribute, read_entry, reject_unknown_keys};
use crate::images::{self, Image, Service};
use crate::needs::{self, Need};
use crate::only_except::{self, JobPolicy};
use crate::parallel::{self, Parallel};
use crate::patterns::{self, PatternCache};
use crate::retries::{self, Retry, read_exit_codes};
use crate::rules::{self, Rule, RuleScope, When};
use crate::value::{Key, Map, Value};
use crate::variables::{self, Variables};

/// A visible job of a file, with everything that it inherits.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The name.
    pub name: String,
    /// The name of the stage.
    pub stage: String,
    /// The commands to run: `before_script`, then `script`.
    pub script: Vec<String>,
    /// The commands to run afterwards, whatever the result.
    pub after_script: Vec<String>,
    /// The image that the job runs in.
    pub image: Option<Image>,
    /// Services that run beside the job.
    pub services: Vec<Service>,
    /// The job's own variables, which override the global ones.
    pub variables: Variables,
    /// The tags that a runner must have.
    pub tags: Vec<String>,
    /// When the job starts.
    pub when: When,
    /// Whether the job may fail without failing the pipeline.
    pub allow_failure: AllowFailure,
    /// The pipelines that include the job.
    pub selection: JobSelection,
    /// The files that the job uploads.
    pub artifacts: Option<Artifacts>,
    /// The caches of the job.
    pub cache: Vec<Cache>,
    /// The jobs whose artifacts are downloaded; `None` means all jobs of earlier stages.
    pub dependencies: Option<Vec<String>>,
    /// The jobs to wait for; `None` means all jobs of earlier stages.
    pub needs: Option<Vec<Need>>,
    /// Where the job deploys to.
    pub environment: Option<Environment>,
    /// The regular expression, between slashes, that finds the coverage in the trace.
    pub coverage: Option<String>,
    /// How often a failed job is retried.
    pub retry: Retry,
    /// The timeout in seconds.
    pub timeout: Option<u64>,
    /// Whether a newer pipeline may cancel the job.
    pub interruptible: bool,
    /// How many jobs are created from this one.
    pub parallel: Parallel,
    /// The number of bytes of text in the job.
    pub(crate) text_bytes: usize,
}

/// Whether a job may fail without failing the pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AllowFailure {
    /// It may not.
    #[default]
    No,
    /// It may.
    Yes,
    /// It may if the script exits with one of these codes.
    ExitCodes(Vec<i64>),
}

impl AllowFailure {
    /// Returns whether a failure with this exit code is allowed.
    pub fn tolerates(&self, exit_code: Option<i64>) -> bool {
        match self {
            Self::No => false,
            Self::Yes => true,
            Self::ExitCodes(codes) => exit_code.is_some_and(|code| codes.contains(&code)),
        }
    }
}

/// The pipelines that include a job.
#[derive(Clone, Debug, PartialEq)]
pub enum JobSelection {
    /// Those matching `only` but not `except`.
    Policies {
        /// `None` matches all pipelines.
        only: Option<JobPolicy>,
        /// `None` matches no pipeline.
        except: Option<JobPolicy>,
    },
    /// Those for which the first matching rule includes the job.
    Rules(Vec<Rule>),
}

const JOB_KEYS: [&str; 25] = [
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
    // Resolved before jobs are read; only an empty one is left.
    "extends",
];

/// The shared state of reading the jobs of a file.
pub(crate) struct JobReadContext<'a> {
    pub(crate) defaults: &'a Defaults,
    pub(crate) patterns: &'a mut PatternCache,
    pub(crate) budget: &'a mut Budget,
}

/// Reads a job. Its own attributes are checked before its nested entries, as in GitLab.
pub(crate) fn read(key: &Key, value: &Value, cx: &mut JobReadContext<'_>) -> Result<Job, ConfigError> {
    let jobs = KeyPath::root("jobs");
    let key_path = jobs.child(&key.text);
    let map = match value {
        Value::Map(map) => map,
        Value::Null => return Err(key_path.error("config can't be blank")),
        _ => return Err(key_path.error("config should be a hash")),
    };
    if map.is_empty() {
        return Err(key_path.error("config can't be blank"));
    }
    reject_unknown_keys(map, key_path, &JOB_KEYS)?;
    if map.get("script").is_none_or(is_blank) {
        return Err(key_path.error("script can't be blank"));
    }
    if !key.is_text {
        return Err(key_path.error("name should be a symbol"));
    }
    if key.text.contains(char::is_control) {
        return Err(key_path.error("name should not contain line breaks or other control characters"));
    }
    let attributes = JobAttributes::read(map, key_path)?;
    let defaults = cx.defaults;
    let mut inherit = Inheritance { budget: &mut *cx.budget, bytes: 0 };

    let mut script = inherit.own_or_inherited(map, "before_script", &defaults.before_script, |value| {
        value
            .flattened_texts()
            .ok_or_else(|| key_path.child("before_script").error("config should be an array of strings"))
    })?;
    script.get_or_insert_default().extend(
        read_entry(map, "script", key_path, "should be a string or an array of strings", read_script)?
            .unwrap_or_default(),
    );
    let stage = read_entry(map, "stage", key_path, STRING, owned_text)?;
    let old_stage = read_entry(map, "type", key_path, STRING, owned_text)?;
    let after_script = inherit.own_or_inherited(map, "after_script", &defaults.after_script, |value| {
        value
            .flattened_texts()
            .ok_or_else(|| key_path.child("after_script").error("config should be an array of strings"))
    })?;
    let cache = inherit
        .own_or_inherited(map, "cache", &defaults.cache, |value| caches::read(value, key_path.child("cache")))?;
    let image = inherit
        .own_or_inherited(map, "image", &defaults.image, |value| images::read_image(value, key_path.child("image")))?;
    let services = inherit.own_or_inherited(map, "services", &defaults.services, |value| {
        images::read_services(value, key_path.child("services"))
    })?;
    let selection = read_selection(map, key_path, cx.patterns)?;
    let variables =
        map.get("variables").map(|value| variables::read(value, key_path.child("variables"))).transpose()?;
    let environment =
        map.get("environment").map(|value| environments::read(value, key_path.child("environment"))).transpose()?;
    let artifacts = inherit.own_or_inherited(map, "artifacts", &defaults.artifacts, |value| {
        artifacts::read(value, key_path.child("artifacts"))
    })?;
    let coverage = read_entry(map, "coverage", key_path, "must be a regular expression", |value| {
        let text = value.as_text().filter(|text| patterns::split(text).is_some())?;
        cx.patterns.compile(text).map(|_| text.to_owned())
    })?;
    let retry = inherit
        .own_or_inherited(map, "retry", &defaults.retry, |value| retries::read(value, key_path.child("retry")))?;
    let needs = map.get("needs").map(|value| needs::read(value, key_path.child("needs"))).transpose()?;
    let parallel = map.get("parallel").map(|value| parallel::read(value, key_path.child("parallel"))).transpose()?;
    let interruptible = inherit.own_or_inherited(map, "interruptible", &defaults.interruptible, |value| {
        value.as_bool().ok_or_else(|| key_path.child("interruptible").error("config should be a boolean value"))
    })?;
    let timeout = inherit.own_or_inherited(map, "timeout", &defaults.timeout, |value| read_timeout(value, key_path))?;
    let tags = inherit.own_or_inherited(map, "tags", &defaults.tags, |value| {
        value.flattened_texts().ok_or_else(|| key_path.error("tags should be an array of strings"))
    })?;
    let parallel = parallel.unwrap_or_default();
    check_name(&key.text, &parallel, key_path)?;

    let text_bytes = map.size().bytes + inherit.bytes;
    Ok(Job {
        name: key.text.clone(),
        stage: stage.or(old_stage).unwrap_or_else(|| "test".to_owned()),
        script: script.unwrap_or_default(),
        after_script: after_script.unwrap_or_default(),
        image,
        services: services.unwrap_or_default(),
        variables: variables.unwrap_or_default(),
        tags: tags.unwrap_or_default(),
        when: attributes.when,
        allow_failure: attributes.allow_failure,
        selection,
        artifacts,
        cache: cache.unwrap_or_default(),
        dependencies: attributes.dependencies,
        needs,
        environment,
        coverage,
        retry: retry.unwrap_or_default(),
        timeout,
        interruptible: interruptible.unwrap_or_default(),
        parallel,
        text_bytes,
    })
}

/// The attributes that are checked before nested entries.
struct JobAttributes {
    allow_failure: AllowFailure,
    when: When,
    dependencies: Option<Vec<String>>,
}

impl JobAttributes {
    fn read(map: &Map, key_path: KeyPath<'_>) -> Result<Self, ConfigError> {
        read_attribute(map, "tags", key_path, ARRAY_OF_STRINGS, Value::flattened_texts)?;
        let when = "should be on_success, on_failure, always or manual";
        Ok(Self {
            allow_failure: read_attribute(map, "allow_failure", key_path, BOOLEAN, read_allow_failure)?
                .unwrap_or_default(),
            when: read_attribute(map, "when", key_path, when, |value| When::parse(value.as_text()?))?
                .unwrap_or_default(),
            dependencies: read_attribute(map, "dependencies", key_path, ARRAY_OF_STRINGS, Value::texts)?,
        })
    }
}

/// Looks up a job's own or inherited values; copies are charged to the budget.
struct Inheritance<'a> {
    budget: &'a mut Budget,
    bytes: usize,
}

impl Inheritance<'_> {
    fn own_or_inherited<T: Clone>(
        &mut self,
        map: &Map,
        key: &str,
        inherited: &Inherited<T>,
        read: impl FnOnce(&Value) -> Result<T, ConfigError>,
    ) -> Result<Option<T>, ConfigError> {
        if let Some(value) = map.get(key) {
            return read(value).map(Some);
        }
        self.budget.charge(inherited.size)?;
        self.bytes += inherited.size.bytes;
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
    value.as_text().map_or_else(|| value.flattened_texts(), |text| Some(vec![text.to_owned()]))
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

/// Reads `timeout`, which must be positive and finite.
pub(crate) fn read_timeout(value: &Value, key_path: KeyPath<'_>) -> Result<u64, ConfigError> {
    let seconds = match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        other => other.as_text().and_then(parse_seconds),
    };
    seconds
        .filter(|seconds| (1..=MAX_TIMEOUT).contains(seconds))
        .ok_or_else(|| key_path.error("timeout should be a duration"))
}

/// The maximum timeout of a job: thirty days.
const MAX_TIMEOUT: u64 = 30 * 24 * 60 * 60;

fn read_selection(map: &Map, key_path: KeyPath<'_>, patterns: &mut PatternCache) -> Result<JobSelection, ConfigError> {
    let mut read =
        |key: &str| map.get(key).map(|value| only_except::read(value, key_path.child(key), patterns)).transpose();
    let (only, except) = (read("only")?, read("except")?);
    let Some(value) = map.get("rules") else { return Ok(JobSelection::Policies { only, except }) };
    let conflicting: Vec<&str> = ["only", "except"].into_iter().filter(|key| map.get(key).is_some()).collect();
    if !conflicting.is_empty() {
        return Err(key_path.error(format_args!("config key may not be used with `rules`: {}", conflicting.join(", "))));
    }
    rules::read(value, key_path.child("rules"), RuleScope::Job, patterns).map(JobSelection::Rules)
}

/// Rejects a name that is too long for the database, including the suffix that `parallel` adds.
fn check_name(name: &str, parallel: &Parallel, key_path: KeyPath<'_>) -> Result<(), ConfigError> {
    if name.is_empty() {
        return Err(key_path.error("name can't be blank"));
    }
    let suffix_length = match parallel {
        Parallel::One => 0,
        Parallel::Count(_) => " 200/200".len(),
        Parallel::Matrix(combinations) => combinations
            .iter()
            .map(|combination| ": []".len() + combination.label.chars().count())
            .max()
            .unwrap_or_default(),
    };
    if name.chars().count() + suffix_length > MAX_NAME_LENGTH {
        return Err(key_path.error(format_args!("name is too long (maximum is {MAX_NAME_LENGTH} characters)")));
    }
    Ok(())
}
