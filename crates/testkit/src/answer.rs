//! What came back.

use std::fmt;

use axum::{
    http::{HeaderMap, StatusCode},
    response::Response,
};
use http_body_util::BodyExt as _;
use serde_json::Value;

/// An answer, read to its end.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as text; what is not UTF-8 is repaired.
    pub text: String,
    /// The body as it came.
    pub bytes: Vec<u8>,
}

impl Answer {
    pub(crate) async fn read(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("a whole body").to_bytes().to_vec();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Self { status: parts.status, headers: parts.headers, text, bytes }
    }

    /// The status as a number.
    pub fn code(&self) -> u16 {
        self.status.as_u16()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("not JSON ({error}): {self}"))
    }

    /// A header, or the empty text.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// One field of every item of a list, joined with spaces.
    pub fn each(&self, field: &str) -> String {
        let items = self.json();
        let items = items.as_array().unwrap_or_else(|| panic!("not a list: {self}"));
        let texts = items.iter().map(|item| match &item[field] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        texts.collect::<Vec<_>>().join(" ")
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        if self.text.is_empty() { Ok(()) } else { write!(f, "\n{}", self.text) }
    }
}
