//! Parameters of projects, most of which lists, creation and updates share.

use forge::projects::{NewShare, ProjectUpdate};
use model::{
    Change, Visibility,
    projects::{NamespaceRef, NewProject, ProjectChanges, ProjectFeatures, ProjectFilter, ProjectOrder},
};

use crate::params::{FromParams, ParamReader};

/// The visibility levels by number.
pub(crate) const VISIBILITY_LEVELS: [(i64, Visibility); 3] =
    [(0, Visibility::Private), (10, Visibility::Internal), (20, Visibility::Public)];
/// The visibility levels by name.
const VISIBILITY_NAMES: [(&str, Visibility); 3] =
    [("public", Visibility::Public), ("internal", Visibility::Internal), ("private", Visibility::Private)];
const PROJECT_ORDERS: [(&str, ProjectOrder); 6] = [
    ("id", ProjectOrder::Id),
    ("name", ProjectOrder::Name),
    ("path", ProjectOrder::Path),
    ("created_at", ProjectOrder::CreatedAt),
    ("updated_at", ProjectOrder::UpdatedAt),
    ("last_activity_at", ProjectOrder::LastActivityAt),
];

/// Parameters of a list of projects.
#[derive(Clone)]
pub(crate) struct ListProjects {
    pub(crate) filter: ProjectFilter,
    pub(crate) simple: bool,
}

impl FromParams for ListProjects {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let filter = ProjectFilter {
            archived: from.flag(
                "archived",
                "Whether to list only archived projects (true) or only others (false); default: both",
            ),
            visibility: from.choice("visibility", &VISIBILITY_NAMES, "Only projects with this visibility"),
            search: from
                .text("search", "Only projects whose name, path, description or namespace name contains this text")
                .filter(|text| !text.is_empty()),
            ..read_order(from)
        };
        Self { filter, simple: read_simple(from) }
    }
}

/// Parameters of a list of the projects of a group.
#[derive(Clone)]
pub(crate) struct ListGroupProjects(pub(crate) ListProjects);

impl FromParams for ListGroupProjects {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let mut list = ListProjects::read(from);
        list.filter.builds_first = from
            .flag("ci_enabled_first", "Whether to list projects with CI enabled first; default: false")
            .unwrap_or(false);
        Self(list)
    }
}

/// Parameters of a search for projects, besides the search text.
#[derive(Clone)]
pub(crate) struct OrderProjects(pub(crate) ListProjects);

impl FromParams for OrderProjects {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(ListProjects { filter: read_order(from), simple: read_simple(from) })
    }
}

fn read_order(from: &mut ParamReader<'_>) -> ProjectFilter {
    ProjectFilter {
        order: from
            .choice("order_by", &PROJECT_ORDERS, "The field to sort by; default: created_at")
            .unwrap_or_default(),
        ascending: from
            .choice("sort", &[("asc", true), ("desc", false)], "The sort direction; default: desc")
            .unwrap_or(false),
        ..ProjectFilter::default()
    }
}

fn read_simple(from: &mut ParamReader<'_>) -> bool {
    from.flag("simple", "Whether to return only the ID, URLs, name and path of each project; default: false")
        .unwrap_or(false)
}

/// Parameters of a new project.
pub(crate) struct CreateProject(pub(crate) NewProject);

impl FromParams for CreateProject {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let name = from.required_text("name", "The display name");
        let path = from.text("path", "The path in URLs; default: derived from the name");
        let namespace = read_namespace(from);
        let description = from.text("description", "The description");
        let (features, lfs_enabled, visibility) = (read_features(from), read_lfs(from), read_visibility(from));
        let import_url = from
            .text("import_url", "The HTTP or HTTPS URL from which the repository is imported")
            .filter(|url| !url.is_empty());
        Self(NewProject { name, path, namespace, description, visibility, features, lfs_enabled, import_url })
    }
}

fn read_namespace(from: &mut ParamReader<'_>) -> Option<NamespaceRef> {
    let id = from.id("namespace_id", "The ID of the namespace; default: the personal namespace of the user");
    let text = from
        .text("namespace", "The ID or full path of the namespace, instead of namespace_id")
        .filter(|text| !text.is_empty());
    from.mutually_exclusive(["namespace_id", "namespace"]);
    id.map(NamespaceRef::Id).or(text.map(|text| NamespaceRef::parse(&text)))
}

