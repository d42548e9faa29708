//! Projects.

use std::fmt;

use crate::{
    Change, ForkLinkId, Namespace, NamespaceId, ProjectId, Role, StorageId, Time, UserId, Violations, Visibility,
    avatars::AvatarOwner, imports::ImportStatus, members::SharedGroup, namespaces::MAX_LENGTH, text,
    users::UserSummary,
};

const MAX_DESCRIPTION_LENGTH: usize = 2000;
const NAME_FORMAT: &str = "can contain only letters, digits, emojis, '_', '.', dash, space. \
                           It must start with letter, digit, emoji or '_'.";
const PATH_FORMAT: &str = "can contain only letters, digits, '_', '-' and '.'. \
                           Cannot start with '-', end in '.git' or end in '.atom'";

/// Paths that are routes below a namespace.
const RESERVED: &[&str] = &[
    ".well-known",
    "all",
    "artifacts",
    "assets",
    "badges",
    "blame",
    "blob",
    "commits",
    "create",
    "create_dir",
    "edit",
    "files",
    "find_file",
    "graphs",
    "groups",
    "hooks",
    "issues",
    "logs_tree",
    "merge_requests",
    "new",
    "preview",
    "profile",
    "projects",
    "public",
    "raw",
    "refs",
    "repository",
    "robots.txt",
    "s",
    "snippets",
    "teams",
    "tree",
    "u",
    "unsubscribes",
    "update",
    "uploads",
    "users",
    "wikis",
];

/// A project with everything needed to render it.
#[derive(Clone, Debug)]
pub struct Project {
    /// The ID of the project; it never changes.
    pub id: ProjectId,
    /// The namespace that contains it.
    pub namespace: Namespace,
    /// The owner, if it is in a personal namespace.
    pub owner: Option<UserSummary>,
    /// The ID of the creator, who may have been deleted.
    pub creator_id: UserId,
    /// The display name.
    pub name: String,
    /// The path in URLs.
    pub path: String,
    /// The description.
    pub description: Option<String>,
    /// The branch that HEAD points to; `None` while the repository has no branch.
    pub default_branch: Option<String>,
    /// The name of the uploaded avatar.
    pub avatar: Option<String>,
    /// The visibility.
    pub visibility: Visibility,
    /// Whether it is archived.
    pub archived: bool,
    /// The number of stars.
    pub star_count: i64,
    /// The number of forks.
    pub forks_count: i64,
    /// The feature flags.
    pub features: ProjectFeatures<bool>,
    /// Whether Git LFS is enabled; `None` means the setting of the group.
    pub lfs_enabled: Option<bool>,
    /// The seed of the runners token.
    pub runners_seed: TokenSeed,
    /// Identifies the directories of its repository and files.
    pub storage: StorageId,
    /// The time at which it was created.
    pub created_at: Time,
    /// The time at which its settings last changed.
    pub updated_at: Time,
    /// The time of its last activity.
    pub last_activity_at: Time,
    /// The groups it is shared with.
    pub shared_with: Vec<SharedGroup>,
    /// The ID of the project it was forked from, which may be pending deletion.
    pub fork_of: Option<ProjectId>,
    /// The project it was forked from, if the caller can see it.
    pub forked_from: Option<ForkSource>,
    /// The status of the import of its repository, if it was imported.
    pub import: Option<ImportStatus>,
    /// The number of open issues, not counting confidential issues unless the caller can see all of them.
    pub open_issues: i64,
    /// The roles of the caller.
    pub access: ProjectAccess,
}

/// The fork relation between two projects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkLink {
    /// The ID of the link.
    pub id: ForkLinkId,
    /// The ID of the fork.
    pub project: ProjectId,
    /// The ID of the project it was forked from.
    pub source: ProjectId,
    /// The time at which the link was created.
    pub created_at: Time,
    /// The time at which the link last changed.
    pub updated_at: Time,
}

/// The summary of a project that another one was forked from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkSource {
    /// The ID of the project.
    pub id: ProjectId,
    /// The display name.
    pub name: String,
    /// The path in URLs.
    pub path: String,
    /// The display name of its group or user.
    pub namespace_name: String,
    /// The full path of its namespace.
    pub namespace_path: String,
    /// The visibility.
    pub visibility: Visibility,
}

