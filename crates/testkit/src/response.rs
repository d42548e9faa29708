//! Responses of the forge.

use std::fmt;

use axum::{
    http::{HeaderMap, StatusCode},
    response::Response,
};
use http_body_util::BodyExt as _;
use serde_json::Value;

/// A response whose body was read completely.
#[derive(Clone, Debug)]
pub struct TestResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as text, with invalid UTF-8 replaced.
    pub text: String,
    /// The body.
    pub bytes: Vec<u8>,
}

impl TestResponse {
    pub(crate) async fn read(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("a whole body").to_bytes().to_vec();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Self { status: parts.status, headers: parts.headers, text, bytes }
    }

    /// Returns the status as a number.
    pub fn code(&self) -> u16 {
        self.status.as_u16()
    }

    /// Parses the body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("not JSON ({error}): {self}"))
    }

    /// Returns a header, or the empty string.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Returns one field of every item of a JSON list, joined with spaces.
    pub fn join_field(&self, field: &str) -> String {
        let items = self.json();
        let items = items.as_array().unwrap_or_else(|| panic!("not a list: {self}"));
        let texts = items.iter().map(|item| match &item[field] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        texts.collect::<Vec<_>>().join(" ")
    }
}

impl fmt::Display for TestResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        if self.text.is_empty() { Ok(()) } else { write!(f, "\n{}", self.text) }
    }
}
