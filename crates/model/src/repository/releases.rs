//! Releases of tags.

use crate::Time;

/// The release notes of a tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The name of the tag without `refs/tags/`.
    pub tag_name: String,
    /// The description, in Markdown.
    pub description: String,
    /// When the release was created.
    pub created_at: Time,
    /// When the release was last changed.
    pub updated_at: Time,
}
