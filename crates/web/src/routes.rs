//! The table of all pages: which method and path leads to which page.

use axum::{
    body::Body,
    http::{Method, StatusCode},
};
use percent_encoding::percent_decode_str;

use crate::{
    accounts::{dashboard, sign_in},
    assets,
    context::PageCx,
    error::PageResult,
    projects::{explore, home, namespaces},
    repository::{branches, commit, commits, compare, files, raw, tags},
    tracker::{issue, issues, new_issue},
};

/// A route of the web interface.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The method; `GET` includes `HEAD`.
    pub method: &'static str,
    /// The path. `{namespace}` is one segment, `{project}` and `{group}` are several, and `{location}` is the rest.
    pub pattern: &'static str,
    pub(crate) page: Page,
}

/// The pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    Root,
    Asset,
    SignInForm,
    SignIn,
    SignOut,
    Dashboard,
    Explore,
    Group,
    Namespace,
    Project,
    Tree,
    TreeOfDefaultBranch,
    Blob,
    Raw,
    Commits,
    CommitsOfDefaultBranch,
    Commit,
    Branches,
    Tags,
    CompareForm,
    Compare,
    Issues,
    NewIssue,
    CreateIssue,
    Issue,
    ReplyToIssue,
}

const fn get(pattern: &'static str, page: Page) -> Route {
    Route { method: "GET", pattern, page }
}

const fn post(pattern: &'static str, page: Page) -> Route {
    Route { method: "POST", pattern, page }
}

/// All routes. The first one that matches is used.
pub const ROUTES: &[Route] = &[
    get("/", Page::Root),
    get("/assets/{location}", Page::Asset),
    get("/users/sign_in", Page::SignInForm),
    post("/users/sign_in", Page::SignIn),
    post("/users/sign_out", Page::SignOut),
    get("/dashboard", Page::Dashboard),
    get("/explore", Page::Explore),
    get("/groups/{group}", Page::Group),
    get("/{project}/-/tree", Page::TreeOfDefaultBranch),
    get("/{project}/-/tree/{location}", Page::Tree),
    get("/{project}/-/blob/{location}", Page::Blob),
    get("/{project}/-/raw/{location}", Page::Raw),
    get("/{project}/-/commits", Page::CommitsOfDefaultBranch),
    get("/{project}/-/commits/{location}", Page::Commits),
    get("/{project}/-/commit/{location}", Page::Commit),
    get("/{project}/-/branches", Page::Branches),
    get("/{project}/-/tags", Page::Tags),
    get("/{project}/-/compare", Page::CompareForm),
    get("/{project}/-/compare/{location}", Page::Compare),
    get("/{project}/-/issues", Page::Issues),
    post("/{project}/-/issues", Page::CreateIssue),
    get("/{project}/-/issues/new", Page::NewIssue),
    post("/{project}/-/issues/{location}/notes", Page::ReplyToIssue),
    get("/{project}/-/issues/{location}", Page::Issue),
    get("/{namespace}", Page::Namespace),
    get("/{project}", Page::Project),
];

/// Words after the path of a project that led to its pages before `/-/` was introduced.
const OLD_WORDS: [&str; 9] = ["tree", "blob", "raw", "commits", "commit", "branches", "tags", "compare", "issues"];

/// The variable parts of a path, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PathParams {
    /// The path of a project, a group or a user.
    pub(crate) subject: String,
    /// The rest of the path.
    pub(crate) location: String,
}

/// A route with the variable parts of the path.
pub(crate) struct Found {
    pub(crate) route: &'static Route,
    pub(crate) params: PathParams,
}

/// Finds the route of a request; fails with 404, or with 405 if the path exists for another method.
pub(crate) fn find(method: &Method, path: &str) -> Result<Found, StatusCode> {
    let path = percent_decode_str(path).decode_utf8().map_err(|_| StatusCode::NOT_FOUND)?;
    let path = path.trim_matches('/');
    let method = if *method == Method::HEAD { "GET" } else { method.as_str() };
    let mut status = StatusCode::NOT_FOUND;
    for route in ROUTES {
        let Some(params) = match_path(route.pattern, path) else { continue };
        if route.method == method {
            return Ok(Found { route, params });
        }
        status = StatusCode::METHOD_NOT_ALLOWED;
    }
    Err(status)
}

