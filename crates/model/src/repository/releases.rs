//! Releases: what is told about a tag.

use crate::Time;

/// The notes of a tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The name of the tag without `refs/tags/`.
    pub tag_name: String,
    /// The notes, in Markdown.
    pub description: String,
    /// When they were written.
    pub created_at: Time,
    /// When they were last changed.
    pub updated_at: Time,
}
