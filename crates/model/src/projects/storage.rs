//! Identifiers of project data outside the database.

use std::{fmt, sync::Arc};

/// Identifies the directories of the repository and the files of a project.
///
/// It is random, so no project ever reuses the directories of another one, whatever its ID. Projects that are older than
/// storage IDs use their project ID.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StorageId(Arc<str>);

impl StorageId {
    /// Parses an ID: lower-case hexadecimal digits, which are safe in a path.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        ((1..=64).contains(&text.len()) && text.bytes().all(is_digit)).then(|| Self(text.into()))
    }

    /// Returns the stored text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StorageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_id_is_safe_in_a_path() {
        for good in ["7", "9223372036854775807", "00ff00ff00ff00ff00ff00ff00ff00ff"] {
            assert_eq!(StorageId::parse(good).expect(good).as_str(), good);
        }
        for bad in ["", "..", "a/b", "A", "g", "0 ", "-1", &"0".repeat(65)] {
            assert!(StorageId::parse(bad).is_none(), "{bad}");
        }
    }
}
