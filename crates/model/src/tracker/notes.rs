//! Notes on issues: comments by users, and system notes that record changes.

use crate::{IssueId, NoteId, Time, Violations, users::UserSummary};

/// The maximum length of a note or a description, in characters; a page of results holds up to a hundred of them.
pub const MAX_TEXT_LENGTH: usize = 100_000;

/// A note on an issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The note id.
    pub id: NoteId,
    /// The id of the issue.
    pub issue: IssueId,
    /// The text.
    pub body: String,
    /// The author, for a system note the user who made the change; `None` if the account was deleted.
    pub author: Option<UserSummary>,
    /// Whether the server wrote the note to record a change.
    pub system: bool,
    /// The time of creation.
    pub created_at: Time,
    /// The time of the last change.
    pub updated_at: Time,
}

/// Validates the text of a note.
pub fn check_body(body: &str) -> Result<(), Violations> {
    let mut violations = Violations::new();
    violations.require(!body.trim().is_empty(), "note", "can't be blank");
    violations.max_length("note", body, MAX_TEXT_LENGTH);
    violations.into_result()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_neither_blank_nor_too_long() {
        let check = |body: &str, expected: &str| {
            let violations = check_body(body).err().map(|violations| violations.to_string());
            assert_eq!(violations.unwrap_or_default(), expected);
        };
        check("x", "");
        check(&"ä".repeat(MAX_TEXT_LENGTH), "");
        check(" \n\t", "note can't be blank");
        check(&"x".repeat(MAX_TEXT_LENGTH + 1), "note is too long (maximum is 100000 characters)");
    }
}
