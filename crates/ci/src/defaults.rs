//! Values that jobs inherit from the top level of the file and from `default`.

use crate::artifacts::{self, Artifacts};
use crate::budget::ValueSize;
use crate::caches::{self, Cache};
use crate::config_error::{ConfigError, KeyPath};
use crate::fields::{expect_map, reject_unknown_keys};
use crate::images::{self, Image, Service};
use crate::jobs::read_timeout;
use crate::retries::{self, Retry};
use crate::value::{Map, Value};

/// A value for all jobs that do not set it, with the size that is charged for each copy.
#[derive(Debug)]
pub(crate) struct Inherited<T> {
    pub(crate) value: Option<T>,
    pub(crate) size: ValueSize,
}

/// The values that jobs inherit.
#[derive(Debug)]
pub(crate) struct Defaults {
    pub(crate) before_script: Inherited<Vec<String>>,
    pub(crate) after_script: Inherited<Vec<String>>,
    pub(crate) image: Inherited<Image>,
    pub(crate) services: Inherited<Vec<Service>>,
    pub(crate) cache: Inherited<Vec<Cache>>,
    pub(crate) artifacts: Inherited<Artifacts>,
    pub(crate) retry: Inherited<Retry>,
    pub(crate) timeout: Inherited<u64>,
    pub(crate) interruptible: Inherited<bool>,
    pub(crate) tags: Inherited<Vec<String>>,
}

/// The keys that are allowed at the top level of the file as well as in `default`.
pub(crate) const GLOBAL_KEYS: [&str; 5] = ["before_script", "image", "services", "after_script", "cache"];

const DEFAULT_KEYS: [&str; 10] = [
    "before_script",
    "image",
    "services",
    "after_script",
    "cache",
    "artifacts",
    "retry",
    "timeout",
    "interruptible",
    "tags",
];

/// Reads the defaults.
pub(crate) fn read(root: &Map) -> Result<Defaults, ConfigError> {
    let key_path = KeyPath::root("default");
    let empty = Map::default();
    let default_map = root.get("default").map(|value| expect_map(value, key_path)).transpose()?.unwrap_or(&empty);
    reject_unknown_keys(default_map, key_path, &DEFAULT_KEYS)?;
    if let Some(twice) = GLOBAL_KEYS.into_iter().find(|key| default_map.get(key).is_some() && root.get(key).is_some()) {
        return Err(key_path.error(format_args!("config {twice} is defined in top-level and `default:` entry")));
    }
    let reader = DefaultsReader { root, default_map, key_path: &key_path };
    Ok(Defaults {
        before_script: reader.read("before_script", |value, key_path| {
            value.flattened_texts().ok_or_else(|| key_path.error("config should be an array of strings"))
        })?,
        image: reader.read("image", images::read_image)?,
        services: reader.read("services", images::read_services)?,
        after_script: reader.read("after_script", |value, key_path| {
            value.flattened_texts().ok_or_else(|| key_path.error("config should be an array of strings"))
        })?,
        cache: reader.read("cache", caches::read)?,
        artifacts: reader.read("artifacts", artifacts::read)?,
        retry: reader.read("retry", retries::read)?,
        timeout: reader.read("timeout", |value, _| read_timeout(value, key_path))?,
        interruptible: reader.read("interruptible", |value, key_path| {
            value.as_bool().ok_or_else(|| key_path.error("config should be a boolean value"))
        })?,
        tags: reader.read("tags", |value, _| {
            value.flattened_texts().ok_or_else(|| key_path.error("tags should be an array of strings"))
        })?,
    })
}

struct DefaultsReader<'a> {
    root: &'a Map,
    default_map: &'a Map,
    key_path: &'a KeyPath<'a>,
}

impl DefaultsReader<'_> {
    /// Reads a key of `default`, or else the one at the top level, which has another key path in errors.
    fn read<T>(
        &self,
        key: &str,
        read: impl FnOnce(&Value, KeyPath<'_>) -> Result<T, ConfigError>,
    ) -> Result<Inherited<T>, ConfigError> {
        let found = match self.default_map.get(key) {
            Some(value) => Some((value, self.key_path.child(key))),
            None if GLOBAL_KEYS.contains(&key) => self.root.get(key).map(|value| (value, KeyPath::root(key))),
            None => None,
        };
        match found {
            Some((value, key_path)) => Ok(Inherited { value: Some(read(value, key_path)?), size: value.size() }),
            None => Ok(Inherited { value: None, size: ValueSize::default() }),
        }
    }
}
