//! The untyped parameters of a request by name, from query, form, multipart or JSON.

use std::borrow::Cow;

use jiff::{
    civil::{Date, DateTime},
    tz::Offset,
};
use model::Time;

/// An untyped value. It may be a password, so it does not implement `Debug`.
#[derive(Clone, PartialEq)]
pub(crate) enum ParamValue {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    List(Vec<ParamValue>),
    /// Fields in their order.
    Object(Vec<(String, ParamValue)>),
    /// A file in a multipart body; invalid for any other parameter.
    File,
    /// Text that is not UTF-8.
    InvalidUtf8,
    /// Sent more than once, with different values.
    Conflicting,
}

#[cfg(test)]
impl From<serde_json::Value> for ParamValue {
    fn from(value: serde_json::Value) -> Self {
        let fields = crate::json_params::read(serde_json::json!({ "value": value }).to_string().as_bytes());
        fields.expect("valid JSON").fields.remove(0).1
    }
}

impl ParamValue {
    /// Returns the value as a date: a date, or the date of a timestamp.
    pub(super) fn date(&self) -> Option<Date> {
        let Self::Text(text) = self else { return None };
        let (date, rest) = text.trim().split_at_checked("2016-11-22".len())?;
        let date = date.parse().ok()?;
        (rest.is_empty() || text.trim().parse::<DateTime>().is_ok() || text.trim().parse::<Time>().is_ok())
            .then_some(date)
    }

    /// Returns the value as a timestamp: with a time zone, in UTC, or a date for midnight. Years before 0 are refused, since
    /// clients cannot parse them.
    pub(super) fn timestamp(&self) -> Option<Time> {
        let Self::Text(text) = self else { return None };
        let text = text.trim();
        let to_utc = |timestamp: DateTime| Offset::UTC.to_timestamp(timestamp).ok();
        let timestamp = text
            .parse::<Time>()
            .ok()
            .or_else(|| text.parse::<DateTime>().ok().and_then(to_utc))
            .or_else(|| text.parse::<Date>().ok().and_then(|date| to_utc(date.at(0, 0, 0, 0))))?;
        (Offset::UTC.to_datetime(timestamp).year() >= 0).then_some(timestamp)
    }

    pub(super) fn integer(&self) -> Option<i64> {
        match self {
            Self::Text(digits) | Self::Number(digits) => parse_integer(digits),
            _ => None,
        }
    }
}

/// All parameters of a request by name.
#[derive(Clone, Default)]
pub(crate) struct RawParams(Vec<(String, ParamValue)>);

/// The maximum number of parameters: more than any client sends, since lookups are linear.
pub(crate) const MAX_PARAMS: usize = 2000;

/// The request has more than [`MAX_PARAMS`] parameters.
#[derive(Debug)]
pub(crate) struct TooManyParams;

impl RawParams {
    /// Returns the fields of an object as parameters.
    pub(super) fn from_object(fields: &[(String, ParamValue)]) -> Self {
        Self(fields.to_vec())
    }

    /// Collects parameters.
    pub(crate) fn from_pairs(pairs: impl Iterator<Item = (String, ParamValue)>) -> Result<Self, TooManyParams> {
        let mut params = Self::default();
        for (count, (name, value)) in pairs.enumerate() {
            if count == MAX_PARAMS {
                return Err(TooManyParams);
            }
            params.insert(name, value);
        }
        Ok(params)
    }

    /// Inserts a parameter; `name[]` appends to a list.
    ///
    /// A scalar may be repeated only with the same value: a stock client repeats its query when it follows a link, while
    /// two different values are a way to smuggle one past a check.
    fn insert(&mut self, name: String, value: ParamValue) {
        if let Some((list, field)) = name.strip_suffix(']').and_then(|name| name.split_once("[][")) {
            return self.insert_into_object(list, field, value);
        }
        if let Some(list) = name.strip_suffix("[]") {
            match self.0.iter_mut().find(|(existing, _)| existing == list) {
                Some((_, ParamValue::List(values))) => values.push(value),
                Some((_, other)) => *other = ParamValue::Conflicting,
                None => self.0.push((list.to_owned(), ParamValue::List(vec![value]))),
            }
            return;
        }
        match self.0.iter_mut().find(|(existing, _)| *existing == name) {
            Some((_, existing)) if *existing == value => {}
            Some((_, existing)) => *existing = ParamValue::Conflicting,
            None => self.0.push((name, value)),
        }
    }

