//! What jobs inherit from the top of the file and from `default`.

use crate::artifacts::{self, Artifacts};
use crate::budget::Weight;
use crate::caches::{self, Cache};
use crate::entries::{known_keys, mapping};
use crate::images::{self, Image, Service};
use crate::invalid::{Invalid, Place};
use crate::jobs::read_timeout;
use crate::retries::{self, Retry};
use crate::value::{Map, Value};

/// A value for all jobs that do not say otherwise, with what a copy costs.
#[derive(Debug)]
pub(crate) struct Inherited<T> {
    pub(crate) value: Option<T>,
    pub(crate) weight: Weight,
}

/// What jobs inherit.
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

/// The entries that may stand at the top of the file as well as in `default`.
pub(crate) const GLOBAL: [&str; 5] = ["before_script", "image", "services", "after_script", "cache"];

const KEYS: [&str; 10] = [
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

/// Reads what jobs inherit.
pub(crate) fn read(root: &Map) -> Result<Defaults, Invalid> {
    let place = Place::top("default");
    let empty = Map::default();
    let own = root.get("default").map(|value| mapping(value, place)).transpose()?.unwrap_or(&empty);
    known_keys(own, place, &KEYS)?;
    if let Some(twice) = GLOBAL.into_iter().find(|key| own.get(key).is_some() && root.get(key).is_some()) {
        return Err(place.invalid(format_args!("config {twice} is defined in top-level and `default:` entry")));
    }
    let from = Sources { root, own, place: &place };
    Ok(Defaults {
        before_script: from.read("before_script", |value, place| {
            value.lines().ok_or_else(|| place.invalid("config should be an array of strings"))
        })?,
        image: from.read("image", images::read_image)?,
        services: from.read("services", images::read_services)?,
        after_script: from.read("after_script", |value, place| {
            value.lines().ok_or_else(|| place.invalid("config should be an array of strings"))
        })?,
        cache: from.read("cache", caches::read)?,
        artifacts: from.read("artifacts", artifacts::read)?,
        retry: from.read("retry", retries::read)?,
        timeout: from.read("timeout", |value, _| read_timeout(value, place))?,
        interruptible: from.read("interruptible", |value, place| {
            value.as_bool().ok_or_else(|| place.invalid("config should be a boolean value"))
        })?,
        tags: from.read("tags", |value, _| {
            value.lines().ok_or_else(|| place.invalid("tags should be an array of strings"))
        })?,
    })
}

struct Sources<'a> {
    root: &'a Map,
    own: &'a Map,
    place: &'a Place<'a>,
}

impl Sources<'_> {
    /// Reads an entry of `default`, or else the one at the top of the file, which has its own place in errors.
    fn read<T>(
        &self,
        key: &str,
        read: impl FnOnce(&Value, Place<'_>) -> Result<T, Invalid>,
    ) -> Result<Inherited<T>, Invalid> {
        let found = match self.own.get(key) {
            Some(value) => Some((value, self.place.at(key))),
            None if GLOBAL.contains(&key) => self.root.get(key).map(|value| (value, Place::top(key))),
            None => None,
        };
        match found {
            Some((value, place)) => Ok(Inherited { value: Some(read(value, place)?), weight: value.weight() }),
            None => Ok(Inherited { value: None, weight: Weight::default() }),
        }
    }
}
