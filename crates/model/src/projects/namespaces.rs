//! Namespaces: the tree of paths in which users, groups and projects live.

use crate::{Time, Violations, Visibility};

/// A place where projects live: that of a user, or a group.
#[derive(Clone, Debug)]
pub struct Namespace {
    /// Its number.
    pub id: i64,
    /// The one it lives in.
    pub parent_id: Option<i64>,
    /// Whose it is.
    pub kind: NamespaceKind,
    /// The user, if it is a personal one.
    pub owner_id: Option<i64>,
    /// The name people read.
    pub name: String,
    /// Its own part of the path.
    pub path: String,
    /// The path from the root.
    pub full_path: String,
    /// What it is about.
    pub description: String,
    /// How far it can be seen.
    pub visibility: Visibility,
    /// Whether its projects may not be shared with groups.
    pub share_with_group_lock: bool,
    /// Whether people may ask to be let in.
    pub request_access_enabled: bool,
    /// Whether large files are kept apart; `None` is as the server says.
    pub lfs_enabled: Option<bool>,
    /// When it was made.
    pub created_at: Time,
    /// When it last changed.
    pub updated_at: Time,
}

impl Namespace {
    /// The path from the root, if its own part of it were another.
    pub fn full_path_with(&self, path: &str) -> String {
        let above = self.full_path.strip_suffix(&self.path).unwrap_or_default();
        format!("{above}{path}")
    }
}

/// What a namespace belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceKind {
    /// The personal namespace of a user.
    User,
    /// A group.
    Group,
}

impl NamespaceKind {
    /// The word that is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Group => "group",
        }
    }

    /// What a stored word means.
    pub fn from_word(word: &str) -> Self {
        if word == "user" { Self::User } else { Self::Group }
    }
}

/// First path segments that the service needs for itself.
const RESERVED: &[&str] = &[
    "-",
    ".well-known",
    "admin",
    "all",
    "api",
    "assets",
    "ci",
    "dashboard",
    "files",
    "groups",
    "help",
    "hooks",
    "issues",
    "merge_requests",
    "new",
    "notes",
    "oauth",
    "owned",
    "profile",
    "projects",
    "public",
    "repository",
    "robots.txt",
    "s",
    "search",
    "services",
    "snippets",
    "teams",
    "u",
    "unsubscribes",
    "uploads",
    "users",
];

/// The longest path segment taken.
pub const LONGEST: usize = 255;

const FORMAT: &str = "can contain only letters, digits, '_', '-' and '.'. \
                      Cannot start with '-' or end in '.', '.git' or '.atom'.";

/// Checks a top-level path: a username or the path of a group.
pub fn check_path(field: &str, path: &str, violations: &mut Violations) {
    if path.is_empty() {
        violations.add(field, "can't be blank");
        return;
    }
    violations.longest(field, path, LONGEST);
    violations.unless(is_well_formed(path), field, FORMAT);
    let reserved = RESERVED.iter().any(|name| name.eq_ignore_ascii_case(path));
    violations.unless(!reserved, field, format!("{path} is a reserved name"));
}

pub(crate) fn is_well_formed(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    path.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
        && !path.starts_with('-')
        && !path.ends_with('.')
        && !lower.ends_with(".git")
        && !lower.ends_with(".atom")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_plain_and_not_reserved() {
        let verdict = |path: &str| {
            let mut violations = Violations::new();
            check_path("username", path, &mut violations);
            violations.to_string()
        };
        for good in ["a", "_", "ann", "ann.lee", "_x-", "7", ".hidden", "a-b_c.d"] {
            assert_eq!(verdict(good), "", "{good}");
        }
        let format = format!("username {FORMAT}");
        for bad in ["-ann", "ann.", "ann.git", "ann.ATOM", "ann lee", "änn", "a/b", "..", ".", "a\0b"] {
            assert_eq!(verdict(bad), format, "{bad:?}");
        }
        assert_eq!(verdict("Admin"), "username Admin is a reserved name");
        assert_eq!(verdict(""), "username can't be blank");
    }
}
