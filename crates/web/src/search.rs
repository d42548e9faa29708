//! Search over projects, issues and users, and in the code of one project.

use askama::Template;
use forge::{
    Ability, ProjectAbility, ProjectRef, Unvalidated,
    code_search::{self, CodeSearch, FoundFile},
    commit_authors::{self, CommitAuthors},
    explore,
    issue_pages::{self, IssueSearch},
    search_pages, users,
};
use model::{
    Commit, Issue, IssueState, ProjectId, User,
    issues::IssueFilter,
    projects::{ProjectFilter, ProjectOrder},
    users::UserFilter,
};

use crate::{
    context::{PageCx, Viewer},
    error::PageResult,
    layout::Layout,
    links::{self, ProjectLinks},
    paging::{self, Pager},
    projects::list::ListedProject,
    response,
    routes::{Route, get},
    text,
};

pub(crate) const ROUTES: &[Route] = &[get!("/search", show)];

const PER_PAGE: i64 = 25;

/// What is searched: value, label, and whether it is within a project.
const SCOPES: [(&str, &str, bool); 5] = [
    ("projects", "Projects", false),
    ("issues", "Issues", false),
    ("users", "Users", false),
    ("blobs", "Code", true),
    ("commits", "Commits", true),
];

#[derive(Template)]
#[template(path = "search.html")]
struct SearchTemplate {
    layout: Layout,
    search: String,
    project: String,
    /// The same search in all projects.
    everywhere_url: String,
    scope: &'static str,
    /// URL, label, and whether it is the current one.
    scopes: Vec<(String, &'static str, bool)>,
    /// Why nothing was searched, or not everything.
    note: Option<&'static str>,
    results: Results,
    pager: Pager,
}

enum Results {
    /// Nothing was searched.
    None,
    Projects(Vec<ListedProject>),
    Issues(Vec<Issue>),
    Users(Vec<User>),
    Files(ProjectLinks, CodeSearch<FoundFile>),
    Commits(ProjectLinks, CodeSearch<Commit>, CommitAuthors),
}

impl Results {
    fn is_empty(&self) -> bool {
        match self {
            Self::None => false,
            Self::Projects(found) => found.is_empty(),
            Self::Issues(found) => found.is_empty(),
            Self::Users(found) => found.is_empty(),
            Self::Files(_, search) => search.found.is_empty(),
            Self::Commits(_, search, _) => search.found.is_empty(),
        }
    }
}

const NOT_EVERYTHING: &str = "The repository is large; not everything was searched.";

/// Shows the form and the results.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    let query = cx.query();
    let field = |name: &str| query.text(name);
    let (search, project_path) = (field("search"), field("project"));
    let project = match query.get("project_id").parse::<i64>() {
        Ok(id) if project_path.is_empty() => Some(ProjectRef::Id(ProjectId::new(id))),
        _ => Some(project_path.trim_matches('/').to_owned()).filter(|path| !path.is_empty()).map(ProjectRef::Path),
    };
    let requested = SCOPES.iter().find(|(value, ..)| *value == query.get("scope"));
    let (has_code, has_issues) = match project.clone() {
        Some(project) => searchable(&cx, project).await?,
        None => (false, true),
    };
    let default = match &project {
        Some(_) if has_code => "blobs",
        Some(_) if has_issues => "issues",
        _ => "projects",
    };
    let mut scope = requested.map_or(default, |(value, ..)| *value);
    if project.is_none() && matches!(scope, "blobs" | "commits") {
        scope = "projects";
    }
    let min_length = if matches!(scope, "projects" | "users") { 1 } else { search_pages::MIN_TEXT_LENGTH };
    let mut note = None;
    let (viewer, results, pager, project_path) = if search.chars().count() < min_length {
        note = (!search.is_empty()).then_some("Type at least three characters.");
        let (viewer, path) = find_project(&cx, project).await?;
        (viewer, Results::None, Pager::default(), path)
    } else {
        run(&cx, scope, &search, project).await?
    };
    if let Results::Files(_, CodeSearch { is_complete: false, .. })
    | Results::Commits(_, CodeSearch { is_complete: false, .. }, _) = results
    {
        note = Some(NOT_EVERYTHING);
    }
    let can_list_users = viewer.can(Ability::ReadUsers);
    let scopes = SCOPES
        .iter()
        .filter(|(value, _, in_project)| match *value {
            "users" => can_list_users,
            "issues" => has_issues,
            _ => !in_project || has_code,
        })
        .map(|(value, label, _)| (url(value, &search, &project_path), *label, *value == scope))
        .collect();
    let title = if search.is_empty() { "Search".to_owned() } else { format!("{search} · Search") };
    let mut layout = Layout::new(&cx, viewer, title);
    layout.search.clone_from(&search);
    let everywhere_url = url(if matches!(scope, "issues" | "users") { scope } else { "projects" }, &search, "");
    response::page(&SearchTemplate {
        layout,
        search,
        project: project_path,
        everywhere_url,
        scope,
        scopes,
        note,
        results,
        pager,
    })
}

