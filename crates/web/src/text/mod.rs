//! Text of users as HTML: plain text, Markdown, highlighted code and differences. Nothing here trusts its input.

pub(crate) mod csv;
pub(crate) mod diff;
pub(crate) mod highlight;
pub(crate) mod job_log;
pub(crate) mod line_endings;
pub(crate) mod markdown;
pub(crate) mod plain;
mod words;

use std::fmt;

use askama::filters::HtmlSafe;

pub(crate) use plain::line;

/// HTML that templates insert without escaping it. Only the modules of this folder create it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Markup(String);

impl fmt::Display for Markup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl HtmlSafe for Markup {}

/// Returns the text of a file; `None` if it is binary. Invalid UTF-8 is replaced, and a mark of the byte order is removed.
pub(crate) fn decode(bytes: &[u8]) -> Option<String> {
    /// The number of bytes in which git, too, searches for NUL.
    const BINARY_CHECK_BYTES: usize = 8000;
    if bytes[..bytes.len().min(BINARY_CHECK_BYTES)].contains(&0) {
        return None;
    }
    let text = String::from_utf8_lossy(bytes);
    Some(text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned())
}