impl ForkSource {
    /// Returns the full path of the project.
    pub fn full_path(&self) -> String {
        format!("{}/{}", self.namespace_path, self.path)
    }
}

/// The roles of a user in a project, by source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProjectAccess {
    /// The role as a member of the project.
    pub project: Option<Role>,
    /// The role as a member of the project's group or one of its ancestors.
    pub group: Option<Role>,
    /// The role through a group that the project is shared with.
    pub share: Option<Role>,
    /// Whether the user owns the personal namespace that contains it.
    pub owns: bool,
}

impl ProjectAccess {
    /// Returns the highest of the roles.
    pub fn role(self) -> Option<Role> {
        let owner = self.owns.then_some(Role::Owner);
        self.project.max(self.group).max(self.share).max(owner)
    }
}

/// Random bytes from which a token is derived; hidden in `Debug` output.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenSeed(pub Vec<u8>);

impl fmt::Debug for TokenSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl Project {
    /// Returns the path of the uploaded avatar.
    pub fn avatar_path(&self) -> Option<String> {
        self.avatar.as_deref().map(|name| AvatarOwner::Project(self.id).path(name))
    }

    /// Returns the full path of the project.
    pub fn full_path(&self) -> String {
        [self.namespace.full_path.as_str(), "/", &self.path].concat()
    }

    /// Returns whether issues or merge requests are enabled; without either, labels and milestones are hidden as well.
    pub fn has_tracker(&self) -> bool {
        self.features.issues_enabled || self.features.merge_requests_enabled
    }
}

/// A reference to a namespace in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceRef {
    /// By ID.
    Id(NamespaceId),
    /// By its full path.
    Path(String),
}

impl NamespaceRef {
    /// Parses an ID or a full path.
    pub fn parse(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Path(text.to_owned()), Self::Id)
    }
}

/// The feature flags of a project: `ProjectFeatures<bool>` holds their values, `ProjectFeatures<Option<bool>>` changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the REST API")]
pub struct ProjectFeatures<T> {
    pub issues_enabled: T,
    pub merge_requests_enabled: T,
    pub wiki_enabled: T,
    pub builds_enabled: T,
    pub snippets_enabled: T,
    pub container_registry_enabled: T,
    pub shared_runners_enabled: T,
    pub public_builds: T,
    pub only_allow_merge_if_build_succeeds: T,
    pub only_allow_merge_if_all_discussions_are_resolved: T,
    pub request_access_enabled: T,
}

impl ProjectFeatures<bool> {
    /// Returns the flags of a new project.
    pub fn new() -> Self {
        Self {
            issues_enabled: true,
            merge_requests_enabled: true,
            wiki_enabled: true,
            builds_enabled: true,
            snippets_enabled: false,
            container_registry_enabled: true,
            shared_runners_enabled: true,
            public_builds: true,
            only_allow_merge_if_build_succeeds: false,
            only_allow_merge_if_all_discussions_are_resolved: false,
            request_access_enabled: false,
        }
    }

    /// Returns the flags with unsupported features turned off: merge requests, wikis, snippets and the container registry are
    /// not implemented yet; their flags are only stored.
    pub fn supported(self) -> Self {
        Self {
            merge_requests_enabled: false,
            wiki_enabled: false,
            snippets_enabled: false,
            container_registry_enabled: false,
            ..self
        }
    }

