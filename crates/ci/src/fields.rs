//! Readers for keys of a mapping. Their error messages are those of GitLab.

use crate::config_error::{ConfigError, KeyPath};
use crate::value::{Map, Value};

/// Returns the mapping, or an error if the value is something else.
pub(crate) fn expect_map<'a>(value: &'a Value, key_path: KeyPath<'_>) -> Result<&'a Map, ConfigError> {
    value.as_map().ok_or_else(|| key_path.error("config should be a hash"))
}

/// Rejects unknown keys, all of them in one error.
pub(crate) fn reject_unknown_keys(map: &Map, key_path: KeyPath<'_>, known: &[&str]) -> Result<(), ConfigError> {
    let unknown: Vec<&str> = map.iter().map(|(key, _)| key.text.as_str()).filter(|key| !known.contains(key)).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    Err(key_path.error(format_args!("config contains unknown keys: {}", unknown.join(", "))))
}

/// Reads an attribute; its key is part of the error message. Returns `None` if it is absent.
pub(crate) fn read_attribute<'a, T>(
    map: &'a Map,
    key: &str,
    key_path: KeyPath<'_>,
    expected: &str,
    read: impl FnOnce(&'a Value) -> Option<T>,
) -> Result<Option<T>, ConfigError> {
    map.get(key)
        .map(|value| read(value).ok_or_else(|| key_path.error(format_args!("{} {expected}", key.replace('_', " ")))))
        .transpose()
}

/// Reads a nested entry; its key is part of the error's key path. Returns `None` if it is absent.
pub(crate) fn read_entry<'a, T>(
    map: &'a Map,
    key: &str,
    key_path: KeyPath<'_>,
    expected: &str,
    read: impl FnOnce(&'a Value) -> Option<T>,
) -> Result<Option<T>, ConfigError> {
    map.get(key)
        .map(|value| read(value).ok_or_else(|| key_path.child(key).error(format_args!("config {expected}"))))
        .transpose()
}

/// Returns a text as a `String`.
pub(crate) fn owned_text(value: &Value) -> Option<String> {
    value.as_text().map(ToOwned::to_owned)
}

/// Reads one text or a list of texts.
pub(crate) fn text_or_texts(value: &Value) -> Option<Vec<String>> {
    value.as_text().map_or_else(|| value.texts(), |text| Some(vec![text.to_owned()]))
}

pub(crate) const ARRAY_OF_STRINGS: &str = "should be an array of strings";
pub(crate) const BOOLEAN: &str = "should be a boolean value";
pub(crate) const STRING: &str = "should be a string";
