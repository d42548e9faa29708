//! The table of all pages: which method and path leads to which handler. Each domain has its own part of the table.

use std::pin::Pin;

use axum::{
    body::Body,
    http::{Method, StatusCode},
};
use percent_encoding::percent_decode_str;

use crate::{
    accounts, admin, assets, ci, context::PageCx, error::PageResult, help, projects, repository, search, tracker,
    webhooks,
};

/// A route of the web interface.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The method; `GET` includes `HEAD`.
    pub method: &'static str,
    /// The path. `{project}`, `{group}` and `{location}` are several segments, and any other variable is
    /// one.
    pub pattern: &'static str,
    pub(crate) handler: Handler,
}

/// Handles a request for a page.
pub(crate) type Handler = fn(PageCx, Body) -> Pin<Box<dyn Future<Output = PageResult> + Send>>;

/// Defines the route of a page that is read.
macro_rules! get {
    ($pattern:literal, $handler:path) => {
        $crate::routes::Route { method: "GET", pattern: $pattern, handler: |cx, _| Box::pin($handler(cx)) }
    };
}

/// Defines the route of a form that is submitted.
macro_rules! post {
    ($pattern:literal, $handler:path) => {
        $crate::routes::Route { method: "POST", pattern: $pattern, handler: |cx, body| Box::pin($handler(cx, body)) }
    };
}

pub(crate) use {get, post};

/// The parts of the table. The first route that matches is used; those of projects match any path and come last.
const PARTS: &[&[Route]] = &[
    &[get!("/assets/{location}", assets::get)],
    accounts::ROUTES,
    admin::ROUTES,
    search::ROUTES,
    help::ROUTES,
    repository::ROUTES,
    tracker::ROUTES,
    ci::ROUTES,
    webhooks::ROUTES,
    projects::ROUTES,
];

/// Returns all routes.
pub fn all() -> impl Iterator<Item = &'static Route> {
    PARTS.iter().copied().flatten()
}

/// Words after the path of a project that led to its pages before `/-/` was introduced.
const OLD_WORDS: [&str; 24] = [
    "tree",
    "blob",
    "raw",
    "blame",
    "commits",
    "commit",
    "branches",
    "tags",
    "compare",
    "issues",
    "pipelines",
    "jobs",
    "edit",
    "hooks",
    "forks",
    "activity",
    "labels",
    "milestones",
    "boards",
    "graphs",
    "releases",
    "find_file",
    "archive",
    "project_members",
];

/// The variable parts of a path, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PathParams {
    /// The path of a project, a group or a user.
    pub(crate) subject: String,
    /// Whether the subject is a project.
    is_project: bool,
    /// The segments for `{location}`, with slashes.
    pub(crate) location: String,
    /// The names and values of the other variables.
    others: Vec<(&'static str, String)>,
}

impl PathParams {
    /// Returns the path of the project, if the page is one of a project.
    pub(crate) fn project_path(&self) -> Option<&str> {
        self.is_project.then_some(self.subject.as_str())
    }

    /// Returns the value of a variable of one segment.
    pub(crate) fn get(&self, name: &str) -> &str {
        let found = self.others.iter().find(|(found, _)| *found == name);
        found.map_or_else(|| panic!("the route has no variable {name}"), |(_, value)| value.as_str())
    }
}

/// A route with the variable parts of the path.
pub(crate) struct Found {
    pub(crate) route: &'static Route,
    pub(crate) params: PathParams,
}

/// Finds the route of a request; fails with 404, or with 405 if the path exists for another method.
pub(crate) fn find(method: &Method, path: &str) -> Result<Found, StatusCode> {
    let path = percent_decode_str(path).decode_utf8().map_err(|_| StatusCode::NOT_FOUND)?;
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let method = if *method == Method::HEAD { "GET" } else { method.as_str() };
    let mut status = StatusCode::NOT_FOUND;
    for route in all() {
        let Some(params) = match_path(route.pattern, &segments) else { continue };
        if route.method == method {
            return Ok(Found { route, params });
        }
        status = StatusCode::METHOD_NOT_ALLOWED;
    }
    Err(status)
}

/// Matches the segments of a path.
fn match_path(pattern: &'static str, mut path: &[&str]) -> Option<PathParams> {
    let mut params = PathParams::default();
    let mut pattern = pattern.trim_start_matches('/').split('/').peekable();
    while let Some(part) = pattern.next() {
        let Some(variable) = part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) else {
            path = path.strip_prefix(&[part])?;
            continue;
        };
        let length = match variable {
            // The path of a project ends before `-`, and has a namespace.
            "project" | "group" => {
                let length = path.iter().position(|segment| *segment == "-").unwrap_or(path.len());
                (length > usize::from(variable == "project")).then_some(length)?
            }
            "location" => path.len().checked_sub(pattern.clone().count()).filter(|length| *length > 0)?,
            _ => 1,
        };
        let (values, rest) = path.split_at_checked(length)?;
        path = rest;
        match variable {
            "location" => params.location = values.join("/"),
            "project" | "group" | "namespace" => {
                params.subject = subject(values)?;
                params.is_project = variable == "project";
            }
            name => params.others.push((name, subject(values)?)),
        }
    }
    path.is_empty().then_some(params)
}

/// Returns a text that the database can be searched for: no name has a control character, and PostgreSQL refuses NUL.
fn subject(segments: &[&str]) -> Option<String> {
    let is_valid = segments.iter().all(|segment| !segment.is_empty() && !model::text::has_control(segment));
    is_valid.then(|| segments.join("/"))
}

/// Returns the path of a page of a project with `/-/`, for a path in the form without it.
pub(crate) fn current_form(path: &str) -> Option<String> {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let at = segments.iter().skip(2).position(|segment| OLD_WORDS.contains(segment))? + 2;
    Some(format!("/{}/-/{}", segments[..at].join("/"), segments[at..].join("/")))
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
        check("/a/b/-/issues/7", Some(("/{project}/-/issues/{iid}", "a/b", "")));
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
