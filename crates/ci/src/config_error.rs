//! The first error of a CI file, in the wording of GitLab, and the key path it refers to.

use std::fmt;

/// Why a CI file is invalid: its first error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The message that users see and that is stored with the pipeline.
    pub text: String,
}

impl ConfigError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl std::error::Error for ConfigError {}

/// The path of a key, such as `jobs:rspec:image`. A chain of borrowed keys, because it is formatted only for errors and
/// would otherwise be built for every key of every job.
#[derive(Clone, Copy)]
pub(crate) struct KeyPath<'a> {
    parent: Option<&'a KeyPath<'a>>,
    key: &'a str,
}

impl<'a> KeyPath<'a> {
    pub(crate) fn root(key: &'a str) -> Self {
        Self { parent: None, key }
    }

    pub(crate) fn child(&'a self, key: &'a str) -> Self {
        Self { parent: Some(self), key }
    }

    /// Creates the error of this key. Path and message are lower-cased together, as in GitLab.
    pub(crate) fn error(&self, text: impl fmt::Display) -> ConfigError {
        ConfigError::new(format!("{self} {text}").to_lowercase())
    }
}

impl fmt::Display for KeyPath<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(formatter, "{parent}:")?;
        }
        formatter.write_str(self.key)
    }
}
