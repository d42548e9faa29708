//! A commit with its differences.

use askama::Template;
use forge::{
    browse::{self, CommitPage, InProject},
    pipeline_pages,
};
use model::{Commit, PipelineId};

use crate::{
    ci::status::StatusView,
    context::PageCx,
    error::PageResult,
    layout::{Layout, ProjectHead, Tab},
    response,
    text::{self, Markup, diff::Diff, references::ReferenceLinks},
};

#[derive(Template)]
#[template(path = "repository/commit.html")]
struct CommitTemplate {
    layout: Layout,
    head: ProjectHead,
    commit: Commit,
    /// The first line of the message, and the rest.
    title: Markup,
    body: Markup,
    additions: usize,
    deletions: usize,
    /// Whether files are missing because there are too many.
    is_truncated: bool,
    diff: Diff,
    /// The revision of links to files.
    revision: String,
    /// The newest pipeline of the commit, if the visitor may see it.
    pipeline: Option<(PipelineId, StatusView)>,
}

pub(crate) async fn show(cx: PageCx) -> PageResult {
    let (project, name) = (cx.project(), cx.params.location.clone());
    let (viewer, (project, commit, stats, diff, pipeline, (title, body))) = cx
        .run_blocking(move |cx| {
            let InProject { project, value } = browse::commit(cx, &project, &name)?;
            let CommitPage { commit, stats, diffs } = value;
            let pipeline = cx.read(|tx| pipeline_pages::newest_of_commit(tx, &project, commit.id))?;
            let references = ReferenceLinks::resolve(cx, &project, [commit.message.as_str()])?;
            let message = commit.message.trim_start();
            let body = message.split_once('\n').map_or("", |(_, body)| body).trim();
            let message = (references.plain(&commit.title()), references.plain(body));
            Ok((project, commit, stats, Diff::new(diffs), pipeline, message))
        })
        .await?;
    let page_title = format!("{} · {} · {}", commit.title(), commit.short_id(), project.full_path());
    response::page(&CommitTemplate {
        head: ProjectHead::new(&project, Tab::Commits, &viewer),
        layout: Layout::new(&cx, viewer, page_title),
        title,
        body,
        additions: stats.additions,
        deletions: stats.deletions,
        is_truncated: diff.additions + diff.deletions < stats.additions + stats.deletions
            && diff.files.iter().all(|file| file.omitted.is_none()),
        revision: commit.id.to_string(),
        pipeline: pipeline.map(|(id, status)| (id, status.into())),
        commit,
        diff,
    })
}