/// Parameters of an update of a project.
pub(crate) struct UpdateProject {
    pub(crate) changes: ProjectChanges,
    default_branch: Option<String>,
    import_url: Option<String>,
}

impl UpdateProject {
    pub(crate) fn into_update(self, unchanged_name_allowed: bool) -> ProjectUpdate {
        let Self { changes, default_branch, import_url } = self;
        ProjectUpdate { changes, unchanged_name_allowed, default_branch, import_url }
    }
}

impl FromParams for UpdateProject {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let name = from.text("name", "The display name; required unless the server runs with --dialect gitlab");
        let path = from.text("path", "The path in URLs");
        let description = Change::from_text(from.text("description", "The description"));
        let (features, lfs_enabled, visibility) = (read_features(from), read_lfs(from), read_visibility(from));
        let non_empty = |text: Option<String>| text.filter(|text| !text.is_empty());
        let default_branch = non_empty(from.text("default_branch", "The default branch"));
        let import_url =
            non_empty(from.text("import_url", "The HTTP or HTTPS URL from which an empty repository is imported"));
        let changes = ProjectChanges { name, path, description, visibility, features, lfs_enabled };
        Self { changes, default_branch, import_url }
    }
}

fn read_features(from: &mut ParamReader<'_>) -> ProjectFeatures<Option<bool>> {
    ProjectFeatures {
        issues_enabled: from.flag("issues_enabled", "Whether issues are enabled; initially true"),
        merge_requests_enabled: from
            .flag("merge_requests_enabled", "Stored without effect: Gable has no merge requests"),
        builds_enabled: from.flag("builds_enabled", "Whether CI is enabled; initially true"),
        wiki_enabled: from.flag("wiki_enabled", "Stored without effect: Gable has no wikis"),
        snippets_enabled: from.flag("snippets_enabled", "Stored without effect: Gable has no snippets"),
        container_registry_enabled: from
            .flag("container_registry_enabled", "Stored without effect: Gable has no container registry"),
        shared_runners_enabled: from
            .flag("shared_runners_enabled", "Whether shared runners execute the builds of the project; initially true"),
        public_builds: from.flag("public_builds", "Whether users who are not members can see builds; initially true"),
        only_allow_merge_if_build_succeeds: from
            .flag("only_allow_merge_if_build_succeeds", "Stored without effect: Gable has no merge requests"),
        only_allow_merge_if_all_discussions_are_resolved: from.flag(
            "only_allow_merge_if_all_discussions_are_resolved",
            "Stored without effect: Gable has no merge requests",
        ),
        request_access_enabled: from
            .flag("request_access_enabled", "Stored without effect: Gable has no access requests"),
    }
}

fn read_lfs(from: &mut ParamReader<'_>) -> Option<bool> {
    from.flag("lfs_enabled", "Stored without effect: Gable has no Git LFS")
}

fn read_visibility(from: &mut ParamReader<'_>) -> Option<Visibility> {
    let public =
        from.flag("public", "Same as visibility_level 20 (true) or 0 (false); visibility_level takes precedence");
    let level = from.integer_choice(
        "visibility_level",
        &VISIBILITY_LEVELS,
        "The visibility: 0 private, 10 internal, 20 public; initially 0",
    );
    level.or(public.map(|public| if public { Visibility::Public } else { Visibility::Private }))
}

/// Parameters of a share of a project with a group.
pub(crate) struct ShareProject(pub(crate) NewShare);

impl FromParams for ShareProject {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(NewShare {
            group_id: from.required_id("group_id", "The ID of the group"),
            group_access: from.required_integer(
                "group_access",
                "The maximum access level of its members: 10 guest, 20 reporter, 30 developer, 40 master",
            ),
            expires_on: from.date(
                "expires_at",
                "The expiry date, the first day on which the share is no longer valid; default: none",
            ),
        })
    }
}

/// Parameters of a fork: the target namespace.
pub(crate) struct ForkProject(pub(crate) Option<String>);

impl FromParams for ForkProject {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let text =
            "The ID, path or name of the target namespace; required unless the server runs with --dialect gitlab";
        Self(from.text("namespace", text).filter(|namespace| !namespace.is_empty()))
    }
}
