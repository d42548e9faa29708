//! Validation errors of a record, by field.

use std::fmt;

/// Validation errors in the order in which they were found; each field has all its messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violations(Vec<(String, Vec<String>)>);

impl Violations {
    /// Creates an empty set of violations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a set with a single violation.
    pub fn one(field: &str, text: impl Into<String>) -> Self {
        let mut violations = Self::new();
        violations.add(field, text);
        violations
    }

    /// Adds a violation of a field.
    pub fn add(&mut self, field: &str, text: impl Into<String>) {
        let text = text.into();
        match self.0.iter_mut().find(|(name, _)| name == field) {
            Some((_, texts)) => texts.push(text),
            None => self.0.push((field.to_owned(), vec![text])),
        }
    }

    /// Adds a violation unless the field is valid.
    pub fn require(&mut self, valid: bool, field: &str, text: impl Into<String>) {
        if !valid {
            self.add(field, text);
        }
    }

    /// Adds a violation if a text has more than `max` characters.
    pub fn max_length(&mut self, field: &str, text: &str, max: usize) {
        self.require(text.chars().count() <= max, field, format!("is too long (maximum is {max} characters)"));
    }

    /// Returns each violation as a sentence that starts with the name of its field.
    pub fn full_messages(&self) -> Vec<String> {
        let sentence = |field: &str, text: &str| {
            let mut letters = field.chars();
            let first = letters.next().into_iter().flat_map(char::to_uppercase);
            format!("{}{} {text}", first.collect::<String>(), letters.as_str().replace('_', " "))
        };
        self.0.iter().flat_map(|(field, texts)| texts.iter().map(|text| sentence(field, text))).collect()
    }

    /// Returns whether there are no violations.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `Ok` if there are no violations.
    pub fn into_result(self) -> Result<(), Self> {
        if self.is_empty() { Ok(()) } else { Err(self) }
    }

    /// Iterates over the fields with their messages, in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.0.iter().map(|(field, texts)| (field.as_str(), texts.as_slice()))
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (field, texts)) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { "; " };
            write!(f, "{comma}{field} {}", texts.join(", "))?;
        }
        Ok(())
    }
}
