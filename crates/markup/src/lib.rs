//! Texts of users as HTML: plain text, Markdown, highlighted code, differences and logs of jobs, with the URLs of the pages that
//! they link to. Nothing here trusts its input.

pub mod diff;
pub mod highlight;
pub mod job_log;
pub mod labels;
pub mod links;
pub mod markdown;
pub mod plain;
pub mod references;
mod words;

use std::fmt;

use askama::filters::HtmlSafe;

pub use plain::line;

/// HTML that templates insert without escaping it. Only this crate creates it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Markup(String);

impl fmt::Display for Markup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl HtmlSafe for Markup {}

impl Markup {
    /// Returns whether there is nothing to show.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