    /// Inserts a field of an object in a list, which forms write as `list[][field]`. A field that the last object already has
    /// starts a new object.
    fn insert_into_object(&mut self, list: &str, field: &str, value: ParamValue) {
        let index = self.0.iter().position(|(existing, _)| existing == list).unwrap_or_else(|| {
            self.0.push((list.to_owned(), ParamValue::List(Vec::new())));
            self.0.len() - 1
        });
        let (_, existing_value) = &mut self.0[index];
        let ParamValue::List(values) = existing_value else {
            *existing_value = ParamValue::Conflicting;
            return;
        };
        match values.last_mut() {
            Some(ParamValue::Object(fields)) if fields.iter().all(|(existing, _)| existing != field) => {
                fields.push((field.to_owned(), value));
            }
            _ => values.push(ParamValue::Object(vec![(field.to_owned(), value)])),
        }
    }

    /// Adds other parameters, which replace those of the same name.
    pub(crate) fn overlay(&mut self, other: Self) {
        for (name, value) in other.0 {
            match self.0.iter_mut().find(|(existing, _)| *existing == name) {
                Some((_, existing)) => *existing = value,
                None => self.0.push((name, value)),
            }
        }
    }

    /// Returns a parameter, unless it is null.
    pub(crate) fn get(&self, name: &str) -> Option<&ParamValue> {
        self.0
            .iter()
            .find(|(existing, _)| existing == name)
            .map(|(_, value)| value)
            .filter(|value| **value != ParamValue::Null)
    }

    /// Returns the parameters that forms and queries write as `name[key]`, by key.
    pub(super) fn nested<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, &'a ParamValue)> {
        self.0.iter().filter_map(move |(existing, value)| {
            let key = existing.strip_prefix(name)?.strip_prefix('[')?.strip_suffix(']')?;
            Some((key, value))
        })
    }

    /// Returns whether a parameter was sent, even if empty or null.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|(existing, _)| existing == name)
    }

    /// Returns a parameter if it is a string or a number.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(ParamValue::Text(text) | ParamValue::Number(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns the scalar parameters and lists of scalars as text, for pagination links.
    pub(crate) fn plain_texts(&self) -> impl Iterator<Item = (Cow<'_, str>, &str)> {
        self.0.iter().flat_map(|(name, value)| {
            let mut texts = Vec::new();
            match value {
                ParamValue::Text(text) | ParamValue::Number(text) => {
                    texts.push((Cow::Borrowed(name.as_str()), text.as_str()));
                }
                ParamValue::Bool(value) => texts.push((name.into(), if *value { "true" } else { "false" })),
                ParamValue::List(values) => {
                    for value in values {
                        if let ParamValue::Text(text) | ParamValue::Number(text) = value {
                            texts.push((format!("{name}[]").into(), text.as_str()));
                        }
                    }
                }
                ParamValue::Null
                | ParamValue::Object(_)
                | ParamValue::File
                | ParamValue::InvalidUtf8
                | ParamValue::Conflicting => {}
            }
            texts
        })
    }
}

/// Parses an integer; fractions are truncated, as in GitLab 8.14.
fn parse_integer(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let is_numeric = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    let number: f64 = text.parse().ok().filter(|number: &f64| is_numeric && number.is_finite())?;
    #[expect(clippy::cast_precision_loss, reason = "only the order of magnitude matters")]
    let in_range = number.abs() < i64::MAX as f64;
    #[expect(clippy::cast_possible_truncation, reason = "truncation is intended")]
    in_range.then_some(number as i64)
}
