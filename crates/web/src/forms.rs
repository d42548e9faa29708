//! Fields of forms and queries.

use axum::{body::Body, http::StatusCode};
use http_body_util::{BodyExt as _, Limited};
use percent_encoding::percent_decode_str;

use crate::error::PageError;

/// The maximum size of a submitted form, in bytes.
pub(crate) const MAX_FORM_BYTES: usize = 1 << 20;
/// The maximum number of fields.
pub(crate) const MAX_FIELDS: usize = 200;

/// Decoded names and values, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Parses a query or the body of a form. Invalid UTF-8 is replaced.
    pub(crate) fn parse(text: &str) -> Self {
        let decode = |text: &str| {
            let text = text.replace('+', " ");
            percent_decode_str(&text).decode_utf8_lossy().into_owned()
        };
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).take(MAX_FIELDS);
        let mut fields = Self::default();
        for (name, value) in pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))) {
            fields.push(decode(name), &decode(value));
        }
        fields
    }

    /// Reads the body of a form.
    pub(crate) async fn read(body: Body) -> Result<Self, PageError> {
        let body = Limited::new(body, MAX_FORM_BYTES).collect().await;
        let body = body.map_err(|_| PageError::Status(StatusCode::PAYLOAD_TOO_LARGE))?.to_bytes();
        Ok(Self::parse(&String::from_utf8_lossy(&body)))
    }

    /// Returns whether a field was sent.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(found, _)| found == name)
    }

    /// Returns the value of a field; empty if it is missing.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.find(name).unwrap_or_default()
    }

    /// Returns the value of a field, if it was sent.
    pub(crate) fn find(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Creates the fields that a form shows at first.
    pub(crate) fn of<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Returns the value of a field without blanks around it.
    pub(crate) fn text(&self, name: &str) -> String {
        self.get(name).trim().to_owned()
    }

    /// Returns whether a checkbox with the value `1` is checked.
    pub(crate) fn is_checked(&self, name: &str) -> bool {
        self.get(name) == "1"
    }

    /// Returns the value of a field with several lines, with the line breaks of Unix.
    pub(crate) fn lines(&self, name: &str) -> String {
        self.get(name).replace("\r\n", "\n")
    }

    /// Returns all values of a field.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Adds a field. NUL is removed from its value: no text has it, and PostgreSQL refuses it.
    pub(crate) fn push(&mut self, name: String, value: &str) {
        self.0.push((name, value.replace('\0', "")));
    }

    /// Returns all fields except one.
    pub(crate) fn without<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let pairs = self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        pairs.filter(move |(found, _)| *found != name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_decoded() {
        let fields = Fields::parse("search=a+b%26c&page=2&empty=&flag&search=second");
        assert_eq!(fields.get("search"), "a b&c");
        assert_eq!(
            (fields.get("page"), fields.get("empty"), fields.get("flag"), fields.get("none")),
            ("2", "", "", "")
        );
        assert_eq!(Fields::parse("x=%ff").get("x"), "\u{fffd}");
        assert_eq!(fields.without("search").map(|(name, _)| name).collect::<Vec<_>>(), ["page", "empty", "flag"]);
    }
}
