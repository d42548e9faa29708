//! What is wrong with a record, field by field.

use std::fmt;

/// Broken rules in the order in which they were found; a field holds all its texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violations(Vec<(String, Vec<String>)>);

impl Violations {
    /// A record without faults so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// A record with a single fault.
    pub fn one(field: &str, text: impl Into<String>) -> Self {
        let mut violations = Self::new();
        violations.add(field, text);
        violations
    }

    /// Notes a fault of a field.
    pub fn add(&mut self, field: &str, text: impl Into<String>) {
        let text = text.into();
        match self.0.iter_mut().find(|(name, _)| name == field) {
            Some((_, texts)) => texts.push(text),
            None => self.0.push((field.to_owned(), vec![text])),
        }
    }

    /// Notes a fault unless the field is in order.
    pub fn unless(&mut self, in_order: bool, field: &str, text: impl Into<String>) {
        if !in_order {
            self.add(field, text);
        }
    }

    /// Notes that a text has more characters than it may.
    pub fn longest(&mut self, field: &str, text: &str, most: usize) {
        self.unless(text.chars().count() <= most, field, format!("is too long (maximum is {most} characters)"));
    }

    /// Each fault as a sentence that begins with the name of its field.
    pub fn in_words(&self) -> Vec<String> {
        let sentence = |field: &str, text: &str| {
            let mut letters = field.chars();
            let first = letters.next().into_iter().flat_map(char::to_uppercase);
            format!("{}{} {text}", first.collect::<String>(), letters.as_str().replace('_', " "))
        };
        self.0.iter().flat_map(|(field, texts)| texts.iter().map(|text| sentence(field, text))).collect()
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `Ok` if nothing is wrong.
    pub fn into_result(self) -> Result<(), Self> {
        if self.is_empty() { Ok(()) } else { Err(self) }
    }

    /// The fields with their texts, in the order in which they were found.
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
