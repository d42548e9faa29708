//! Typed parameters of requests.
//!
//! A set of parameters is a type with a `read` function. The same function reads a request and, without one, describes the
//! parameters for the OpenAPI document, so the two cannot differ.

mod raw_params;

use std::{convert::Infallible, ops::RangeInclusive, sync::Arc};

use axum::{extract::FromRequestParts, http::request::Parts};
use forge::Unvalidated;
use jiff::civil::Date;
use model::{
    BoardId, BoardListId, Change, DeliveryId, DeployKeyId, EmailId, HookId, IssueId, IssueIid, JobId, KeyId, LabelId,
    MilestoneId, MilestoneIid, NamespaceId, NoteId, PipelineId, ProjectId, RunnerId, Time, TokenId, UserId,
};
use serde_json::{Value, json};

use crate::routes::{ArgDoc, OperationDoc};

pub(crate) use raw_params::{MAX_PARAMS, ParamValue, RawParams, TooManyParams};

/// A set of parameters.
pub(crate) trait FromParams: Sized {
    /// Reads the set; the reader collects errors in the order of the calls.
    fn read(from: &mut ParamReader<'_>) -> Self;
}

/// An id that a request names, in a parameter or in its path.
pub(crate) trait Id: Copy + Send {
    /// Creates the id with this number.
    fn from_number(number: i64) -> Self;
}

macro_rules! ids {
    ($($id:ident)*) => {$(
        impl Id for $id {
            fn from_number(number: i64) -> Self {
                Self::new(number)
            }
        }
    )*};
}
ids! {
    UserId EmailId KeyId TokenId
    NamespaceId ProjectId DeployKeyId
    IssueId IssueIid NoteId LabelId MilestoneId MilestoneIid BoardId BoardListId
    HookId DeliveryId
    PipelineId JobId RunnerId
}

/// The description of a parameter for the OpenAPI document.
#[derive(Clone, Debug)]
pub(crate) struct ParamDoc {
    pub(crate) name: &'static str,
    pub(crate) schema: Value,
    pub(crate) required: bool,
    pub(crate) description: &'static str,
}

/// Reads parameters by name and type, or only collects their descriptions if there is no request.
pub(crate) struct ParamReader<'a> {
    params: Option<&'a RawParams>,
    errors: Vec<String>,
    docs: Vec<ParamDoc>,
}

const MISSING: &str = "is missing";
const INVALID: &str = "is invalid";
const EMPTY: &str = "is empty";
const INVALID_CHOICE: &str = "does not have a valid value";