/// Returns whether the code and the issues of a project can be searched.
async fn searchable(cx: &PageCx, project: ProjectRef) -> forge::Result<(bool, bool)> {
    let (viewer, project) = cx.read(move |tx| tx.project(&project, ProjectAbility::ViewProject)).await?;
    let has_code = project.default_branch.is_some() && viewer.can_in(&project, ProjectAbility::DownloadCode);
    Ok((has_code, viewer.can_in(&project, ProjectAbility::ViewIssues)))
}

fn url(scope: &str, search: &str, project: &str) -> String {
    let project = if project.is_empty() { String::new() } else { format!("&project={}", links::encode_query(project)) };
    format!("/search?scope={scope}&search={}{project}", links::encode_query(search))
}

/// Returns the path of the project that is searched; empty if there is none.
async fn find_project(cx: &PageCx, project: Option<ProjectRef>) -> forge::Result<(Viewer, String)> {
    match project {
        None => Ok((cx.viewer().await?, String::new())),
        Some(project) => {
            let find = move |tx: &mut forge::ReadTx<'_>| tx.project(&project, ProjectAbility::ViewProject);
            cx.read(find).await.map(|(viewer, project)| (viewer, project.full_path()))
        }
    }
}

async fn run(
    cx: &PageCx,
    scope: &str,
    search: &str,
    project: Option<ProjectRef>,
) -> forge::Result<(Viewer, Results, Pager, String)> {
    let (query, text) = (cx.query(), search.to_owned());
    let page = paging::requested(&query, PER_PAGE);
    match (scope, project) {
        ("blobs", Some(project)) => {
            let (viewer, found) = cx.run_blocking(move |cx| code_search::files(cx, &project, &text)).await?;
            let path = found.project.full_path();
            Ok((viewer, Results::Files(ProjectLinks::new(&path), found.value), Pager::default(), path))
        }
        ("commits", Some(project)) => {
            let (viewer, (found, authors)) = cx
                .run_blocking(move |cx| {
                    let found = code_search::commits(cx, &project, &text)?;
                    let commits = found.value.found.iter();
                    let addresses: Vec<&str> = commits.map(|commit| commit.author.email.as_str()).collect();
                    let authors = cx.read(|tx| commit_authors::find(tx, addresses.iter().copied()))?;
                    Ok((found, authors))
                })
                .await?;
            let path = found.project.full_path();
            Ok((viewer, Results::Commits(ProjectLinks::new(&path), found.value, authors), Pager::default(), path))
        }
        ("issues", Some(project)) => {
            let filter = IssueFilter { search: Some(text), closed: None, ..IssueFilter::default() };
            let options = Unvalidated::valid(IssueSearch { filter, ..IssueSearch::default() });
            let (viewer, found) = cx.read_list(move |tx| issue_pages::list(tx, &project, &options, &page)).await?;
            let pager = Pager::of(&cx.uri, &query, &found.value.issues);
            Ok((viewer, Results::Issues(found.value.issues.items), pager, found.project.full_path()))
        }
        ("issues", None) => {
            let (viewer, found) = cx.read_list(move |tx| search_pages::issues(tx, &text, &page)).await?;
            let pager = Pager::of(&cx.uri, &query, &found);
            Ok((viewer, Results::Issues(found.items), pager, String::new()))
        }
        ("users", project) => {
            let filter = Unvalidated::valid(UserFilter { search: Some(text), active: true, ..UserFilter::default() });
            let (viewer, found) = cx.read_list(move |tx| users::list(tx, &filter, &page)).await?;
            let pager = Pager::of(&cx.uri, &query, &found);
            let (_, path) = find_project(cx, project).await?;
            Ok((viewer, Results::Users(found.items), pager, path))
        }
        (_, project) => {
            let filter = Unvalidated::valid(ProjectFilter {
                search: Some(text),
                order: ProjectOrder::LastActivityAt,
                ..ProjectFilter::default()
            });
            let (viewer, found) = cx.read_list(move |tx| explore::projects(tx, &filter, &page)).await?;
            let pager = Pager::of(&cx.uri, &query, &found);
            let projects = found.items.into_iter().map(ListedProject::new).collect();
            let (_, path) = find_project(cx, project).await?;
            Ok((viewer, Results::Projects(projects), pager, path))
        }
    }
}
