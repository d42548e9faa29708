//! The `cache` keyword: files that a runner stores between jobs.

use serde::{Deserialize, Serialize};

use crate::config_error::{ConfigError, KeyPath};
use crate::fields::{
    ARRAY_OF_STRINGS, BOOLEAN, expect_map, owned_text, read_attribute, read_entry, reject_unknown_keys,
};
use crate::value::Value;

/// The maximum number of caches of a job.
const MAX_CACHES: usize = 4;

/// One cache of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// The key under which the cache is stored.
    pub key: Option<CacheKey>,
    /// Keys to try if there is no cache under `key`.
    pub fallback_keys: Vec<String>,
    /// Whether files that git does not track are included.
    pub untracked: bool,
    /// Patterns of the paths to include.
    pub paths: Vec<String>,
    /// Whether the cache is restored, stored or both.
    pub policy: CachePolicy,
    /// After which result of the job the cache is stored.
    pub when: UploadWhen,
}

/// The key of a cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheKey {
    /// A text whose variables are not yet expanded.
    Text(String),
    /// A key computed from the last commits that changed some files.
    Files {
        /// The files.
        files: Vec<String>,
        /// The prefix of the key.
        prefix: Option<String>,
    },
}

/// Whether a cache is restored, stored or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CachePolicy {
    /// Restored before the job and stored after it.
    #[default]
    PullPush,
    /// Only restored.
    Pull,
    /// Only stored.
    Push,
}

impl CachePolicy {
    /// Returns the keyword that runners use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PullPush => "pull-push",
            Self::Pull => "pull",
            Self::Push => "push",
        }
    }
}

/// The result of a job after which artifacts or a cache are uploaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UploadWhen {
    /// The job succeeded.
    #[default]
    OnSuccess,
    /// The job failed.
    OnFailure,
    /// Any result.
    Always,
}

impl UploadWhen {
    /// Returns the keyword used in CI files and by runners.
    pub fn as_str(self) -> &'static str {
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

/// Reads `cache`: one mapping or a list of them.
pub(crate) fn read(value: &Value, key_path: KeyPath<'_>) -> Result<Vec<Cache>, ConfigError> {
    match value {
        Value::List(items) if items.len() > MAX_CACHES => {
            Err(key_path.error(format_args!("config no more than {MAX_CACHES} caches can be created")))
        }
        Value::List(items) => items.iter().map(|item| read_one(item, key_path)).collect(),
        other => Ok(vec![read_one(other, key_path)?]),
    }
}

fn read_one(value: &Value, key_path: KeyPath<'_>) -> Result<Cache, ConfigError> {
    let map = expect_map(value, key_path)?;
    reject_unknown_keys(map, key_path, &["key", "fallback_keys", "untracked", "paths", "policy", "when", "unprotect"])?;
    Ok(Cache {
        key: map.get("key").map(|value| read_key(value, key_path.child("key"))).transpose()?,
        fallback_keys: read_entry(map, "fallback_keys", key_path, ARRAY_OF_STRINGS, Value::texts)?.unwrap_or_default(),
        untracked: read_entry(map, "untracked", key_path, BOOLEAN, Value::as_bool)?.unwrap_or_default(),
        paths: read_entry(map, "paths", key_path, ARRAY_OF_STRINGS, Value::texts)?.unwrap_or_default(),
        policy: read_attribute(map, "policy", key_path, "should be one of: pull-push, push, pull", read_policy)?
            .unwrap_or_default(),
        when: read_attribute(
            map,
            "when",
            key_path,
            "should be one of: on_success, on_failure, always",
            UploadWhen::read,
        )?
        .unwrap_or_default(),
    })
}

fn read_key(value: &Value, key_path: KeyPath<'_>) -> Result<CacheKey, ConfigError> {
    match value {
        Value::Text(text) => Ok(CacheKey::Text(text.clone())),
        Value::Map(map) => {
            reject_unknown_keys(map, key_path, &["files", "prefix"])?;
            let files = read_entry(map, "files", key_path, ARRAY_OF_STRINGS, Value::texts)?
                .filter(|files| !files.is_empty())
                .ok_or_else(|| key_path.error("config missing required keys: files"))?;
            Ok(CacheKey::Files {
                files,
                prefix: read_entry(map, "prefix", key_path, "should be a string or symbol", owned_text)?,
            })
        }
        _ => Err(key_path.error("config should be a string or symbol")),
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
