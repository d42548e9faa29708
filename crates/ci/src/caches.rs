//! What a runner keeps between jobs.

use serde::{Deserialize, Serialize};

use crate::entries::{ARRAY_OF_STRINGS, BOOLEAN, attribute, entry, known_keys, mapping, owned_text};
use crate::invalid::{Invalid, Place};
use crate::value::Value;

/// How many caches a job may have.
const MAX_CACHES: usize = 4;

/// One cache of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// Under which name it is kept.
    pub key: Option<CacheKey>,
    /// Keys to try when there is nothing under the own one.
    pub fallback_keys: Vec<String>,
    /// Whether files that git does not track are kept.
    pub untracked: bool,
    /// What is kept.
    pub paths: Vec<String>,
    /// Whether it is fetched, stored or both.
    pub policy: CachePolicy,
    /// After which outcome it is stored.
    pub when: Outcome,
}

/// The name of a cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheKey {
    /// A text, variables not yet expanded.
    Text(String),
    /// A name made of the last changes of files.
    Files {
        /// The files.
        files: Vec<String>,
        /// What stands before the name.
        prefix: Option<String>,
    },
}

/// What happens to a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CachePolicy {
    /// Fetched before and stored after the job.
    #[default]
    PullPush,
    /// Only fetched.
    Pull,
    /// Only stored.
    Push,
}

impl CachePolicy {
    /// The word that runners know.
    pub fn word(self) -> &'static str {
        match self {
            Self::PullPush => "pull-push",
            Self::Pull => "pull",
            Self::Push => "push",
        }
    }
}

/// The outcome of a job after which something is uploaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It succeeded.
    #[default]
    OnSuccess,
    /// It failed.
    OnFailure,
    /// Whatever happened.
    Always,
}

impl Outcome {
    /// The word of files and runners.
    pub fn word(self) -> &'static str {
        match self {
            Self::OnSuccess => "on_success",
            Self::OnFailure => "on_failure",
            Self::Always => "always",
        }
    }

    pub(crate) fn read(value: &Value) -> Option<Self> {
        match value.as_text()? {
            "on_success" => Some(Self::OnSuccess),
            "on_failure" => Some(Self::OnFailure),
            "always" => Some(Self::Always),
            _ => None,
        }
    }
}

/// Reads `cache`: a mapping or a few of them.
pub(crate) fn read(value: &Value, place: Place<'_>) -> Result<Vec<Cache>, Invalid> {
    match value {
        Value::List(items) if items.len() > MAX_CACHES => {
            Err(place.invalid(format_args!("config no more than {MAX_CACHES} caches can be created")))
        }
        Value::List(items) => items.iter().map(|item| read_one(item, place)).collect(),
        other => Ok(vec![read_one(other, place)?]),
    }
}

fn read_one(value: &Value, place: Place<'_>) -> Result<Cache, Invalid> {
    let map = mapping(value, place)?;
    known_keys(map, place, &["key", "fallback_keys", "untracked", "paths", "policy", "when", "unprotect"])?;
    Ok(Cache {
        key: map.get("key").map(|value| read_key(value, place.at("key"))).transpose()?,
        fallback_keys: entry(map, "fallback_keys", place, ARRAY_OF_STRINGS, Value::texts)?.unwrap_or_default(),
        untracked: entry(map, "untracked", place, BOOLEAN, Value::as_bool)?.unwrap_or_default(),
        paths: entry(map, "paths", place, ARRAY_OF_STRINGS, Value::texts)?.unwrap_or_default(),
        policy: attribute(map, "policy", place, "should be one of: pull-push, push, pull", read_policy)?
            .unwrap_or_default(),
        when: attribute(map, "when", place, "should be one of: on_success, on_failure, always", Outcome::read)?
            .unwrap_or_default(),
    })
}

fn read_key(value: &Value, place: Place<'_>) -> Result<CacheKey, Invalid> {
    match value {
        Value::Text(text) => Ok(CacheKey::Text(text.clone())),
        Value::Map(map) => {
            known_keys(map, place, &["files", "prefix"])?;
            let files = entry(map, "files", place, ARRAY_OF_STRINGS, Value::texts)?
                .filter(|files| !files.is_empty())
                .ok_or_else(|| place.invalid("config missing required keys: files"))?;
            Ok(CacheKey::Files {
                files,
                prefix: entry(map, "prefix", place, "should be a string or symbol", owned_text)?,
            })
        }
        _ => Err(place.invalid("config should be a string or symbol")),
    }
}

fn read_policy(value: &Value) -> Option<CachePolicy> {
    match value.as_text()? {
        "pull-push" => Some(CachePolicy::PullPush),
        "pull" => Some(CachePolicy::Pull),
        "push" => Some(CachePolicy::Push),
        _ => None,
    }
}
