//! Notes: what people say about an issue, and what the service tells of what they did.

use crate::{Time, Violations, users::UserSummary};

/// How long a note or a description may be: a page shows a hundred of them.
pub const LONGEST: usize = 100_000;

/// A note on an issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Number of the note.
    pub id: i64,
    /// The issue that it is about.
    pub issue: i64,
    /// What it says.
    pub body: String,
    /// Who wrote it, or did what it tells; `None` if they are gone.
    pub author: Option<UserSummary>,
    /// Whether the service wrote it.
    pub system: bool,
    /// When it was written.
    pub created_at: Time,
    /// When it was last changed.
    pub updated_at: Time,
}

/// Looks whether a note may say this.
pub fn check_body(body: &str) -> Result<(), Violations> {
    let mut violations = Violations::new();
    violations.unless(!body.trim().is_empty(), "note", "can't be blank");
    violations.longest("note", body, LONGEST);
    violations.into_result()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_says_something_and_not_too_much() {
        let check = |body: &str, expected: &str| {
            let faults = check_body(body).err().map(|faults| faults.to_string());
            assert_eq!(faults.unwrap_or_default(), expected);
        };
        check("x", "");
        check(&"ä".repeat(LONGEST), "");
        check(" \n\t", "note can't be blank");
        check(&"x".repeat(LONGEST + 1), "note is too long (maximum is 100000 characters)");
    }
}
