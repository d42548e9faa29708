//! Parameters: one way to read them, which at the same time says what there is to read.
//!
//! A set of parameters is a type with a `read` function. The same function reads a request and, against nothing,
//! describes itself for the OpenAPI document, so the two cannot differ.

mod bag;

use std::{convert::Infallible, ops::RangeInclusive, sync::Arc};

use axum::{extract::FromRequestParts, http::request::Parts};
use forge::Unvalidated;
use jiff::civil::Date;
use model::{Change, Time};
use serde_json::{Value, json};

use crate::routes::{ArgDoc, OperationDoc};

pub(crate) use bag::{Bag, Item, MOST as MOST_PARAMETERS, TooMany};

/// A set of parameters.
pub(crate) trait FromParams: Sized {
    /// Reads the set; faults are collected by the reader, in the order of the calls.
    fn read(from: &mut ParamReader<'_>) -> Self;
}

/// One declared parameter, for the document.
#[derive(Clone, Debug)]
pub(crate) struct ParamDoc {
    pub(crate) name: &'static str,
    pub(crate) schema: Value,
    pub(crate) required: bool,
    pub(crate) description: &'static str,
}

/// Reads parameters by name and type, or only notes what would be read.
pub(crate) struct ParamReader<'a> {
    bag: Option<&'a Bag>,
    faults: Vec<String>,
    declared: Vec<ParamDoc>,
}

const MISSING: &str = "is missing";
const INVALID: &str = "is invalid";
const EMPTY: &str = "is empty";
const UNKNOWN: &str = "does not have a valid value";

