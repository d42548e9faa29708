//! Groups: namespaces shared by several users.

use crate::{
    Change, NamespaceId, Violations, Visibility,
    namespaces::{self, check_path},
};

/// The maximum length of the description of a group.
const MAX_DESCRIPTION_LENGTH: usize = 255;
const NAME_FORMAT: &str = "can contain only letters, digits, '_', '.', dash and space.";

/// A group to create.
#[derive(Clone, Debug)]
pub struct NewGroup {
    /// The display name.
    pub name: String,
    /// The path in URLs.
    pub path: String,
    /// The description.
    pub description: String,
    /// The visibility.
    pub visibility: Visibility,
    /// Whether Git LFS is enabled; `None` means the default of the instance.
    pub lfs_enabled: Option<bool>,
    /// Whether users may request access.
    pub request_access_enabled: bool,
}

/// The fields of a group to change.
#[derive(Clone, Debug, Default)]
pub struct GroupChanges {
    /// The display name.
    pub name: Option<String>,
    /// The path in URLs.
    pub path: Option<String>,
    /// The description.
    pub description: Change<String>,
    /// The visibility.
    pub visibility: Option<Visibility>,
    /// Whether Git LFS is enabled.
    pub lfs_enabled: Option<bool>,
    /// Whether users may request access.
    pub request_access_enabled: Option<bool>,
}

impl NewGroup {
    /// Validates the fields that can be checked without the database.
    pub fn check(&self, violations: &mut Violations) {
        check_name(&self.name, violations);
        check_path("path", &self.path, violations);
        violations.max_length("description", &self.description, MAX_DESCRIPTION_LENGTH);
    }
}

impl GroupChanges {
    /// Validates the fields that can be checked without the database.
    pub fn check(&self, violations: &mut Violations) {
        if let Some(name) = &self.name {
            check_name(name, violations);
        }
        if let Some(path) = &self.path {
            check_path("path", path, violations);
        }
        if let Some(description) = self.description.set() {
            violations.max_length("description", description, MAX_DESCRIPTION_LENGTH);
        }
    }
}

fn check_name(name: &str, violations: &mut Violations) {
    if name.trim().is_empty() {
        violations.add("name", "can't be blank");
        return;
    }
    violations.max_length("name", name, namespaces::MAX_LENGTH);
    let allowed = |c: char| c.is_alphanumeric() || crate::text::is_dash(c) || matches!(c, '_' | '.' | ' ');
    violations.require(crate::text::is_name_made_of(name, allowed), "name", NAME_FORMAT);
}

/// Restricts and orders a list of groups.
#[derive(Clone, Debug, Default)]
pub struct GroupFilter {
    /// All groups visible to the caller, not only those of which the caller is a member.
    pub all_available: bool,
    /// IDs of groups to exclude.
    pub skip: Vec<NamespaceId>,
    /// Only groups whose name or path contains this text.
    pub search: Option<String>,
    /// Order by path instead of by name.
    pub by_path: bool,
    /// Order descending.
    pub descending: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_letters_digits_and_a_few_other_characters() {
        let verdict = |name: &str| {
            let mut violations = Violations::new();
            check_name(name, &mut violations);
            violations.to_string()
        };
        for good in ["Acme", "Acme Ltd.", "日本語", "a-b – c", "x_1", "हिन्दी", "ไทยที่", "cafe\u{301}"]
        {
            assert_eq!(verdict(good), "", "{good}");
        }
        for bad in ["a/b", "<b>", "a\tb", "x!"] {
            assert_eq!(verdict(bad), format!("name {NAME_FORMAT}"), "{bad:?}");
        }
        assert_eq!(verdict("  "), "name can't be blank");
        assert_eq!(verdict(&"x".repeat(256)), "name is too long (maximum is 255 characters)");
    }
}
