//! What all pages have in common: the navigation at the top, the title, the stylesheet and the script.

use forge::{Ability, ProjectAbility};
use model::{Project, Visibility};

use crate::{
    assets,
    context::{PageCx, Viewer},
    form_tokens,
    links::{self, ProjectLinks},
    text,
    times::Times,
};

/// The frame around the content of a page.
pub(crate) struct Layout {
    pub(crate) title: String,
    pub(crate) viewer: Viewer,
    pub(crate) stylesheet: &'static str,
    pub(crate) script: &'static str,
    pub(crate) icon: &'static str,
    /// The chosen theme; empty for that of the system.
    pub(crate) theme: &'static str,
    /// Where the sign-in leads back to.
    pub(crate) sign_in_url: String,
    /// The token of the forms on the page; empty if the visitor is not signed in.
    pub(crate) form_token: String,
    pub(crate) search: String,
    /// The path of the project that the search box searches; empty for all.
    pub(crate) search_project: String,
}

impl Layout {
    pub(crate) fn new(cx: &PageCx, viewer: Viewer, title: impl Into<String>) -> Self {
        let secret = cx.session().filter(|_| viewer.user().is_some());
        let form_token = secret.map(|secret| form_tokens::create(secret.reveal(), cx.forge().random_bytes()));
        // A title has no markup that could show characters that reorder text.
        let title = title.into().replace(text::plain::is_bidi_control, "\u{fffd}");
        Self {
            title,
            sign_in_url: links::sign_in(&cx.origin_path()),
            form_token: form_token.unwrap_or_default(),
            theme: theme(cx),
            search_project: cx.params.project_path().unwrap_or_default().to_owned(),
            ..Self::anonymous(viewer)
        }
    }

    /// Creates the layout for a visitor without a session.
    pub(crate) fn anonymous(viewer: Viewer) -> Self {
        Self {
            title: String::new(),
            viewer,
            stylesheet: assets::stylesheet_url(),
            script: assets::script_url(),
            icon: assets::icon_url(),
            theme: "",
            sign_in_url: links::SIGN_IN.to_owned(),
            form_token: String::new(),
            search: String::new(),
            search_project: String::new(),
        }
    }

    /// Returns whether the pages of the operator are linked.
    pub(crate) fn is_administrator(&self) -> bool {
        self.viewer.can(Ability::ManageServer)
    }

    /// Returns the formatter of times on this page.
    pub(crate) fn times(&self) -> Times {
        Times { now: self.viewer.now }
    }
}

/// Returns the theme that the script has stored in a cookie.
fn theme(cx: &PageCx) -> &'static str {
    match cx.cookie("gable_theme") {
        Some("light") => "light",
        Some("dark") => "dark",
        _ => "",
    }
}

/// The pages of a project that its navigation links to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tab {
    Code,
    Commits,
    Branches,
    Tags,
    Compare,
    Issues,
    Pipelines,
    Settings,
}

/// The head of every page of a project.
pub(crate) struct ProjectHead {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) namespace_name: String,
    pub(crate) namespace_url: String,
    pub(crate) visibility: Visibility,
    pub(crate) archived: bool,
    pub(crate) links: ProjectLinks,
    pub(crate) tab: Tab,
    /// Whether the visitor may read the code, and there is some.
    pub(crate) has_code: bool,
    /// The number of open issues; `None` if the project has no issues.
    pub(crate) open_issues: Option<i64>,
    /// Whether the visitor may see the pipelines.
    pub(crate) has_pipelines: bool,
    /// Whether the visitor may change the settings.
    pub(crate) has_settings: bool,
}

impl ProjectHead {
    pub(crate) fn new(project: &Project, tab: Tab, viewer: &Viewer) -> Self {
        Self {
            name: project.name.clone(),
            path: project.path.clone(),
            namespace_name: project.namespace.name.clone(),
            namespace_url: links::page(&project.namespace.full_path),
            visibility: project.visibility,
            archived: project.archived,
            links: ProjectLinks::new(&project.full_path()),
            tab,
            has_code: project.default_branch.is_some() && viewer.can_in(project, ProjectAbility::DownloadCode),
            open_issues: project.features.issues_enabled.then_some(project.open_issues),
            has_pipelines: viewer.can_in(project, ProjectAbility::ViewPipelines),
            has_settings: viewer.can_in(project, ProjectAbility::ChangeProject),
        }
    }

    /// Returns whether a page of the navigation is the current one.
    pub(crate) fn current(&self, tab: Tab) -> bool {
        self.tab == tab
    }
}

impl PageCx {
    /// Returns the path and the query of the page, to come back to it.
    pub(crate) fn origin_path(&self) -> String {
        self.uri.path_and_query().map_or_else(|| "/".to_owned(), |path| path.as_str().to_owned())
    }
}
