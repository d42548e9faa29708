//! The first error of a CI file, in the words that clients know, and the place it belongs to.

use std::fmt;

/// Why a CI file is refused: the text of its first error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The error as it is shown to people and stored with the pipeline.
    pub text: String,
}

impl Invalid {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl std::error::Error for Invalid {}

/// Where an entry stands, as `jobs:rspec:image`. It is a chain of borrowed keys, as it is needed only when something is
/// wrong and would otherwise be built for every key of every job.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    above: Option<&'a Place<'a>>,
    key: &'a str,
}

impl<'a> Place<'a> {
    pub(crate) fn top(key: &'a str) -> Self {
        Self { above: None, key }
    }

    pub(crate) fn at(&'a self, key: &'a str) -> Self {
        Self { above: Some(self), key }
    }

    /// Makes the error of this entry; place and text are lower-cased together, as in the original.
    pub(crate) fn invalid(&self, text: impl fmt::Display) -> Invalid {
        Invalid::new(format!("{self} {text}").to_lowercase())
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above {
            write!(formatter, "{above}:")?;
        }
        formatter.write_str(self.key)
    }
}