impl ParamReader<'_> {
    /// A text that has to be there, though it may be empty.
    pub(crate) fn required_text(&mut self, name: &'static str, description: &'static str) -> String {
        self.declare(name, json!({ "type": "string" }), true, description);
        let text = self.read_text(name);
        self.require(name);
        text.unwrap_or_default()
    }

    /// A text that may be there.
    pub(crate) fn text(&mut self, name: &'static str, description: &'static str) -> Option<String> {
        self.declare(name, json!({ "type": "string" }), false, description);
        self.read_text(name)
    }

    /// A text that has to be there and to say something.
    pub(crate) fn filled_text(&mut self, name: &'static str, description: &'static str) -> String {
        let text = self.required_text(name, description);
        if self.bag.and_then(|bag| bag.text(name)).is_some_and(|text| text.trim().is_empty()) {
            self.faults.push(format!("{name} {EMPTY}"));
        }
        text
    }

    /// The content of a file that may be there: text, of which nothing is refused.
    pub(crate) fn content(&mut self, name: &'static str, required: bool, description: &'static str) -> Option<String> {
        self.declare(name, json!({ "type": "string" }), required, description);
        let item = self.bag?.get(name);
        match item {
            Some(Item::Text(text) | Item::Number(text)) => Some(text.clone()),
            Some(Item::Bool(value)) => Some(value.to_string()),
            Some(_) => {
                self.fault(name);
                None
            }
            None if required => {
                self.faults.push(format!("{name} {MISSING}"));
                None
            }
            None => None,
        }
    }

    /// A list of objects that has to be there, each read like a set of parameters.
    pub(crate) fn required_objects<T: FromParams>(&mut self, name: &'static str, description: &'static str) -> Vec<T> {
        if self.bag.is_none() {
            let item = crate::openapi::object(&declared_by::<T>());
            self.declare(name, json!({ "type": "array", "items": item }), true, description);
        }
        self.require(name);
        let Some(item) = self.bag.and_then(|bag| bag.get(name)) else { return Vec::new() };
        let Item::List(items) = item else {
            self.fault(name);
            return Vec::new();
        };
        let mut read = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let Item::Object(fields) = item else {
                self.fault(name);
                break;
            };
            let bag = Bag::of_object(fields);
            let mut reader = ParamReader { bag: Some(&bag), faults: Vec::new(), declared: Vec::new() };
            read.push(T::read(&mut reader));
            // As the original names them: the list, which one, and the field with its fault.
            self.faults.extend(reader.faults.iter().map(|fault| match fault.split_once(' ') {
                Some((field, fault)) => format!("{name}[{index}][{field}] {fault}"),
                None => format!("{name}[{index}] {fault}"),
            }));
        }
        read
    }

    /// An object that may be there, read like a set of parameters; what is wrong with it counts for nothing.
    pub(crate) fn lenient_object<T: FromParams>(&mut self, name: &'static str, description: &'static str) -> Option<T> {
        if self.bag.is_none() {
            let item = crate::openapi::object(&declared_by::<T>());
            self.declare(name, item, false, description);
        }
        let Some(Item::Object(fields)) = self.bag?.get(name) else { return None };
        let bag = Bag::of_object(fields);
        let mut reader = ParamReader { bag: Some(&bag), faults: Vec::new(), declared: Vec::new() };
        Some(T::read(&mut reader))
    }

    /// Notes that a parameter cannot be understood.
    pub(crate) fn fault(&mut self, name: &str) {
        self.faults.push(format!("{name} {INVALID}"));
    }

    /// A yes or no that may be there; empty counts as absent.
    pub(crate) fn flag(&mut self, name: &'static str, description: &'static str) -> Option<bool> {
        self.declare(name, json!({ "type": "boolean" }), false, description);
        self.read(name, |item| match item {
            Item::Bool(value) => Some(*value),
            Item::Text(word) | Item::Number(word) => match word.to_ascii_lowercase().as_str() {
                "1" | "on" | "t" | "true" | "y" | "yes" => Some(true),
                "0" | "off" | "f" | "false" | "n" | "no" => Some(false),
                _ => None,
            },
            _ => None,
        })
    }

    /// A whole number that may be there; empty counts as absent.
    pub(crate) fn integer(&mut self, name: &'static str, description: &'static str) -> Option<i64> {
        self.declare(name, json!({ "type": "integer" }), false, description);
        self.read(name, Item::integer)
    }

    /// A whole number that may be there, or be taken away by null or the empty text.
    pub(crate) fn integer_change(&mut self, name: &'static str, description: &'static str) -> Change<i64> {
        self.declare(name, json!({ "type": ["integer", "null"] }), false, description);
        // A form has no other way to say null.
        if self.bag.is_some_and(|bag| bag.text(name) == Some("null")) {
            return Change::Clear;
        }
        match self.read(name, Item::integer) {
            Some(number) => Change::Set(number),
            None if self.bag.is_some_and(|bag| bag.mentions(name)) => Change::Clear,
            None => Change::Keep,
        }
    }

    /// A whole number within limits that may be there; empty counts as absent.
    pub(crate) fn integer_within(
        &mut self,
        name: &'static str,
        limits: RangeInclusive<i64>,
        description: &'static str,
    ) -> Option<i64> {
        let schema = json!({ "type": "integer", "minimum": limits.start(), "maximum": limits.end() });
        self.declare(name, schema, false, description);
        self.read(name, |item| item.integer().filter(|number| limits.contains(number)))
    }

    /// A whole number that has to be there.
    pub(crate) fn required_integer(&mut self, name: &'static str, description: &'static str) -> i64 {
        self.declare(name, json!({ "type": "integer", "format": "int64" }), true, description);
        let number = self.read(name, Item::integer);
        let empty = self.bag.and_then(|bag| bag.text(name)).is_some_and(str::is_empty);
        if empty {
            self.faults.push(format!("{name} {INVALID}"));
        }
        self.require(name);
        number.unwrap_or_default()
    }

    /// One of a few words that may be there; empty counts as absent.
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
            self.faults.push(format!("{name} {UNKNOWN}"));
        }
        chosen.map(|(_, value)| *value)
    }

    /// Some of a few words: one alone, or several as a list, whose places forms may number. None of them counts as absent.
    pub(crate) fn choices<T: Copy + PartialEq>(
        &mut self,
        name: &'static str,
        choices: &[(&'static str, T)],
        description: &'static str,
    ) -> Vec<T> {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        self.declare(name, json!({ "type": "string", "enum": words }), false, description);
        let Some(bag) = self.bag else { return Vec::new() };
        let mut items: Vec<&Item> = match bag.get(name) {
            Some(Item::List(items)) => items.iter().collect(),
            Some(item) => vec![item],
            None => Vec::new(),
        };
        let is_place = |key: &str| !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_digit());
        items.extend(bag.within(name).filter(|(key, _)| is_place(key)).map(|(_, item)| item));
        let mut chosen = Vec::new();
        for item in items {
            let Item::Text(word) = item else {
                self.fault(name);
                break;
            };
            if word.is_empty() {
                continue;
            }
            match choices.iter().find(|(known, _)| known == word) {
                Some((_, value)) if chosen.contains(value) => {}
                Some((_, value)) => chosen.push(*value),
                None => {
                    self.faults.push(format!("{name} {UNKNOWN}"));
                    break;
                }
            }
        }
        chosen
    }

    /// Some of a few words, of which there has to be a list: with commas between them, or as a list. It may be empty.
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
        let given = self.split_words(name).unwrap_or_default();
        let mut chosen = Vec::new();
        for word in given {
            match choices.iter().find(|(known, _)| *known == word) {
                Some((_, value)) if chosen.contains(value) => {}
                Some((_, value)) => chosen.push(*value),
                None => {
                    self.faults.push(format!("{name} {UNKNOWN}"));
                    break;
                }
            }
        }
        chosen
    }

    /// Named texts that may be there: an object, or `name[key]` in a form or a query. `None` if it is something else, of
    /// which each route tells in its own words.
    pub(crate) fn texts_by_name(
        &mut self,
        name: &'static str,
        description: &'static str,
    ) -> Option<Vec<(String, String)>> {
        let schema = json!({ "type": "object", "additionalProperties": { "type": "string" } });
        self.declare(name, schema, false, description);
        let Some(bag) = self.bag else { return Some(Vec::new()) };
        let mut found: Vec<(&str, &Item)> = match bag.get(name) {
            Some(Item::Object(fields)) => fields.iter().map(|(key, item)| (key.as_str(), item)).collect(),
            // A form has no other way to say that there are none.
            Some(Item::Text(text)) if text.is_empty() => Vec::new(),
            Some(_) => return None,
            None => Vec::new(),
        };
        found.extend(bag.within(name));
        let mut texts: Vec<(String, String)> = Vec::with_capacity(found.len());
        for (key, item) in found {
            match item {
                // No variable of a process can hold NUL.
                Item::Text(text) if !text.contains('\0') => texts.push((key.to_owned(), text.clone())),
                _ => return None,
            }
        }
        Some(texts)
    }

    /// One of a few words that has to be there; the first of them stands in for one that is missing.
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
            self.faults.push(format!("{name} {UNKNOWN}"));
        }
        self.require(name);
        chosen.unwrap_or(&choices[0]).1
    }

    /// One of a few numbers that may be there; empty counts as absent.
    pub(crate) fn number_choice<T: Copy>(
        &mut self,
        name: &'static str,
        choices: &[(i64, T)],
        description: &'static str,
    ) -> Option<T> {
        let numbers: Vec<i64> = choices.iter().map(|(number, _)| *number).collect();
        self.declare(name, json!({ "type": "integer", "enum": numbers }), false, description);
        let number = self.read(name, Item::integer)?;
        let chosen = choices.iter().find(|(known, _)| *known == number);
        if chosen.is_none() {
            self.faults.push(format!("{name} {UNKNOWN}"));
        }
        chosen.map(|(_, value)| *value)
    }

    /// Whole numbers that may be there.
    pub(crate) fn integers(&mut self, name: &'static str, description: &'static str) -> Vec<i64> {
        let schema = json!({ "type": "array", "items": { "type": "integer", "format": "int64" } });
        self.declare(name, schema, false, description);
        let numbers = self.read(name, |item| match item {
            Item::List(items) => items.iter().map(Item::integer).collect(),
            item => item.integer().map(|number| vec![number]),
        });
        numbers.unwrap_or_default()
    }

    /// A day that may be there; empty counts as absent.
    pub(crate) fn day(&mut self, name: &'static str, description: &'static str) -> Option<Date> {
        self.declare(name, json!({ "type": "string", "format": "date" }), false, description);
        self.read(name, Item::day)
    }

    /// A day that may be there, or be taken away by null or the empty text.
    pub(crate) fn day_change(&mut self, name: &'static str, description: &'static str) -> Change<Date> {
        let mentioned = self.bag.is_some_and(|bag| bag.mentions(name));
        match self.day(name, description) {
            Some(day) => Change::Set(day),
            None if mentioned => Change::Clear,
            None => Change::Keep,
        }
    }

    /// A moment that may be there; empty counts as absent.
    pub(crate) fn moment(&mut self, name: &'static str, description: &'static str) -> Option<Time> {
        self.declare(name, json!({ "type": "string", "format": "date-time" }), false, description);
        self.read(name, Item::moment)
    }

    /// Words that may be there: in one text with commas between them, or as a list.
    pub(crate) fn words(&mut self, name: &'static str, description: &'static str) -> Option<Vec<String>> {
        self.declare(name, json!({ "type": "string" }), false, description);
        self.split_words(name)
    }

    fn split_words(&mut self, name: &'static str) -> Option<Vec<String>> {
        let item = self.bag?.get(name)?;
        let items = match item {
            Item::List(items) => items.as_slice(),
            item => std::slice::from_ref(item),
        };
        let mut words = Vec::new();
        for item in items {
            match item {
                Item::Text(text) | Item::Number(text) if !text.contains('\0') => {
                    words.extend(text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(ToOwned::to_owned));
                }
                _ => {
                    self.fault(name);
                    return None;
                }
            }
        }
        Some(words)
    }

    /// Notes a fault unless at least one of the parameters was sent.
    pub(crate) fn at_least_one(&mut self, names: &[&'static str]) {
        let Some(bag) = self.bag else { return };
        if !names.iter().any(|name| bag.get(name).is_some()) {
            let text = "are missing, at least one parameter must be provided";
            self.faults.push(format!("{} {text}", names.join(", ")));
        }
    }

    /// The same where to take something away by null is something, too.
    pub(crate) fn at_least_one_mentioned(&mut self, names: &[&'static str]) {
        let Some(bag) = self.bag else { return };
        if !names.iter().any(|name| bag.mentions(name)) {
            self.at_least_one(names);
        }
    }

    /// Notes a fault if both parameters were sent.
    pub(crate) fn not_both(&mut self, names: [&'static str; 2]) {
        let Some(bag) = self.bag else { return };
        let sent = |name: &&str| bag.get(name).is_some_and(|item| !matches!(item, Item::Text(text) if text.is_empty()));
        if names.iter().all(sent) {
            self.faults.push(format!("{} are mutually exclusive", names.join(", ")));
        }
    }

    /// Notes a fault if some of the parameters were sent and others not.
    pub(crate) fn all_or_none(&mut self, names: &[&'static str]) {
        let Some(bag) = self.bag else { return };
        let sent = names.iter().filter(|name| bag.get(name).is_some()).count();
        if sent != 0 && sent != names.len() {
            self.faults.push(format!("{} provide all or none of parameters", names.join(", ")));
        }
    }

    fn declare(&mut self, name: &'static str, schema: Value, required: bool, description: &'static str) {
        if self.bag.is_none() {
            self.declared.push(ParamDoc { name, schema, required, description });
        }
    }

    fn require(&mut self, name: &'static str) {
        if self.bag.is_some_and(|bag| bag.get(name).is_none()) {
            self.faults.push(format!("{name} {MISSING}"));
        }
    }

    fn read_text(&mut self, name: &'static str) -> Option<String> {
        let item = self.bag?.get(name)?;
        match item {
            // No name, address or note needs NUL, and PostgreSQL cannot store it.
            Item::Text(text) if !text.contains('\0') => Some(text.clone()),
            Item::Number(digits) => Some(digits.clone()),
            Item::Bool(value) => Some(value.to_string()),
            _ => {
                self.faults.push(format!("{name} {INVALID}"));
                None
            }
        }
    }

    fn read<T>(&mut self, name: &'static str, parse: impl FnOnce(&Item) -> Option<T>) -> Option<T> {
        let item = self.bag?.get(name)?;
        if matches!(item, Item::Text(text) if text.is_empty()) {
            return None;
        }
        let value = parse(item);
        if value.is_none() {
            self.faults.push(format!("{name} {INVALID}"));
        }
        value
    }
}

/// Reads a set of parameters from a bag.
pub(crate) fn read_from<T: FromParams>(bag: &Bag) -> Unvalidated<T> {
    let mut reader = ParamReader { bag: Some(bag), faults: Vec::new(), declared: Vec::new() };
    let value = T::read(&mut reader);
    let mut faults = reader.faults;
    let mut seen = std::collections::HashSet::new();
    faults.retain(|fault| seen.insert(fault.clone()));
    Unvalidated::new(if faults.is_empty() { Ok(value) } else { Err(faults) })
}

/// Lists what a set of parameters reads.
pub(crate) fn declared_by<T: FromParams>() -> Vec<ParamDoc> {
    let mut reader = ParamReader { bag: None, faults: Vec::new(), declared: Vec::new() };
    T::read(&mut reader);
    reader.declared
}

/// The parameters of a request, to be looked at after the gate.
pub(crate) struct Params<T>(pub(crate) Unvalidated<T>);

impl<S: Send + Sync, T: FromParams> FromRequestParts<S> for Params<T> {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(read_from(&bag_of(parts))))
    }
}

impl<T: FromParams> ArgDoc for Params<T> {
    fn describe(operation: &mut OperationDoc) {
        operation.params.extend(declared_by::<T>());
    }
}

/// The bag that the inbox has filled.
pub(crate) fn bag_of(parts: &Parts) -> Arc<Bag> {
    parts.extensions.get::<Arc<Bag>>().cloned().unwrap_or_default()
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

    fn check(items: &[(&str, Item)], expected: Result<(&str, Option<bool>, Option<i64>), &str>) {
        let names: Vec<_> = items.iter().map(|(name, _)| name).collect();
        let pairs = items.iter().map(|(name, item)| ((*name).to_owned(), item.clone()));
        let bag = Bag::collect(pairs).expect("a few");
        let read = read_from::<Sample>(&bag);
        let read = read.get().map(|sample| (sample.name.as_str(), sample.active, sample.limit));
        assert_eq!(read.map_err(|error| error.to_string()), expected.map_err(ToOwned::to_owned), "{names:?}");
    }

    fn text(text: &str) -> Item {
        Item::Text(text.to_owned())
    }

    #[test]
    fn words_and_numbers_are_read_as_the_original_does() {
        check(&[("name", text("x"))], Ok(("x", None, None)));
        check(&[("name", text("")), ("active", text("")), ("limit", text(""))], Ok(("", None, None)));
        check(&[("name", text("x")), ("active", text("YES")), ("limit", text("1.9"))], Ok(("x", Some(true), Some(1))));
        check(&[("name", Item::Number("7".into())), ("active", Item::Bool(false))], Ok(("7", Some(false), None)));
        check(&[("name", text("x")), ("limit", text("-3"))], Ok(("x", None, Some(-3))));
        check(&[("name", text("x")), ("active", Item::Null)], Ok(("x", None, None)));
    }

    #[test]
    fn all_faults_are_told_at_once_and_each_once() {
        check(&[], Err("name is missing"));
        check(&[("name", Item::Null)], Err("name is missing"));
        check(
            &[("active", text("maybe")), ("limit", text("many")), ("a", text("1"))],
            Err("name is missing, active is invalid, limit is invalid, a, b provide all or none of parameters"),
        );
        check(&[("name", text("a\0b"))], Err("name is invalid"));
        check(&[("name", Item::Garbled)], Err("name is invalid"));
        check(&[("name", text("x")), ("limit", text("99999999999999999999"))], Err("limit is invalid"));
    }

    #[test]
    fn a_moment_is_read_with_and_without_a_zone() {
        let check = |value: &str, expected: Option<&str>| {
            let read = text(value).moment().map(|moment| moment.to_string());
            assert_eq!(read.as_deref(), expected, "{value}");
        };
        check("2016-03-11T03:45:40Z", Some("2016-03-11T03:45:40Z"));
        check(" 2016-03-11T03:45:40.5+01:00 ", Some("2016-03-11T02:45:40.5Z"));
        check("2016-03-11 03:45:40", Some("2016-03-11T03:45:40Z"));
        check("2016-03-11", Some("2016-03-11T00:00:00Z"));
        for refused in ["yesterday", "2016-13-11", "2016-02-30T00:00:00Z", "-000001-01-01T00:00:00Z", "1457667940"] {
            check(refused, None);
        }
        assert_eq!(Item::Number("5".into()).moment(), None);
    }

    #[test]
    fn lesson_26_a_flood_of_parameters_is_refused() {
        let flood = |count: usize| (0..count).map(|number| (format!("p{number}"), text("x")));
        assert!(Bag::collect(flood(bag::MOST)).is_ok());
        assert!(Bag::collect(flood(bag::MOST + 1)).is_err());
    }

    #[test]
    fn lesson_11_a_scalar_is_refused_as_array_or_with_two_values() {
        check(&[("name[]", text("a")), ("name[]", text("b"))], Err("name is invalid"));
        check(&[("name", text("a")), ("name", text("b"))], Err("name is invalid"));
        check(&[("name", text("a")), ("name[]", text("b"))], Err("name is invalid"));
        check(&[("name", Item::List(vec![text("a")]))], Err("name is invalid"));
        check(&[("name", text("a")), ("name", text("a"))], Ok(("a", None, None)));
    }

    struct Several(Vec<i64>, Option<Vec<(String, String)>>);

    impl FromParams for Several {
        fn read(from: &mut ParamReader<'_>) -> Self {
            let choices = [("one", 1), ("two", 2), ("three", 3)];
            Self(from.choices("scope", &choices, ""), from.texts_by_name("variables", ""))
        }
    }

    fn several(items: &[(&str, Item)]) -> Unvalidated<Several> {
        let pairs = items.iter().map(|(name, item)| ((*name).to_owned(), item.clone()));
        read_from(&Bag::collect(pairs).expect("a few"))
    }

    #[test]
    fn several_words_come_in_several_ways() {
        let check = |items: &[(&str, Item)], expected: Result<&[i64], &str>| {
            let read = several(items);
            let read = read.get().map(|read| read.0.as_slice()).map_err(|error| error.to_string());
            assert_eq!(read, expected.map_err(ToOwned::to_owned));
        };
        check(&[], Ok(&[]));
        check(&[("scope", text(""))], Ok(&[]));
        check(&[("scope", text("two"))], Ok(&[2]));
        check(&[("scope[]", text("two")), ("scope[]", text("one")), ("scope[]", text("two"))], Ok(&[2, 1]));
        check(&[("scope[0]", text("three")), ("scope[1]", text("one"))], Ok(&[3, 1]));
        check(&[("scope", Item::from(json!(["one", "three"])))], Ok(&[1, 3]));
        check(&[("scope[x]", text("one"))], Ok(&[]));
        check(&[("scope", text("four"))], Err("scope does not have a valid value"));
        check(&[("scope[]", text("one")), ("scope[]", text("four"))], Err("scope does not have a valid value"));
        check(&[("scope[7]", text("ONE"))], Err("scope does not have a valid value"));
        check(&[("scope", Item::from(json!([1])))], Err("scope is invalid"));
        check(&[("scope", Item::from(json!({ "a": "one" })))], Err("scope is invalid"));
        check(&[("scope", text("one")), ("scope", text("two"))], Err("scope is invalid"));
    }

    #[test]
    fn texts_by_name_are_the_same_in_a_form_and_in_json() {
        let check = |items: &[(&str, Item)], expected: Option<&[(&str, &str)]>| {
            let read = several(items);
            let read = read.get().ok().and_then(|read| read.1.clone());
            let expected: Option<Vec<_>> =
                expected.map(|pairs| pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect());
            assert_eq!(read, expected);
        };
        check(&[], Some(&[]));
        check(&[("variables", text(""))], Some(&[]));
        check(&[("variables[A]", text("1")), ("variables[B]", text("x]y"))], Some(&[("A", "1"), ("B", "x]y")]));
        check(&[("variables", Item::from(json!({ "A": "1", "B": "" })))], Some(&[("A", "1"), ("B", "")]));
        check(&[("variables[]", text("1"))], None);
        check(&[("variables", text("1"))], None);
        check(&[("variables", Item::from(json!(["1"])))], None);
        for value in [json!(1), json!(null), json!(true), json!(["x"]), json!({ "x": "y" }), json!("a\u{0}b")] {
            check(&[("variables", Item::from(json!({ "A": value })))], None);
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
            let kind = from.filled_text("kind", "");
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
        let form = Bag::collect(form.into_iter()).expect("a few");
        let object = json!([{ "kind": "a", "path": "x" }, { "kind": "b", "content": "nul\u{0}" }]);
        let object = Bag::collect([("actions".to_owned(), Item::from(object))].into_iter()).expect("one");
        let action = |kind: &str, path: Option<&str>, content: Option<&str>| Action {
            kind: kind.into(),
            path: path.map(Into::into),
            content: content.map(Into::into),
        };
        for bag in [form, object] {
            let read = read_from::<Actions>(&bag);
            let read = &read.get().expect("in order").0;
            assert_eq!(*read, [action("a", Some("x"), None), action("b", None, Some("nul\0"))]);
        }
    }

    #[test]
    fn a_list_that_holds_no_objects_is_refused() {
        let check = |value: Value, expected: &str| {
            let bag = Bag::collect([("actions".to_owned(), Item::from(value))].into_iter()).expect("one");
            let read = read_from::<Actions>(&bag);
            assert_eq!(read.get().err().map(|error| error.to_string()).as_deref(), Some(expected));
        };
        check(json!(null), "actions is missing");
        check(json!("x"), "actions is invalid");
        check(json!(["x"]), "actions is invalid");
        check(json!([{ "kind": "a" }, { "path": ["x"] }]), "actions[1][kind] is missing, actions[1][path] is invalid");
        check(json!([{ "kind": " " }]), "actions[0][kind] is empty");
    }
}
