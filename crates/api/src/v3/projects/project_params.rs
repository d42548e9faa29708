//! The parameters of projects: lists, creation and edits share most of them.

use forge::projects::{Edit, NewShare};
use model::{
    Change, Visibility,
    projects::{NamespaceRef, NewProject, ProjectChanges, ProjectFilter, ProjectOrder, Switches},
};

use crate::params::{FromParams, ParamReader};

/// The levels of visibility by number.
pub(crate) const LEVELS: [(i64, Visibility); 3] =
    [(0, Visibility::Private), (10, Visibility::Internal), (20, Visibility::Public)];
/// The levels of visibility by word.
const WORDS: [(&str, Visibility); 3] =
    [("public", Visibility::Public), ("internal", Visibility::Internal), ("private", Visibility::Private)];
const ORDERS: [(&str, ProjectOrder); 6] = [
    ("id", ProjectOrder::Id),
    ("name", ProjectOrder::Name),
    ("path", ProjectOrder::Path),
    ("created_at", ProjectOrder::CreatedAt),
    ("updated_at", ProjectOrder::UpdatedAt),
    ("last_activity_at", ProjectOrder::LastActivityAt),
];

/// What a list of projects can be asked for.
#[derive(Clone)]
pub(crate) struct ListProjects {
    pub(crate) filter: ProjectFilter,
    pub(crate) simple: bool,
}

impl FromParams for ListProjects {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let filter = ProjectFilter {
            archived: from.flag("archived", "true: only archived ones; false: only others"),
            visibility: from.choice("visibility", &WORDS, "Only those that can be seen exactly so far"),
            search: from
                .text("search", "A part of name, path, description or the name of the namespace")
                .filter(|text| !text.is_empty()),
            ..read_order(from)
        };
        Self { filter, simple: read_simple(from) }
    }
}

/// What a list of a group's projects can be asked for.
#[derive(Clone)]
pub(crate) struct ListGroupProjects(pub(crate) ListProjects);

impl FromParams for ListGroupProjects {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let mut list = ListProjects::read(from);
        list.filter.builds_first = from.flag("ci_enabled_first", "Projects with builds first").unwrap_or(false);
        Self(list)
    }
}

/// What a search can be asked for beside its words.
#[derive(Clone)]
pub(crate) struct OrderProjects(pub(crate) ListProjects);

impl FromParams for OrderProjects {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(ListProjects { filter: read_order(from), simple: read_simple(from) })
    }
}

fn read_order(from: &mut ParamReader<'_>) -> ProjectFilter {
    ProjectFilter {
        order: from.choice("order_by", &ORDERS, "What they are sorted by; created_at").unwrap_or_default(),
        ascending: from.choice("sort", &[("asc", true), ("desc", false)], "Which way; desc").unwrap_or(false),
        ..ProjectFilter::default()
    }
}

fn read_simple(from: &mut ParamReader<'_>) -> bool {
    from.flag("simple", "Only number, URLs, name and path of each").unwrap_or(false)
}

/// A project to be made.
pub(crate) struct CreateProject(pub(crate) NewProject);

impl FromParams for CreateProject {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let name = from.required_text("name", "The name people read");
        let path = from.text("path", "The path in URLs; made from the name if there is none");
        let namespace = read_namespace(from);
        let description = from.text("description", "What it is about");
        let (switches, lfs_enabled, visibility) = (read_switches(from), read_lfs(from), read_visibility(from));
        let import_url = from
            .text("import_url", "From where the repository shall come: a URL with http or https")
            .filter(|url| !url.is_empty());
        Self(NewProject { name, path, namespace, description, visibility, switches, lfs_enabled, import_url })
    }
}

fn read_namespace(from: &mut ParamReader<'_>) -> Option<NamespaceRef> {
    let id = from.integer("namespace_id", "Number of the namespace it is created in; the caller's own if absent");
    let text = from
        .text("namespace", "Number or full path of that namespace, instead of namespace_id")
        .filter(|text| !text.is_empty());
    from.not_both(["namespace_id", "namespace"]);
    id.map(NamespaceRef::Id).or(text.map(|text| NamespaceRef::parse(&text)))
}

/// A project to be changed.
pub(crate) struct EditProject {
    pub(crate) changes: ProjectChanges,
    default_branch: Option<String>,
    import_url: Option<String>,
}

impl EditProject {
    pub(crate) fn into_edit(self, own_name_is_no_change: bool) -> Edit {
        let Self { changes, default_branch, import_url } = self;
        Edit { changes, own_name_is_no_change, default_branch, import_url }
    }
}

impl FromParams for EditProject {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let name = from.text("name", "The name people read; required, but in the dialect gitlab");
        let path = from.text("path", "The path in URLs");
        let description = Change::from_text(from.text("description", "What it is about"));
        let (switches, lfs_enabled, visibility) = (read_switches(from), read_lfs(from), read_visibility(from));
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let default_branch = given(from.text("default_branch", "The branch that people get who ask for none"));
        let import_url =
            given(from.text("import_url", "From where the repository shall come, while there is nothing in it"));
        let changes = ProjectChanges { name, path, description, visibility, switches, lfs_enabled };
        Self { changes, default_branch, import_url }
    }
}

fn read_switches(from: &mut ParamReader<'_>) -> Switches<Option<bool>> {
    Switches {
        issues_enabled: from.flag("issues_enabled", "Whether there are issues"),
        merge_requests_enabled: from.flag("merge_requests_enabled", "Whether there are merge requests"),
        builds_enabled: from.flag("builds_enabled", "Whether there are pipelines"),
        wiki_enabled: from.flag("wiki_enabled", "Whether there is a wiki"),
        snippets_enabled: from.flag("snippets_enabled", "Whether there are snippets"),
        container_registry_enabled: from.flag("container_registry_enabled", "Whether there is a registry of images"),
        shared_runners_enabled: from.flag("shared_runners_enabled", "Whether runners of the instance take its jobs"),
        public_builds: from.flag("public_builds", "Whether builds can be seen by non-members"),
        only_allow_merge_if_build_succeeds: from
            .flag("only_allow_merge_if_build_succeeds", "Whether only what was built is merged"),
        only_allow_merge_if_all_discussions_are_resolved: from
            .flag("only_allow_merge_if_all_discussions_are_resolved", "Whether only what was talked through is merged"),
        request_access_enabled: from.flag("request_access_enabled", "Whether people may ask to be let in"),
    }
}

fn read_lfs(from: &mut ParamReader<'_>) -> Option<bool> {
    from.flag("lfs_enabled", "Whether large files are kept apart")
}

fn read_visibility(from: &mut ParamReader<'_>) -> Option<Visibility> {
    let public = from.flag("public", "true is visibility_level 20, false is 0");
    let level = from.number_choice("visibility_level", &LEVELS, "How far it can be seen");
    level.or(public.map(|public| if public { Visibility::Public } else { Visibility::Private }))
}

/// A project to be opened to a group.
pub(crate) struct ShareProject(pub(crate) NewShare);

impl FromParams for ShareProject {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(NewShare {
            group_id: from.required_integer("group_id", "With which group"),
            group_access: from.required_integer("group_access", "The most that its members may be: 10, 20, 30 or 40"),
            expires_on: from.day("expires_at", "The first day on which it counts no more"),
        })
    }
}

/// Where a fork goes.
pub(crate) struct ForkProject(pub(crate) Option<String>);

impl FromParams for ForkProject {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let text = "Number, path or name of the namespace; required, but in the dialect gitlab";
        Self(from.text("namespace", text).filter(|namespace| !namespace.is_empty()))
    }
}
