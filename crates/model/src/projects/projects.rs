//! Projects.

use std::fmt;

use crate::{
    Change, Namespace, Role, StorageId, Time, Violations, Visibility, imports::ImportStatus, members::SharedGroup,
    namespaces::LONGEST, text, users::UserSummary,
};

const LONGEST_DESCRIPTION: usize = 2000;
const NAME_FORMAT: &str = "can contain only letters, digits, emojis, '_', '.', dash, space. \
                           It must start with letter, digit, emoji or '_'.";
const PATH_FORMAT: &str = "can contain only letters, digits, '_', '-' and '.'. \
                           Cannot start with '-', end in '.git' or end in '.atom'";

/// Paths that mean something else below a project's namespace.
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

/// A project with what one needs to show it.
#[derive(Clone, Debug)]
pub struct Project {
    /// Its number, for good.
    pub id: i64,
    /// Where it lives.
    pub namespace: Namespace,
    /// To whom it belongs, if it lives in a personal namespace.
    pub owner: Option<UserSummary>,
    /// Who made it; perhaps no longer a user.
    pub creator_id: i64,
    /// The name people read.
    pub name: String,
    /// The path in URLs.
    pub path: String,
    /// What it is about.
    pub description: Option<String>,
    /// The branch that HEAD names; `None` while there is no branch.
    pub default_branch: Option<String>,
    /// How far it can be seen.
    pub visibility: Visibility,
    /// Whether it is put away.
    pub archived: bool,
    /// How many have starred it.
    pub star_count: i64,
    /// How many forks there are.
    pub forks_count: i64,
    /// What is switched on.
    pub switches: Switches<bool>,
    /// Whether large files are kept apart; `None` is as the group says.
    pub lfs_enabled: Option<bool>,
    /// From what the runners' token is made.
    pub runners_seed: Seed,
    /// Where its repository and its files lie.
    pub storage: StorageId,
    /// When it was made.
    pub created_at: Time,
    /// When something about it last changed.
    pub updated_at: Time,
    /// When something last happened in it.
    pub last_activity_at: Time,
    /// The groups it is shared with.
    pub shared_with: Vec<SharedGroup>,
    /// The number of the project that it was forked from, perhaps one that is being removed.
    pub fork_of: Option<i64>,
    /// The project that it was forked from, if the caller sees that.
    pub forked_from: Option<ForkSource>,
    /// How far the import of its repository has come, if that comes from elsewhere.
    pub import: Option<ImportStatus>,
    /// How many of its issues are open, of those that the caller sees without being named in them.
    pub open_issues: i64,
    /// What the caller is to it by membership.
    pub access: Access,
}

/// That a project was forked from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkLink {
    /// Number of the link.
    pub id: i64,
    /// The fork.
    pub project: i64,
    /// What it was forked from.
    pub source: i64,
    /// When that was noted.
    pub created_at: Time,
    /// When that was last changed.
    pub updated_at: Time,
}

/// A project that another one was forked from, in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkSource {
    /// Its number.
    pub id: i64,
    /// The name people read.
    pub name: String,
    /// The path in URLs.
    pub path: String,
    /// The name of where it lives: that of the group, or of the user.
    pub namespace_name: String,
    /// The full path of where it lives.
    pub namespace_path: String,
    /// How far it can be seen.
    pub visibility: Visibility,
}

impl ForkSource {
    /// The path by which it is found.
    pub fn full_path(&self) -> String {
        format!("{}/{}", self.namespace_path, self.path)
    }
}

/// What somebody is to a project, by where it comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// By membership of the project.
    pub project: Option<Role>,
    /// By membership of the group it lives in, or of one above.
    pub group: Option<Role>,
    /// By membership of a group it is shared with.
    pub share: Option<Role>,
    /// By owning the personal namespace it lives in.
    pub owns: bool,
}

