//! Comparisons of two revisions.

use askama::Template;
use axum::http::StatusCode;
use forge::{
    browse::{self, ComparePage, InProject},
    commit_authors::{self, CommitAuthors},
};
use model::Commit;

use crate::{
    context::PageCx,
    error::PageResult,
    layout::{Layout, ProjectHead, Tab},
    links::{self, ProjectLinks},
    response,
    text::{self, diff::Diff},
};

/// The maximum number of branches and tags that the form suggests.
const MAX_NAMES: usize = 500;
/// The maximum number of commits that are listed.
const MAX_COMMITS: usize = 100;

#[derive(Template)]
#[template(path = "repository/compare.html")]
struct CompareTemplate {
    layout: Layout,
    head: ProjectHead,
    from: String,
    to: String,
    names: Vec<String>,
    error: Option<&'static str>,
    result: Option<ComparisonView>,
    authors: CommitAuthors,
}

struct ComparisonView {
    is_same: bool,
    /// The newest commits, newest first.
    commits: Vec<Commit>,
    commit_count: usize,
    is_truncated: bool,
    diff: Diff,
    ignores_whitespace: bool,
    /// The revision of links to files.
    revision: String,
}

/// Shows the form, or leads to the comparison that it asks for.
pub(crate) async fn form(cx: PageCx) -> PageResult {
    let query = cx.query();
    let (from, to) = (query.get("from").trim(), query.get("to").trim());
    if !from.is_empty() && !to.is_empty() {
        return Ok(response::redirect(&ProjectLinks::new(&cx.params.subject).compare(from, to)));
    }
    render(cx, None).await
}

/// Shows the comparison `from...to`.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    let location = cx.params.location.clone();
    let range = location.split_once("...").or_else(|| location.split_once(".."));
    let range = range.map(|(from, to)| (from.to_owned(), to.to_owned()));
    let Some(range) = range else { return Err(StatusCode::NOT_FOUND.into()) };
    render(cx, Some(range)).await
}

async fn render(cx: PageCx, range: Option<(String, String)>) -> PageResult {
    let (project, is_requested) = (cx.project(), range.is_some());
    let ignores_whitespace = cx.query().get("w") == "1";
    let (viewer, (project, from, to, names, result, authors)) = cx
        .run_blocking(move |cx| {
            let InProject { project, value } =
                browse::compare(cx, &project, range.as_ref(), ignores_whitespace, MAX_NAMES)?;
            let ComparePage { from, to, comparison, base, names } = value;
            let links = ProjectLinks::new(&project.full_path());
            let base = base.map(|base| base.to_string());
            let revision = to.clone();
            let commits = comparison.iter().flat_map(|comparison| comparison.commits.iter().rev().take(MAX_COMMITS));
            let addresses: Vec<&str> = commits.map(|commit| commit.author.email.as_str()).collect();
            let authors = cx.read(|tx| commit_authors::find(tx, addresses.iter().copied()))?;
            let result = comparison.map(|comparison| ComparisonView {
                is_same: comparison.same,
                commit_count: comparison.commits.len(),
                commits: comparison.commits.into_iter().rev().take(MAX_COMMITS).collect(),
                is_truncated: comparison.is_truncated,
                diff: Diff::new(comparison.diffs).with_images(&links, base.as_deref(), &revision),
                ignores_whitespace,
                revision,
            });
            Ok((project, from, to, names, result, authors))
        })
        .await?;
    let error = (is_requested && result.is_none()).then_some("There is no such branch, tag or commit.");
    let status = if error.is_some() { StatusCode::NOT_FOUND } else { StatusCode::OK };
    let title = if is_requested { format!("{from}...{to}") } else { "Compare".to_owned() };
    let template = CompareTemplate {
        head: ProjectHead::new(&project, Tab::Compare, &viewer),
        layout: Layout::new(&cx, viewer, format!("{title} · {}", project.full_path())),
        from,
        to,
        names,
        error,
        result,
        authors,
    };
    response::page_with_status(status, &template)
}
