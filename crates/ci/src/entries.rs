//! Small readers that every entry of a file uses; their words are the original's.

use crate::invalid::{Invalid, Place};
use crate::value::{Map, Value};

/// Reads a mapping, or tells that it should be one.
pub(crate) fn mapping<'a>(value: &'a Value, place: Place<'_>) -> Result<&'a Map, Invalid> {
    value.as_map().ok_or_else(|| place.invalid("config should be a hash"))
}

/// Refuses keys that nobody knows, all of them at once.
pub(crate) fn known_keys(map: &Map, place: Place<'_>, known: &[&str]) -> Result<(), Invalid> {
    let unknown: Vec<&str> = map.iter().map(|(key, _)| key.text.as_str()).filter(|key| !known.contains(key)).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    Err(place.invalid(format_args!("config contains unknown keys: {}", unknown.join(", "))))
}

/// Reads an attribute, or refuses it with the words for it; an absent one is nothing.
pub(crate) fn attribute<'a, T>(
    map: &'a Map,
    key: &str,
    place: Place<'_>,
    wanted: &str,
    read: impl FnOnce(&'a Value) -> Option<T>,
) -> Result<Option<T>, Invalid> {
    map.get(key)
        .map(|value| read(value).ok_or_else(|| place.invalid(format_args!("{} {wanted}", key.replace('_', " ")))))
        .transpose()
}

/// Reads an entry of its own, whose key belongs to the place of its error.
pub(crate) fn entry<'a, T>(
    map: &'a Map,
    key: &str,
    place: Place<'_>,
    wanted: &str,
    read: impl FnOnce(&'a Value) -> Option<T>,
) -> Result<Option<T>, Invalid> {
    map.get(key)
        .map(|value| read(value).ok_or_else(|| place.at(key).invalid(format_args!("config {wanted}"))))
        .transpose()
}

/// Reads a text as an owned one.
pub(crate) fn owned_text(value: &Value) -> Option<String> {
    value.as_text().map(ToOwned::to_owned)
}

/// Reads one text or a list of them.
pub(crate) fn text_or_texts(value: &Value) -> Option<Vec<String>> {
    value.as_text().map_or_else(|| value.texts(), |text| Some(vec![text.to_owned()]))
}

pub(crate) const ARRAY_OF_STRINGS: &str = "should be an array of strings";
pub(crate) const BOOLEAN: &str = "should be a boolean value";
pub(crate) const STRING: &str = "should be a string";