impl Access {
    /// The most that any of them gives.
    pub fn role(self) -> Option<Role> {
        let owner = self.owns.then_some(Role::Owner);
        self.project.max(self.group).max(self.share).max(owner)
    }
}

/// Bytes from which a token is made; they do not print.
#[derive(Clone, PartialEq, Eq)]
pub struct Seed(pub Vec<u8>);

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl Project {
    /// The path by which it is found.
    pub fn full_path(&self) -> String {
        format!("{}/{}", self.namespace.full_path, self.path)
    }

    /// Whether there is anything that could carry labels or belong to milestones: without, nobody sees those either.
    pub fn tracks_work(&self) -> bool {
        self.switches.issues_enabled || self.switches.merge_requests_enabled
    }
}

/// A namespace as a request names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceRef {
    /// By number.
    Id(i64),
    /// By its full path.
    Path(String),
}

impl NamespaceRef {
    /// Reads a number or a full path.
    pub fn parse(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Path(text.to_owned()), Self::Id)
    }
}

/// What can be switched on and off: `Switches<bool>` is a state, `Switches<Option<bool>>` what somebody wants changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the interface")]
pub struct Switches<T> {
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

impl Switches<bool> {
    /// How a new project begins.
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

    /// What the server offers of what is switched on. Merge requests, wikis, snippets and the container registry do not
    /// exist yet; their switches are stored for the day they do.
    pub fn offered(self) -> Self {
        Self {
            merge_requests_enabled: false,
            wiki_enabled: false,
            snippets_enabled: false,
            container_registry_enabled: false,
            ..self
        }
    }

    /// The state after what was wanted.
    pub fn with(self, wanted: &Switches<Option<bool>>) -> Self {
        Self {
            issues_enabled: wanted.issues_enabled.unwrap_or(self.issues_enabled),
            merge_requests_enabled: wanted.merge_requests_enabled.unwrap_or(self.merge_requests_enabled),
            wiki_enabled: wanted.wiki_enabled.unwrap_or(self.wiki_enabled),
            builds_enabled: wanted.builds_enabled.unwrap_or(self.builds_enabled),
            snippets_enabled: wanted.snippets_enabled.unwrap_or(self.snippets_enabled),
            container_registry_enabled: wanted.container_registry_enabled.unwrap_or(self.container_registry_enabled),
            shared_runners_enabled: wanted.shared_runners_enabled.unwrap_or(self.shared_runners_enabled),
            public_builds: wanted.public_builds.unwrap_or(self.public_builds),
            only_allow_merge_if_build_succeeds: wanted
                .only_allow_merge_if_build_succeeds
                .unwrap_or(self.only_allow_merge_if_build_succeeds),
            only_allow_merge_if_all_discussions_are_resolved: wanted
                .only_allow_merge_if_all_discussions_are_resolved
                .unwrap_or(self.only_allow_merge_if_all_discussions_are_resolved),
            request_access_enabled: wanted.request_access_enabled.unwrap_or(self.request_access_enabled),
        }
    }
}

/// A project about to be made.
#[derive(Clone, Debug, Default)]
pub struct NewProject {
    /// The name people read.
    pub name: String,
    /// The path in URLs; made from the name if there is none.
    pub path: Option<String>,
    /// The namespace it is created in; `None` is the personal one.
    pub namespace: Option<NamespaceRef>,
    /// What it is about.
    pub description: Option<String>,
    /// How far it can be seen; private if nothing is said.
    pub visibility: Option<Visibility>,
    /// What is switched on.
    pub switches: Switches<Option<bool>>,
    /// Whether large files are kept apart.
    pub lfs_enabled: Option<bool>,
    /// From where the repository shall come.
    pub import_url: Option<String>,
}

impl NewProject {
    /// The path it gets.
    pub fn chosen_path(&self) -> String {
        self.path.clone().unwrap_or_else(|| path_from(&self.name))
    }