    /// Returns the flags with changes applied.
    pub fn with(self, changes: &ProjectFeatures<Option<bool>>) -> Self {
        Self {
            issues_enabled: changes.issues_enabled.unwrap_or(self.issues_enabled),
            merge_requests_enabled: changes.merge_requests_enabled.unwrap_or(self.merge_requests_enabled),
            wiki_enabled: changes.wiki_enabled.unwrap_or(self.wiki_enabled),
            builds_enabled: changes.builds_enabled.unwrap_or(self.builds_enabled),
            snippets_enabled: changes.snippets_enabled.unwrap_or(self.snippets_enabled),
            container_registry_enabled: changes.container_registry_enabled.unwrap_or(self.container_registry_enabled),
            shared_runners_enabled: changes.shared_runners_enabled.unwrap_or(self.shared_runners_enabled),
            public_builds: changes.public_builds.unwrap_or(self.public_builds),
            only_allow_merge_if_build_succeeds: changes
                .only_allow_merge_if_build_succeeds
                .unwrap_or(self.only_allow_merge_if_build_succeeds),
            only_allow_merge_if_all_discussions_are_resolved: changes
                .only_allow_merge_if_all_discussions_are_resolved
                .unwrap_or(self.only_allow_merge_if_all_discussions_are_resolved),
            request_access_enabled: changes.request_access_enabled.unwrap_or(self.request_access_enabled),
        }
    }
}

/// A project to create.
#[derive(Clone, Debug, Default)]
pub struct NewProject {
    /// The display name.
    pub name: String,
    /// The path in URLs; derived from the name if absent.
    pub path: Option<String>,
    /// The target namespace; `None` means the personal one.
    pub namespace: Option<NamespaceRef>,
    /// The description.
    pub description: Option<String>,
    /// The visibility; private if absent.
    pub visibility: Option<Visibility>,
    /// The feature flags.
    pub features: ProjectFeatures<Option<bool>>,
    /// Whether Git LFS is enabled.
    pub lfs_enabled: Option<bool>,
    /// The URL to import the repository from.
    pub import_url: Option<String>,
}

impl NewProject {
    /// Returns the path, derived from the name if none was given.
    pub fn path_or_default(&self) -> String {
        self.path.clone().unwrap_or_else(|| path_from_name(&self.name))
    }

    /// Validates the fields that can be checked without the database.
    pub fn check(&self, violations: &mut Violations) {
        check_name(&self.name, violations);
        check_path(&self.path_or_default(), violations);
        check_description(self.description.as_deref(), violations);
    }
}

/// The fields of a project to change.
#[derive(Clone, Debug, Default)]
pub struct ProjectChanges {
    /// The display name.
    pub name: Option<String>,
    /// The path in URLs.
    pub path: Option<String>,
    /// The description.
    pub description: Change<String>,
    /// The visibility.
    pub visibility: Option<Visibility>,
    /// The feature flags.
    pub features: ProjectFeatures<Option<bool>>,
    /// Whether Git LFS is enabled.
    pub lfs_enabled: Option<bool>,
}

impl ProjectChanges {
    /// Validates the fields that can be checked without the database.
    pub fn check(&self, violations: &mut Violations) {
        if let Some(name) = &self.name {
            check_name(name, violations);
        }
        if let Some(path) = &self.path {
            check_path(path, violations);
        }
        check_description(self.description.set().map(String::as_str), violations);
    }
}

fn check_name(name: &str, violations: &mut Violations) {
    if name.trim().is_empty() {
        violations.add("name", "can't be blank");
        return;
    }
    violations.max_length("name", name, MAX_LENGTH);
    let first = |c: char| c.is_alphanumeric() || text::is_emoji(c) || c == '_';
    let further = |c: char| first(c) || text::is_dash(c) || matches!(c, '.' | ' ');
    let valid = name.chars().next().is_some_and(first) && text::is_name_made_of(name, further);
    violations.require(valid, "name", NAME_FORMAT);
}

fn check_path(path: &str, violations: &mut Violations) {
    if path.trim().is_empty() {
        violations.add("path", "can't be blank");
    }
    violations.max_length("path", path, MAX_LENGTH);
    violations.require(is_path(path), "path", PATH_FORMAT);
    let reserved = RESERVED.iter().any(|name| name.eq_ignore_ascii_case(path));
    violations.require(!reserved, "path", format!("{path} is a reserved name"));
}

fn check_description(description: Option<&str>, violations: &mut Violations) {
    violations.max_length("description", description.unwrap_or_default(), MAX_DESCRIPTION_LENGTH);
}

pub(crate) fn is_path(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    !path.is_empty()
        && path.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
        && !path.starts_with('-')
        && !lower.ends_with(".git")
        && !lower.ends_with(".atom")
        && path != "."
        && path != ".."
}

