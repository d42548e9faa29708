//! Groups: namespaces that several people share.

use crate::{
    Change, Violations, Visibility,
    namespaces::{self, check_path},
};

/// The longest description of a group.
const LONGEST_DESCRIPTION: usize = 255;
const NAME_FORMAT: &str = "can contain only letters, digits, '_', '.', dash and space.";

/// A group about to be made.
#[derive(Clone, Debug)]
pub struct NewGroup {
    /// The name people read.
    pub name: String,
    /// The path in URLs.
    pub path: String,
    /// What it is about.
    pub description: String,
    /// How far it can be seen.
    pub visibility: Visibility,
    /// Whether large files are kept apart; `None` is as the server says.
    pub lfs_enabled: Option<bool>,
    /// Whether people may ask to be let in.
    pub request_access_enabled: bool,
}

/// What an edit changes about a group.
#[derive(Clone, Debug, Default)]
pub struct GroupChanges {
    /// The name people read.
    pub name: Option<String>,
    /// The path in URLs.
    pub path: Option<String>,
    /// What it is about.
    pub description: Change<String>,
    /// How far it can be seen.
    pub visibility: Option<Visibility>,
    /// Whether large files are kept apart.
    pub lfs_enabled: Option<bool>,
    /// Whether people may ask to be let in.
    pub request_access_enabled: Option<bool>,
}

impl NewGroup {
    /// Notes what is wrong with it by itself.
    pub fn check(&self, violations: &mut Violations) {
        check_name(&self.name, violations);
        check_path("path", &self.path, violations);
        violations.longest("description", &self.description, LONGEST_DESCRIPTION);
    }
}

impl GroupChanges {
    /// Notes what is wrong with them by themselves.
    pub fn check(&self, violations: &mut Violations) {
        if let Some(name) = &self.name {
            check_name(name, violations);
        }
        if let Some(path) = &self.path {
            check_path("path", path, violations);
        }
        if let Some(description) = self.description.set() {
            violations.longest("description", description, LONGEST_DESCRIPTION);
        }
    }
}

fn check_name(name: &str, violations: &mut Violations) {
    if name.trim().is_empty() {
        violations.add("name", "can't be blank");
        return;
    }
    violations.longest("name", name, namespaces::LONGEST);
    let plain = |c: char| c.is_alphanumeric() || crate::text::is_dash(c) || matches!(c, '_' | '.' | ' ');
    violations.unless(crate::text::is_name_of(name, plain), "name", NAME_FORMAT);
}

/// Which groups a list is about.
#[derive(Clone, Debug, Default)]
pub struct GroupFilter {
    /// Not only those one belongs to, but all that one can see.
    pub all_available: bool,
    /// Groups to leave out.
    pub skip: Vec<i64>,
    /// A part of name or path.
    pub search: Option<String>,
    /// By path and not by name.
    pub by_path: bool,
    /// Backwards.
    pub descending: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_readable() {
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