    /// Notes what is wrong with it by itself.
    pub fn check(&self, violations: &mut Violations) {
        check_name(&self.name, violations);
        check_path(&self.chosen_path(), violations);
        check_description(self.description.as_deref(), violations);
    }
}

/// What an edit changes about a project.
#[derive(Clone, Debug, Default)]
pub struct ProjectChanges {
    /// The name people read.
    pub name: Option<String>,
    /// The path in URLs.
    pub path: Option<String>,
    /// What it is about.
    pub description: Change<String>,
    /// How far it can be seen.
    pub visibility: Option<Visibility>,
    /// What is switched on.
    pub switches: Switches<Option<bool>>,
    /// Whether large files are kept apart.
    pub lfs_enabled: Option<bool>,
}

impl ProjectChanges {
    /// Notes what is wrong with them by themselves.
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
    violations.longest("name", name, LONGEST);
    let beginning = |c: char| c.is_alphanumeric() || text::is_emoji(c) || c == '_';
    let further = |c: char| beginning(c) || text::is_dash(c) || matches!(c, '.' | ' ');
    let readable = name.chars().next().is_some_and(beginning) && text::is_name_of(name, further);
    violations.unless(readable, "name", NAME_FORMAT);
}

fn check_path(path: &str, violations: &mut Violations) {
    if path.trim().is_empty() {
        violations.add("path", "can't be blank");
    }
    violations.longest("path", path, LONGEST);
    violations.unless(is_path(path), "path", PATH_FORMAT);
    let reserved = RESERVED.iter().any(|name| name.eq_ignore_ascii_case(path));
    violations.unless(!reserved, "path", format!("{path} is a reserved name"));
}

fn check_description(description: Option<&str>, violations: &mut Violations) {
    violations.longest("description", description.unwrap_or_default(), LONGEST_DESCRIPTION);
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

/// The path that a name makes: plain letters, digits and `_`, with one dash for each run of anything else.
pub fn path_from(name: &str) -> String {
    let mut path = String::with_capacity(name.len());
    for c in text::without_accents(name).chars().flat_map(char::to_lowercase) {
        let kept = if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
        if kept != '-' || !path.ends_with('-') {
            path.push(kept);
        }
    }
    path.trim_matches('-').to_owned()
}

/// What a list of projects is sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProjectOrder {
    /// By number.
    Id,
    /// By name, in whatever case.
    Name,
    /// By path, in whatever case.
    Path,
    /// By when it was made.
    #[default]
    CreatedAt,
    /// By when something about it last changed.
    UpdatedAt,
    /// By when something last happened in it.
    LastActivityAt,
}

/// Which projects of a list are wanted, and in which order.
#[derive(Clone, Debug, Default)]
pub struct ProjectFilter {
    /// Only those that are put away, or only the others.
    pub archived: Option<bool>,
    /// Only those that can be seen exactly so far.
    pub visibility: Option<Visibility>,
    /// A part of name, path, description or the name of the namespace.
    pub search: Option<String>,
    /// What they are sorted by; what is equal goes by number.
    pub order: ProjectOrder,
    /// Forwards and not backwards.
    pub ascending: bool,
    /// Those with builds first.
    pub builds_first: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_makes_a_path() {
        let check = |name: &str, expected: &str| assert_eq!(path_from(name), expected, "{name}");
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
    fn names_are_readable_and_paths_are_plain() {
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
    fn the_most_that_any_source_gives_counts() {
        let check = |access: Access, expected| assert_eq!(access.role(), expected, "{access:?}");
        check(Access::default(), None);
        check(
            Access { project: Some(Role::Guest), group: Some(Role::Master), ..Access::default() },
            Some(Role::Master),
        );
        check(Access { share: Some(Role::Developer), ..Access::default() }, Some(Role::Developer));
        check(Access { project: Some(Role::Guest), owns: true, ..Access::default() }, Some(Role::Owner));
    }
}