/// Derives a path from a name: ASCII letters, digits and `_`, with one dash for each run of other characters.
pub fn path_from_name(name: &str) -> String {
    let mut path = String::with_capacity(name.len());
    for c in text::strip_accents(name).chars().flat_map(char::to_lowercase) {
        let mapped = if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
        if mapped != '-' || !path.ends_with('-') {
            path.push(mapped);
        }
    }
    path.trim_matches('-').to_owned()
}

/// The sort key of a list of projects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProjectOrder {
    /// By ID.
    Id,
    /// By name, ignoring case.
    Name,
    /// By path, ignoring case.
    Path,
    /// By time of creation.
    #[default]
    CreatedAt,
    /// By time of the last change.
    UpdatedAt,
    /// By time of the last activity.
    LastActivityAt,
}

/// Restricts and orders a list of projects.
#[derive(Clone, Debug, Default)]
pub struct ProjectFilter {
    /// Only archived projects, or only others.
    pub archived: Option<bool>,
    /// Only projects with exactly this visibility.
    pub visibility: Option<Visibility>,
    /// Only projects whose name, path, description or namespace name contains this text.
    pub search: Option<String>,
    /// The sort key; ties are broken by ID.
    pub order: ProjectOrder,
    /// Order ascending.
    pub ascending: bool,
    /// Projects with CI enabled first.
    pub builds_first: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_derived_from_the_name() {
        let check = |name: &str, expected: &str| assert_eq!(path_from_name(name), expected, "{name}");
        check("My Project.v2", "my-project-v2");
        check("foo_bar", "foo_bar");
        check("Ünïcode", "unicode");
        check("日本語", "");
        check("  a -- b  ", "a-b");
        check("C++ & friends!", "c-friends");
        check("Straße", "strasse");
        check("Łódź", "lodz");
    }

    #[test]
    fn names_and_paths_are_validated() {
        let verdict = |name: &str, path: Option<&str>| {
            let project = NewProject { name: name.into(), path: path.map(Into::into), ..NewProject::default() };
            let mut violations = Violations::new();
            project.check(&mut violations);
            violations.to_string()
        };
        for good in
            ["Rocket", "Rocket 2.0", "_x", "日本語 x", "🚀 go", "👩‍🚀", "1️⃣", "a – b", "தமிழ்", "हिन्दी", "cafe\u{301}"]
        {
            assert_eq!(verdict(good, Some("p")), "", "{good}");
        }
        for bad in ["-x", " x", ".x", "a/b", "a<b>", "x\n", "Roc\u{200d}ket", "\u{301}x"] {
            assert_eq!(verdict(bad, Some("p")), format!("name {NAME_FORMAT}"), "{bad:?}");
        }
        for good in ["p", ".p", "p.", "_p-", "P.q", "7"] {
            assert_eq!(verdict("x", Some(good)), "", "{good}");
        }
        for bad in ["-p", "p.git", "p.GIT", "p.atom", ".", "..", "a/b", "ä", "p q", "p\0"] {
            assert_eq!(verdict("x", Some(bad)), format!("path {PATH_FORMAT}"), "{bad:?}");
        }
        assert_eq!(verdict("x", Some("Tree")), "path Tree is a reserved name");
        assert_eq!(verdict("日本語", None), format!("path can't be blank, {PATH_FORMAT}"));
        assert_eq!(verdict("", Some("p")), "name can't be blank");
        assert_eq!(verdict(&"x".repeat(256), Some("p")), "name is too long (maximum is 255 characters)");
    }

    #[test]
    fn the_highest_role_of_all_sources_counts() {
        let check = |access: ProjectAccess, expected| assert_eq!(access.role(), expected, "{access:?}");
        check(ProjectAccess::default(), None);
        check(
            ProjectAccess { project: Some(Role::Guest), group: Some(Role::Master), ..ProjectAccess::default() },
            Some(Role::Master),
        );
        check(ProjectAccess { share: Some(Role::Developer), ..ProjectAccess::default() }, Some(Role::Developer));
        check(ProjectAccess { project: Some(Role::Guest), owns: true, ..ProjectAccess::default() }, Some(Role::Owner));
    }
}