/// Matches a path without its outer slashes.
fn match_path(pattern: &str, path: &str) -> Option<PathParams> {
    // No path of a project, a group or a user has a control character, and PostgreSQL refuses to search for NUL.
    let subject = |text: &str| (!text.is_empty() && !model::text::has_control(text)).then(|| text.to_owned());
    let pattern = pattern.trim_start_matches('/');
    if let Some(pattern) = pattern.strip_prefix("{project}/-/") {
        let (project, rest) = path.split_once("/-/")?;
        let location = match pattern.split_once("{location}") {
            Some((before, after)) => rest.strip_prefix(before)?.strip_suffix(after)?,
            None => (rest == pattern).then_some("")?,
        };
        return Some(PathParams { subject: subject(project)?, location: location.to_owned() });
    }
    let is_in_project = path.contains("/-/") || path.ends_with("/-");
    match pattern {
        "{namespace}" => (!path.contains('/')).then_some(())?,
        "{project}" => (path.contains('/') && !is_in_project).then_some(())?,
        "groups/{group}" => {
            return Some(PathParams { subject: subject(path.strip_prefix("groups/")?)?, ..PathParams::default() });
        }
        "assets/{location}" => {
            let location = path.strip_prefix("assets/")?.to_owned();
            return Some(PathParams { location, ..PathParams::default() });
        }
        fixed => return (path == fixed).then(PathParams::default),
    }
    Some(PathParams { subject: subject(path)?, ..PathParams::default() })
}

/// Returns the path of a page of a project with `/-/`, for a path in the form without it.
pub(crate) fn current_form(path: &str) -> Option<String> {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let at = segments.iter().skip(2).position(|segment| OLD_WORDS.contains(segment))? + 2;
    Some(format!("/{}/-/{}", segments[..at].join("/"), segments[at..].join("/")))
}

/// Calls the handler of a page.
pub(crate) async fn dispatch(page: Page, cx: PageCx, body: Body) -> PageResult {
    match page {
        Page::Root => dashboard::redirect(cx).await,
        Page::Asset => assets::get(&cx),
        Page::SignInForm => sign_in::form(cx).await,
        Page::SignIn => sign_in::create(cx, body).await,
        Page::SignOut => sign_in::end(cx, body).await,
        Page::Dashboard => dashboard::show(cx).await,
        Page::Explore => explore::show(cx).await,
        Page::Group => namespaces::group(cx).await,
        Page::Namespace => namespaces::show(cx).await,
        Page::Project => home::show(cx).await,
        Page::TreeOfDefaultBranch => Ok(files::redirect_to_home(&cx)),
        Page::Tree | Page::Blob => files::show(cx, page).await,
        Page::Raw => raw::show(cx).await,
        Page::CommitsOfDefaultBranch => commits::redirect(cx).await,
        Page::Commits => commits::show(cx).await,
        Page::Commit => commit::show(cx).await,
        Page::Branches => branches::show(cx).await,
        Page::Tags => tags::show(cx).await,
        Page::CompareForm => compare::form(cx).await,
        Page::Compare => compare::show(cx).await,
        Page::Issues => issues::show(cx).await,
        Page::NewIssue => new_issue::form(cx).await,
        Page::CreateIssue => new_issue::create(cx, body).await,
        Page::Issue => issue::show(cx).await,
        Page::ReplyToIssue => issue::reply(cx, body).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_a_page() {
        let check = |path: &str, expected: Option<(&str, &str, &str)>| {
            let found = find(&Method::GET, path).ok();
            let found = found
                .as_ref()
                .map(|found| (found.route.pattern, found.params.subject.as_str(), found.params.location.as_str()));
            assert_eq!(found, expected, "{path}");
        };
        check("/", Some(("/", "", "")));
        check("/explore", Some(("/explore", "", "")));
        check("/explore/", Some(("/explore", "", "")));
        check("/ann", Some(("/{namespace}", "ann", "")));
        check("/ann/rocket", Some(("/{project}", "ann/rocket", "")));
        check("/a/b/c", Some(("/{project}", "a/b/c", "")));
        check("/groups/a/b", Some(("/groups/{group}", "a/b", "")));
        check("/a/b/-/tree", Some(("/{project}/-/tree", "a/b", "")));
        check("/a/b/-/tree/main/-/x", Some(("/{project}/-/tree/{location}", "a/b", "main/-/x")));
        check("/a/b/-/blob/main/a%20b%2Fc", Some(("/{project}/-/blob/{location}", "a/b", "main/a b/c")));
        check("/a/b/-/commit/abc", Some(("/{project}/-/commit/{location}", "a/b", "abc")));
        check("/a/b/-/issues/7", Some(("/{project}/-/issues/{location}", "a/b", "7")));
        check("/a/b/-/issues/new", Some(("/{project}/-/issues/new", "a/b", "")));
        check("/a/b/-/unknown", None);
        check("/a/b/-", None);
        check("/a%00/b", None);
        check("/a%ff", None);
        assert_eq!(find(&Method::DELETE, "/explore").err(), Some(StatusCode::METHOD_NOT_ALLOWED));
        assert!(find(&Method::HEAD, "/explore").is_ok());
    }

    #[test]
    fn paths_without_the_separator_have_a_current_form() {
        let check = |path: &str, expected: Option<&str>| assert_eq!(current_form(path).as_deref(), expected, "{path}");
        check("/ann/rocket/tree/main/src", Some("/ann/rocket/-/tree/main/src"));
        check("/a/b/c/commits/main", Some("/a/b/c/-/commits/main"));
        check("/ann/rocket/tags", Some("/ann/rocket/-/tags"));
        check("/ann/tree", None);
        check("/ann/rocket", None);
        check("/ann/rocket/other/x", None);
    }
}