impl ParamReader<'_> {
    /// Reads a required string, which may be empty.
    pub(crate) fn required_text(&mut self, name: &'static str, description: &'static str) -> String {
        self.declare(name, json!({ "type": "string" }), true, description);
        let text = self.read_text(name);
        self.require(name);
        text.unwrap_or_default()
    }

    /// Reads an optional string.
    pub(crate) fn text(&mut self, name: &'static str, description: &'static str) -> Option<String> {
        self.declare(name, json!({ "type": "string" }), false, description);
        self.read_text(name)
    }

    /// Reads a required string that is not blank.
    pub(crate) fn required_nonblank_text(&mut self, name: &'static str, description: &'static str) -> String {
        let text = self.required_text(name, description);
        if self.params.and_then(|params| params.text(name)).is_some_and(|text| text.trim().is_empty()) {
            self.errors.push(format!("{name} {EMPTY}"));
        }
        text
    }

    /// Reads the content of a file: any string, including NUL.
    pub(crate) fn content(&mut self, name: &'static str, required: bool, description: &'static str) -> Option<String> {
        self.declare(name, json!({ "type": "string" }), required, description);
        let value = self.params?.get(name);
        match value {
            Some(ParamValue::Text(text) | ParamValue::Number(text)) => Some(text.clone()),
            Some(ParamValue::Bool(value)) => Some(value.to_string()),
            Some(_) => {
                self.reject(name);
                None
            }
            None if required => {
                self.errors.push(format!("{name} {MISSING}"));
                None
            }
            None => None,
        }
    }

    /// Reads a required list of objects, each a set of parameters.
    pub(crate) fn required_objects<T: FromParams>(&mut self, name: &'static str, description: &'static str) -> Vec<T> {
        if self.params.is_none() {
            let value = crate::openapi::object(&param_docs::<T>());
            self.declare(name, json!({ "type": "array", "items": value }), true, description);
        }
        self.require(name);
        let Some(value) = self.params.and_then(|params| params.get(name)) else { return Vec::new() };
        let ParamValue::List(values) = value else {
            self.reject(name);
            return Vec::new();
        };
        let mut read = Vec::with_capacity(values.len());
        for (index, value) in values.iter().enumerate() {
            let ParamValue::Object(fields) = value else {
                self.reject(name);
                break;
            };
            let params = RawParams::from_object(fields);
            let mut reader = ParamReader { params: Some(&params), errors: Vec::new(), docs: Vec::new() };
            read.push(T::read(&mut reader));
            // As GitLab 8.14 names them: the list, the index, and the field with its error.
            self.errors.extend(reader.errors.iter().map(|error| match error.split_once(' ') {
                Some((field, error)) => format!("{name}[{index}][{field}] {error}"),
                None => format!("{name}[{index}] {error}"),
            }));
        }
        read
    }

    /// Reads an optional object as a set of parameters; errors in it are ignored.
    pub(crate) fn lenient_object<T: FromParams>(&mut self, name: &'static str, description: &'static str) -> Option<T> {
        if self.params.is_none() {
            let value = crate::openapi::object(&param_docs::<T>());
            self.declare(name, value, false, description);
        }
        let Some(ParamValue::Object(fields)) = self.params?.get(name) else { return None };
        let params = RawParams::from_object(fields);
        let mut reader = ParamReader { params: Some(&params), errors: Vec::new(), docs: Vec::new() };
        Some(T::read(&mut reader))
    }

    /// Adds an error: the parameter is invalid.
    pub(crate) fn reject(&mut self, name: &str) {
        self.errors.push(format!("{name} {INVALID}"));
    }

    /// Reads an optional boolean; empty counts as absent.
    pub(crate) fn flag(&mut self, name: &'static str, description: &'static str) -> Option<bool> {
        self.declare(name, json!({ "type": "boolean" }), false, description);
        self.read(name, |value| match value {
            ParamValue::Bool(value) => Some(*value),
            ParamValue::Text(word) | ParamValue::Number(word) => match word.to_ascii_lowercase().as_str() {
                "1" | "on" | "t" | "true" | "y" | "yes" => Some(true),
                "0" | "off" | "f" | "false" | "n" | "no" => Some(false),
                _ => None,
            },
            _ => None,
        })
    }

    /// Reads an optional integer; empty counts as absent.
    pub(crate) fn integer(&mut self, name: &'static str, description: &'static str) -> Option<i64> {
        self.declare(name, json!({ "type": "integer" }), false, description);
        self.read(name, ParamValue::integer)
    }

    /// Reads a change of an integer: null and the empty string clear it.
    pub(crate) fn integer_change(&mut self, name: &'static str, description: &'static str) -> Change<i64> {
        self.declare(name, json!({ "type": ["integer", "null"] }), false, description);
        // Forms have no other notation for null.
        if self.params.is_some_and(|params| params.text(name) == Some("null")) {
            return Change::Clear;
        }
        match self.read(name, ParamValue::integer) {
            Some(number) => Change::Set(number),
            None if self.params.is_some_and(|params| params.contains(name)) => Change::Clear,
            None => Change::Keep,
        }
    }

    /// Reads an optional id; empty counts as absent.
    pub(crate) fn id<T: Id>(&mut self, name: &'static str, description: &'static str) -> Option<T> {
        self.integer(name, description).map(T::from_number)
    }

    /// Reads a change of an id: null, the empty string and 0, which names nothing, clear it.
    pub(crate) fn id_change<T: Id>(&mut self, name: &'static str, description: &'static str) -> Change<T> {
        match self.integer_change(name, description) {
            Change::Keep => Change::Keep,
            Change::Clear | Change::Set(0) => Change::Clear,
            Change::Set(number) => Change::Set(T::from_number(number)),
        }
    }

    /// Reads a required id.
    pub(crate) fn required_id<T: Id>(&mut self, name: &'static str, description: &'static str) -> T {
        T::from_number(self.required_integer(name, description))
    }

    /// Reads an optional integer within limits; empty counts as absent.
    pub(crate) fn integer_within(
        &mut self,
        name: &'static str,
        limits: RangeInclusive<i64>,
        description: &'static str,
    ) -> Option<i64> {
        let schema = json!({ "type": "integer", "minimum": limits.start(), "maximum": limits.end() });
        self.declare(name, schema, false, description);
        self.read(name, |value| value.integer().filter(|number| limits.contains(number)))
    }

    /// Reads a required integer.
    pub(crate) fn required_integer(&mut self, name: &'static str, description: &'static str) -> i64 {
        self.declare(name, json!({ "type": "integer", "format": "int64" }), true, description);
        let number = self.read(name, ParamValue::integer);
        let empty = self.params.and_then(|params| params.text(name)).is_some_and(str::is_empty);
        if empty {
            self.errors.push(format!("{name} {INVALID}"));
        }
        self.require(name);
        number.unwrap_or_default()
    }

    /// Reads one of several words, optional; empty counts as absent.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        name: &'static str,
        choices: &[(&'static str, T)],
        description: &'static str,
    ) -> Option<T> {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        self.declare(name, json!({ "type": "string", "enum": words }), false, description);
        let word = self.read_text(name).filter(|word| !word.is_empty())?;
        let chosen = choices.iter().find(|(known, _)| *known == word);
        if chosen.is_none() {
            self.errors.push(format!("{name} {INVALID_CHOICE}"));
        }
        chosen.map(|(_, value)| *value)
    }

    /// Reads any of several words: a single one, or a list, whose items forms may index. Empty words are ignored.
    pub(crate) fn choices<T: Copy + PartialEq>(
        &mut self,
        name: &'static str,
        choices: &[(&'static str, T)],
        description: &'static str,
    ) -> Vec<T> {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        self.declare(name, json!({ "type": "string", "enum": words }), false, description);
        let Some(params) = self.params else { return Vec::new() };
        let mut values: Vec<&ParamValue> = match params.get(name) {
            Some(ParamValue::List(values)) => values.iter().collect(),
            Some(value) => vec![value],
            None => Vec::new(),
        };
        let is_index = |key: &str| !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_digit());
        values.extend(params.nested(name).filter(|(key, _)| is_index(key)).map(|(_, value)| value));
        let mut chosen = Vec::new();
        for value in values {
            let ParamValue::Text(word) = value else {
                self.reject(name);
                break;
            };
            if word.is_empty() {
                continue;
            }
            match choices.iter().find(|(known, _)| known == word) {
                Some((_, value)) if chosen.contains(value) => {}
                Some((_, value)) => chosen.push(*value),
                None => {
                    self.errors.push(format!("{name} {INVALID_CHOICE}"));
                    break;
                }
            }
        }
        chosen
    }

    /// Reads a required list of words, comma-separated or as an array. It may be empty.
    pub(crate) fn required_choices<T: Copy + PartialEq>(
        &mut self,
        name: &'static str,
        choices: &[(&'static str, T)],
        description: &'static str,
    ) -> Vec<T> {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let schema = json!({ "type": "array", "items": { "type": "string", "enum": words } });
        self.declare(name, schema, true, description);
        self.require(name);
        let sent_words = self.split_comma_separated(name).unwrap_or_default();
        let mut chosen = Vec::new();
        for word in sent_words {
            match choices.iter().find(|(known, _)| *known == word) {
                Some((_, value)) if chosen.contains(value) => {}
                Some((_, value)) => chosen.push(*value),
                None => {
                    self.errors.push(format!("{name} {INVALID_CHOICE}"));
                    break;
                }
            }
        }
        chosen
    }

    /// Reads optional strings by key: an object, or `name[key]` in a form or a query. Returns `None` if the value is invalid,
    /// which each route reports with its own message.
    pub(crate) fn string_map(
        &mut self,
        name: &'static str,
        description: &'static str,
    ) -> Option<Vec<(String, String)>> {
        let schema = json!({ "type": "object", "additionalProperties": { "type": "string" } });
        self.declare(name, schema, false, description);
        let Some(params) = self.params else { return Some(Vec::new()) };
        let mut entries: Vec<(&str, &ParamValue)> = match params.get(name) {
            Some(ParamValue::Object(fields)) => fields.iter().map(|(key, value)| (key.as_str(), value)).collect(),
            // Forms have no other notation for an empty object.
            Some(ParamValue::Text(text)) if text.is_empty() => Vec::new(),
            Some(_) => return None,
            None => Vec::new(),
        };
        entries.extend(params.nested(name));
        let mut texts: Vec<(String, String)> = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            match value {
                // Environment variables cannot contain NUL.
                ParamValue::Text(text) if !text.contains('\0') => texts.push((key.to_owned(), text.clone())),
                _ => return None,
            }
        }
        Some(texts)
    }

    /// Reads a required word out of several; returns the first one if it is missing or invalid.
    pub(crate) fn required_choice<T: Copy>(
        &mut self,
        name: &'static str,
        choices: &[(&'static str, T)],
        description: &'static str,
    ) -> T {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        self.declare(name, json!({ "type": "string", "enum": words }), true, description);
        let word = self.read_text(name);
        let chosen = choices.iter().find(|(known, _)| Some(*known) == word.as_deref());
        if word.is_some() && chosen.is_none() {
            self.errors.push(format!("{name} {INVALID_CHOICE}"));
        }
        self.require(name);
        chosen.unwrap_or(&choices[0]).1
    }

    /// Reads one of several integers, optional; empty counts as absent.
    pub(crate) fn integer_choice<T: Copy>(
        &mut self,
        name: &'static str,
        choices: &[(i64, T)],
        description: &'static str,
    ) -> Option<T> {
        let numbers: Vec<i64> = choices.iter().map(|(number, _)| *number).collect();
        self.declare(name, json!({ "type": "integer", "enum": numbers }), false, description);
        let number = self.read(name, ParamValue::integer)?;
        let chosen = choices.iter().find(|(known, _)| *known == number);
        if chosen.is_none() {
            self.errors.push(format!("{name} {INVALID_CHOICE}"));
        }
        chosen.map(|(_, value)| *value)
    }

    /// Reads an optional list of ids, or a single one.
    pub(crate) fn ids<T: Id>(&mut self, name: &'static str, description: &'static str) -> Vec<T> {
        let schema = json!({ "type": "array", "items": { "type": "integer", "format": "int64" } });
        self.declare(name, schema, false, description);
        let numbers: Option<Vec<i64>> = self.read(name, |value| match value {
            ParamValue::List(values) => values.iter().map(ParamValue::integer).collect(),
            value => value.integer().map(|number| vec![number]),
        });
        numbers.unwrap_or_default().into_iter().map(T::from_number).collect()
    }

    /// Reads an optional date; empty counts as absent.
    pub(crate) fn date(&mut self, name: &'static str, description: &'static str) -> Option<Date> {
        self.declare(name, json!({ "type": "string", "format": "date" }), false, description);
        self.read(name, ParamValue::date)
    }

    /// Reads a change of a date: null and the empty string clear it.
    pub(crate) fn date_change(&mut self, name: &'static str, description: &'static str) -> Change<Date> {
        let mentioned = self.params.is_some_and(|params| params.contains(name));
        match self.date(name, description) {
            Some(date) => Change::Set(date),
            None if mentioned => Change::Clear,
            None => Change::Keep,
        }
    }

    /// Reads an optional timestamp; empty counts as absent.
    pub(crate) fn timestamp(&mut self, name: &'static str, description: &'static str) -> Option<Time> {
        self.declare(name, json!({ "type": "string", "format": "date-time" }), false, description);
        self.read(name, ParamValue::timestamp)
    }

    /// Reads optional words, comma-separated or as an array.
    pub(crate) fn comma_separated_list(
        &mut self,
        name: &'static str,
        description: &'static str,
    ) -> Option<Vec<String>> {
        self.declare(name, json!({ "type": "string" }), false, description);
        self.split_comma_separated(name)
    }

    fn split_comma_separated(&mut self, name: &'static str) -> Option<Vec<String>> {
        let value = self.params?.get(name)?;
        let values = match value {
            ParamValue::List(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        let mut words = Vec::new();
        for value in values {
            match value {
                ParamValue::Text(text) | ParamValue::Number(text) if !text.contains('\0') => {
                    words.extend(text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(ToOwned::to_owned));
                }
                _ => {
                    self.reject(name);
                    return None;
                }
            }
        }
        Some(words)
    }

    /// Adds an error unless at least one of the parameters has a value.
    pub(crate) fn at_least_one(&mut self, names: &[&'static str]) {
        let Some(params) = self.params else { return };
        if !names.iter().any(|name| params.get(name).is_some()) {
            let text = "are missing, at least one parameter must be provided";
            self.errors.push(format!("{} {text}", names.join(", ")));
        }
    }

    /// Adds an error unless at least one of the parameters was sent, even as null.
    pub(crate) fn at_least_one_sent(&mut self, names: &[&'static str]) {
        let Some(params) = self.params else { return };
        if !names.iter().any(|name| params.contains(name)) {
            self.at_least_one(names);
        }
    }

    /// Adds an error if both parameters were sent.
    pub(crate) fn mutually_exclusive(&mut self, names: [&'static str; 2]) {
        let Some(params) = self.params else { return };
        let sent = |name: &&str| {
            params.get(name).is_some_and(|value| !matches!(value, ParamValue::Text(text) if text.is_empty()))
        };
        if names.iter().all(sent) {
            self.errors.push(format!("{} are mutually exclusive", names.join(", ")));
        }
    }

    /// Adds an error if some of the parameters were sent and others not.
    pub(crate) fn all_or_none(&mut self, names: &[&'static str]) {
        let Some(params) = self.params else { return };
        let sent = names.iter().filter(|name| params.get(name).is_some()).count();
        if sent != 0 && sent != names.len() {
            self.errors.push(format!("{} provide all or none of parameters", names.join(", ")));
        }
    }

    fn declare(&mut self, name: &'static str, schema: Value, required: bool, description: &'static str) {
        if self.params.is_none() {
            self.docs.push(ParamDoc { name, schema, required, description });
        }
    }

    fn require(&mut self, name: &'static str) {
        if self.params.is_some_and(|params| params.get(name).is_none()) {
            self.errors.push(format!("{name} {MISSING}"));
        }
    }

    fn read_text(&mut self, name: &'static str) -> Option<String> {
        let value = self.params?.get(name)?;
        match value {
            // No text parameter needs NUL, and PostgreSQL cannot store it.
            ParamValue::Text(text) if !text.contains('\0') => Some(text.clone()),
            ParamValue::Number(digits) => Some(digits.clone()),
            ParamValue::Bool(value) => Some(value.to_string()),
            _ => {
                self.errors.push(format!("{name} {INVALID}"));
                None
            }
        }
    }

    fn read<T>(&mut self, name: &'static str, parse: impl FnOnce(&ParamValue) -> Option<T>) -> Option<T> {
        let value = self.params?.get(name)?;
        if matches!(value, ParamValue::Text(text) if text.is_empty()) {
            return None;
        }
        let value = parse(value);
        if value.is_none() {
            self.errors.push(format!("{name} {INVALID}"));
        }
        value
    }
}

/// Reads a set of parameters.
pub(crate) fn parse_params<T: FromParams>(params: &RawParams) -> Unvalidated<T> {
    let mut reader = ParamReader { params: Some(params), errors: Vec::new(), docs: Vec::new() };
    let value = T::read(&mut reader);
    let mut errors = reader.errors;
    let mut seen = std::collections::HashSet::new();
    errors.retain(|error| seen.insert(error.clone()));
    Unvalidated::new(if errors.is_empty() { Ok(value) } else { Err(errors) })
}

/// Returns the descriptions of a set of parameters.
pub(crate) fn param_docs<T: FromParams>() -> Vec<ParamDoc> {
    let mut reader = ParamReader { params: None, errors: Vec::new(), docs: Vec::new() };
    T::read(&mut reader);
    reader.docs
}

/// The parameters of a request, to be validated after the permission check.
pub(crate) struct Params<T>(pub(crate) Unvalidated<T>);

impl<S: Send + Sync, T: FromParams> FromRequestParts<S> for Params<T> {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(parse_params(&raw_params(parts))))
    }
}

impl<T: FromParams> ArgDoc for Params<T> {
    fn describe(operation: &mut OperationDoc) {
        operation.params.extend(param_docs::<T>());
    }
}

/// Returns the parameters that `request_params` has read.
pub(crate) fn raw_params(parts: &Parts) -> Arc<RawParams> {
    parts.extensions.get::<Arc<RawParams>>().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sample {
        name: String,
        active: Option<bool>,
        limit: Option<i64>,
    }

    impl FromParams for Sample {
        fn read(from: &mut ParamReader<'_>) -> Self {
            let name = from.required_text("name", "");
            let sample = Self { name, active: from.flag("active", ""), limit: from.integer("limit", "") };
            from.all_or_none(&["a", "b"]);
            sample
        }
    }

    fn check(values: &[(&str, ParamValue)], expected: Result<(&str, Option<bool>, Option<i64>), &str>) {
        let names: Vec<_> = values.iter().map(|(name, _)| name).collect();
        let pairs = values.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let params = RawParams::from_pairs(pairs).expect("a few");
        let read = parse_params::<Sample>(&params);
        let read = read.validate().map(|sample| (sample.name.as_str(), sample.active, sample.limit));
        assert_eq!(read.map_err(|error| error.to_string()), expected.map_err(ToOwned::to_owned), "{names:?}");
    }

    fn text(text: &str) -> ParamValue {
        ParamValue::Text(text.to_owned())
    }

    #[test]
    fn scalars_are_read_as_in_gitlab() {
        check(&[("name", text("x"))], Ok(("x", None, None)));
        check(&[("name", text("")), ("active", text("")), ("limit", text(""))], Ok(("", None, None)));
        check(&[("name", text("x")), ("active", text("YES")), ("limit", text("1.9"))], Ok(("x", Some(true), Some(1))));
        check(
            &[("name", ParamValue::Number("7".into())), ("active", ParamValue::Bool(false))],
            Ok(("7", Some(false), None)),
        );
        check(&[("name", text("x")), ("limit", text("-3"))], Ok(("x", None, Some(-3))));
        check(&[("name", text("x")), ("active", ParamValue::Null)], Ok(("x", None, None)));
    }

    #[test]
    fn all_errors_are_reported_together_without_duplicates() {
        check(&[], Err("name is missing"));
        check(&[("name", ParamValue::Null)], Err("name is missing"));
        check(
            &[("active", text("maybe")), ("limit", text("many")), ("a", text("1"))],
            Err("name is missing, active is invalid, limit is invalid, a, b provide all or none of parameters"),
        );
        check(&[("name", text("a\0b"))], Err("name is invalid"));
        check(&[("name", ParamValue::InvalidUtf8)], Err("name is invalid"));
        check(&[("name", text("x")), ("limit", text("99999999999999999999"))], Err("limit is invalid"));
    }

    #[test]
    fn a_timestamp_is_read_with_and_without_a_time_zone() {
        let check = |value: &str, expected: Option<&str>| {
            let read = text(value).timestamp().map(|timestamp| timestamp.to_string());
            assert_eq!(read.as_deref(), expected, "{value}");
        };
        check("2016-03-11T03:45:40Z", Some("2016-03-11T03:45:40Z"));
        check(" 2016-03-11T03:45:40.5+01:00 ", Some("2016-03-11T02:45:40.5Z"));
        check("2016-03-11 03:45:40", Some("2016-03-11T03:45:40Z"));
        check("2016-03-11", Some("2016-03-11T00:00:00Z"));
        for refused in ["yesterday", "2016-13-11", "2016-02-30T00:00:00Z", "-000001-01-01T00:00:00Z", "1457667940"] {
            check(refused, None);
        }
        assert_eq!(ParamValue::Number("5".into()).timestamp(), None);
    }

    #[test]
    fn a_flood_of_parameters_is_refused() {
        let flood = |count: usize| (0..count).map(|number| (format!("p{number}"), text("x")));
        assert!(RawParams::from_pairs(flood(MAX_PARAMS)).is_ok());
        assert!(RawParams::from_pairs(flood(MAX_PARAMS + 1)).is_err());
    }

    #[test]
    fn a_scalar_is_refused_as_array_or_with_two_values() {
        check(&[("name[]", text("a")), ("name[]", text("b"))], Err("name is invalid"));
        check(&[("name", text("a")), ("name", text("b"))], Err("name is invalid"));
        check(&[("name", text("a")), ("name[]", text("b"))], Err("name is invalid"));
        check(&[("name", ParamValue::List(vec![text("a")]))], Err("name is invalid"));
        check(&[("name", text("a")), ("name", text("a"))], Ok(("a", None, None)));
    }

    struct Several(Vec<i64>, Option<Vec<(String, String)>>);

    impl FromParams for Several {
        fn read(from: &mut ParamReader<'_>) -> Self {
            let choices = [("one", 1), ("two", 2), ("three", 3)];
            Self(from.choices("scope", &choices, ""), from.string_map("variables", ""))
        }
    }

    fn several(values: &[(&str, ParamValue)]) -> Unvalidated<Several> {
        let pairs = values.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        parse_params(&RawParams::from_pairs(pairs).expect("a few"))
    }

    #[test]
    fn several_words_are_read_in_every_notation() {
        let check = |values: &[(&str, ParamValue)], expected: Result<&[i64], &str>| {
            let read = several(values);
            let read = read.validate().map(|read| read.0.as_slice()).map_err(|error| error.to_string());
            assert_eq!(read, expected.map_err(ToOwned::to_owned));
        };
        check(&[], Ok(&[]));
        check(&[("scope", text(""))], Ok(&[]));
        check(&[("scope", text("two"))], Ok(&[2]));
        check(&[("scope[]", text("two")), ("scope[]", text("one")), ("scope[]", text("two"))], Ok(&[2, 1]));
        check(&[("scope[0]", text("three")), ("scope[1]", text("one"))], Ok(&[3, 1]));
        check(&[("scope", ParamValue::from(json!(["one", "three"])))], Ok(&[1, 3]));
        check(&[("scope[x]", text("one"))], Ok(&[]));
        check(&[("scope", text("four"))], Err("scope does not have a valid value"));
        check(&[("scope[]", text("one")), ("scope[]", text("four"))], Err("scope does not have a valid value"));
        check(&[("scope[7]", text("ONE"))], Err("scope does not have a valid value"));
        check(&[("scope", ParamValue::from(json!([1])))], Err("scope is invalid"));
        check(&[("scope", ParamValue::from(json!({ "a": "one" })))], Err("scope is invalid"));
        check(&[("scope", text("one")), ("scope", text("two"))], Err("scope is invalid"));
    }

    #[test]
    fn a_string_map_is_the_same_in_a_form_and_in_json() {
        let check = |values: &[(&str, ParamValue)], expected: Option<&[(&str, &str)]>| {
            let read = several(values);
            let read = read.validate().ok().and_then(|read| read.1.clone());
            let expected: Option<Vec<_>> =
                expected.map(|pairs| pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect());
            assert_eq!(read, expected);
        };
        check(&[], Some(&[]));
        check(&[("variables", text(""))], Some(&[]));
        check(&[("variables[A]", text("1")), ("variables[B]", text("x]y"))], Some(&[("A", "1"), ("B", "x]y")]));
        check(&[("variables", ParamValue::from(json!({ "A": "1", "B": "" })))], Some(&[("A", "1"), ("B", "")]));
        check(&[("variables[]", text("1"))], None);
        check(&[("variables", text("1"))], None);
        check(&[("variables", ParamValue::from(json!(["1"])))], None);
        for value in [json!(1), json!(null), json!(true), json!(["x"]), json!({ "x": "y" }), json!("a\u{0}b")] {
            check(&[("variables", ParamValue::from(json!({ "A": value })))], None);
        }
        check(&[("variables[A]", text("1")), ("variables[A]", text("2"))], None);
    }

    #[derive(Debug, PartialEq)]
    struct Action {
        kind: String,
        path: Option<String>,
        content: Option<String>,
    }

    struct Actions(Vec<Action>);

    impl FromParams for Action {
        fn read(from: &mut ParamReader<'_>) -> Self {
            let kind = from.required_nonblank_text("kind", "");
            Self { kind, path: from.text("path", ""), content: from.content("content", false, "") }
        }
    }

    impl FromParams for Actions {
        fn read(from: &mut ParamReader<'_>) -> Self {
            Self(from.required_objects("actions", ""))
        }
    }

    #[test]
    fn a_list_of_objects_is_the_same_in_a_form_and_in_json() {
        let form = [("kind", "a"), ("path", "x"), ("kind", "b"), ("content", "nul\0")];
        let form = form.map(|(name, value)| (format!("actions[][{name}]"), text(value)));
        let form = RawParams::from_pairs(form.into_iter()).expect("a few");
        let object = json!([{ "kind": "a", "path": "x" }, { "kind": "b", "content": "nul\u{0}" }]);
        let object =
            RawParams::from_pairs([("actions".to_owned(), ParamValue::from(object))].into_iter()).expect("one");
        let action = |kind: &str, path: Option<&str>, content: Option<&str>| Action {
            kind: kind.into(),
            path: path.map(Into::into),
            content: content.map(Into::into),
        };
        for params in [form, object] {
            let read = parse_params::<Actions>(&params);
            let read = &read.validate().expect("in order").0;
            assert_eq!(*read, [action("a", Some("x"), None), action("b", None, Some("nul\0"))]);
        }
    }

    #[test]
    fn a_list_without_objects_is_refused() {
        let check = |value: Value, expected: &str| {
            let params =
                RawParams::from_pairs([("actions".to_owned(), ParamValue::from(value))].into_iter()).expect("one");
            let read = parse_params::<Actions>(&params);
            assert_eq!(read.validate().err().map(|error| error.to_string()).as_deref(), Some(expected));
        };
        check(json!(null), "actions is missing");
        check(json!("x"), "actions is invalid");
        check(json!(["x"]), "actions is invalid");
        check(json!([{ "kind": "a" }, { "path": ["x"] }]), "actions[1][kind] is missing, actions[1][path] is invalid");
        check(json!([{ "kind": " " }]), "actions[0][kind] is empty");
    }
}
