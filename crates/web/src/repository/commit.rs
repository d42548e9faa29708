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
    text::{self, diff::Diff},
};

#[derive(Template)]
#[template(path = "repository/commit.html")]
struct CommitTemplate {
    layout: Layout,
    head: ProjectHead,
    commit: Commit,
    /// The message without its first line.
    body: String,
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
    let (viewer, (project, commit, stats, diff, pipeline)) = cx
        .run_blocking(move |cx| {
            let InProject { project, value } = browse::commit(cx, &project, &name)?;
            let CommitPage { commit, stats, diffs } = value;
            let pipeline = cx.read(|tx| pipeline_pages::newest_of_commit(tx, &project, commit.id))?;
            Ok((project, commit, stats, Diff::new(diffs), pipeline))
        })
        .await?;
    let message = commit.message.trim_start();
    let body = message.split_once('\n').map_or("", |(_, body)| body).trim().to_owned();
    let title = format!("{} · {} · {}", commit.title(), commit.short_id(), project.full_path());
    response::page(&CommitTemplate {
        head: ProjectHead::new(&project, Tab::Commits, &viewer),
        layout: Layout::new(&cx, viewer, title),
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
