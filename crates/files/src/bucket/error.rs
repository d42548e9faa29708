//! Why a bucket cannot be used, in words that tell the operator what to change.

use std::{error::Error as StdError, io};

/// Why an operation on a bucket failed. The text of an error includes that of its cause, and no credentials.
#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    /// The address of the store is not of the form `s3://bucket/prefix`.
    #[error("the store {0} is not of the form s3://bucket or s3://bucket/prefix")]
    InvalidUrl(String),
    /// A setting of the store is missing or wrong.
    #[error("{0}")]
    InvalidOptions(String),
    /// The client cannot be created.
    #[error("cannot set up the client of the store: {0}")]
    Setup(#[source] io::Error),
    /// TLS cannot be set up.
    #[error("cannot set up the client of the store: {0}")]
    Tls(#[from] tls::Error),
    /// The bucket cannot be used as it is configured.
    #[error("cannot use the store {name}: {reason}")]
    Unusable {
        /// Where the bucket is.
        name: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The store cannot be reached, or has refused a request.
    #[error("the store failed: {}", describe(.0))]
    Request(#[source] object_store::Error),
    /// An object does not have the content that was written.
    #[error("the object {key} of the store is damaged")]
    Damaged {
        /// The key of the object.
        key: String,
    },
    /// The runtime of the bucket was stopped.
    #[error("the client of the store was stopped")]
    Stopped,
}

impl From<object_store::Error> for BucketError {
    fn from(error: object_store::Error) -> Self {
        Self::Request(error)
    }
}

impl BucketError {
    /// Converts an error about options.
    pub(super) fn options(error: object_store::Error) -> Self {
        Self::InvalidOptions(format!("the settings of the store are wrong: {}", describe(&error)))
    }

    /// Returns whether the store cannot be reached or refuses to work, as opposed to one that has lost content.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Request(_) | Self::Stopped)
    }
}

/// Describes an error by its innermost cause, and by the code of the store if there is one. Other parts of the text contain
/// the URL of the request.
pub(super) fn describe(error: &object_store::Error) -> String {
    let text = error.to_string();
    if let Some(code) = error_code(&text) {
        return match element(&text, "Message") {
            Some(message) => format!("{code}: {message}"),
            None => code.to_owned(),
        };
    }
    let mut cause: &dyn StdError = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Returns the error code in the XML that a store has answered.
pub(super) fn error_code(text: &str) -> Option<&str> {
    element(text, "Code")
}

fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let rest = text.split_once(&format!("<{name}>"))?.1;
    Some(rest.split_once("</")?.0)
}
