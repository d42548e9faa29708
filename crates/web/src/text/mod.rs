//! What pages do with texts of users; the crate `markup` makes HTML of them.

pub(crate) mod csv;
pub(crate) mod line_endings;

pub(crate) use markup::{Markup, diff, highlight, job_log, labels, line, markdown, plain, references};

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
