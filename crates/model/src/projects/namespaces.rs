//! Namespaces: the tree of users and groups that contain projects.

use crate::{NamespaceId, Time, UserId, Violations, Visibility, avatars::AvatarOwner};

/// A namespace of projects: the personal namespace of a user, or a group.
#[derive(Clone, Debug)]
pub struct Namespace {
    /// The ID of the namespace.
    pub id: NamespaceId,
    /// The ID of the parent group.
    pub parent_id: Option<NamespaceId>,
    /// Whether it is personal or a group.
    pub kind: NamespaceKind,
    /// The ID of the user, if it is personal.
    pub owner_id: Option<UserId>,
    /// The display name.
    pub name: String,
    /// The last segment of the path.
    pub path: String,
    /// The path from the root.
    pub full_path: String,
    /// The description.
    pub description: String,
    /// The name of the uploaded avatar, if it is a group.
    pub avatar: Option<String>,
    /// The visibility.
    pub visibility: Visibility,
    /// Whether sharing its projects with groups is disabled.
    pub share_with_group_lock: bool,
    /// Whether users may request access.
    pub request_access_enabled: bool,
    /// Whether Git LFS is enabled; `None` means the default of the instance.
    pub lfs_enabled: Option<bool>,
    /// The time at which it was created.
    pub created_at: Time,
    /// The time at which it last changed.
    pub updated_at: Time,
}

impl Namespace {
    /// Returns the path of the uploaded avatar of a group.
    pub fn avatar_path(&self) -> Option<String> {
        self.avatar.as_deref().map(|name| AvatarOwner::Group(self.id).path(name))
    }

    /// Returns the full path with another last segment.
    pub fn full_path_with(&self, path: &str) -> String {
        let parent = self.full_path.strip_suffix(&self.path).unwrap_or_default();
        format!("{parent}{path}")
    }
}

/// The kind of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceKind {
    /// The personal namespace of a user.
    User,
    /// A group.
    Group,
}

impl NamespaceKind {
    /// The name used in the database and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Group => "group",
        }
    }

    /// Parses a stored name.
    pub fn parse(text: &str) -> Self {
        if text == "user" { Self::User } else { Self::Group }
    }
}

/// First path segments that the server uses itself.
const RESERVED: &[&str] = &[
    "-",
    ".well-known",
    "admin",
    "all",
    "api",
    "assets",
    "ci",
    "dashboard",
    "explore",
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

/// The maximum length of a path segment.
pub const MAX_LENGTH: usize = 255;

const PATH_FORMAT: &str = "can contain only letters, digits, '_', '-' and '.'. \
                      Cannot start with '-' or end in '.', '.git' or '.atom'.";

/// Validates a top-level path: a username or the path of a group.
pub fn check_path(field: &str, path: &str, violations: &mut Violations) {
    if path.is_empty() {
        violations.add(field, "can't be blank");
        return;
    }
    violations.max_length(field, path, MAX_LENGTH);
    violations.require(is_well_formed(path), field, PATH_FORMAT);
    let reserved = RESERVED.iter().any(|name| name.eq_ignore_ascii_case(path));
    violations.require(!reserved, field, format!("{path} is a reserved name"));
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
    fn a_path_is_well_formed_and_not_reserved() {
        let verdict = |path: &str| {
            let mut violations = Violations::new();
            check_path("username", path, &mut violations);
            violations.to_string()
        };
        for good in ["a", "_", "ann", "ann.lee", "_x-", "7", ".hidden", "a-b_c.d"] {
            assert_eq!(verdict(good), "", "{good}");
        }
        let format = format!("username {PATH_FORMAT}");
        for bad in ["-ann", "ann.", "ann.git", "ann.ATOM", "ann lee", "änn", "a/b", "..", ".", "a\0b"] {
            assert_eq!(verdict(bad), format, "{bad:?}");
        }
        assert_eq!(verdict("Admin"), "username Admin is a reserved name");
        assert_eq!(verdict(""), "username can't be blank");
    }
}
