//! A file with the commit that last changed each of its lines.

use askama::Template;
use forge::{
    browse::InProject,
    history_pages::{self, BlamePage},
};
use model::{Commit, Time};

use super::{
    files::human_size,
    folder::{self, Breadcrumb},
};
use crate::{
    context::PageCx,
    error::PageResult,
    layout::{Layout, ProjectHead, Tab},
    links::ProjectLinks,
    response,
    text::{self, Markup, highlight::MAX_LINES},
};

#[derive(Template)]
#[template(path = "repository/blame.html")]
struct BlameTemplate {
    layout: Layout,
    head: ProjectHead,
    revision: String,
    name: String,
    breadcrumbs: Vec<Breadcrumb>,
    size: String,
    blob_url: String,
    raw_url: String,
    history_url: String,
    /// Why the lines are not shown.
    omitted: Option<&'static str>,
    is_unfinished: bool,
    ranges: Vec<RangeView>,
}

/// Consecutive lines of the same commit.
struct RangeView {
    /// The number of lines above.
    start: usize,
    commit: Option<CommitView>,
    lines: Vec<Markup>,
}

#[derive(Clone)]
struct CommitView {
    url: String,
    title: String,
    author: String,
    time: Time,
}

impl CommitView {
    fn new(links: &ProjectLinks, commit: &Commit) -> Self {
        Self {
            url: links.commit(&commit.id.to_string()),
            title: commit.title(),
            author: commit.author.name.clone(),
            time: Time::from_second(commit.author.seconds).unwrap_or(Time::UNIX_EPOCH),
        }
    }
}

/// Shows the commits of the lines of a file.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    let (project, location, pages) = (cx.project(), cx.params.location.clone(), cx.pages.clone());
    let (viewer, (project, page, ranges)) = cx
        .run_blocking(move |cx| {
            let InProject { project, value: mut page } = history_pages::blame(cx, &project, &location)?;
            let links = ProjectLinks::new(&project.full_path());
            let cache = &pages.0.highlight_cache;
            let ranges = match page.blame.take() {
                None => Err("This file is too large to be shown here."),
                Some((bytes, blame)) => match text::decode(&bytes) {
                    None => Err("This is a binary file."),
                    Some(text) if text.is_empty() => Err("This file is empty."),
                    Some(text) if text.lines().count() > MAX_LINES => Err("This file is too large to be shown here."),
                    Some(text) => {
                        let lines = cache.highlight(page.entry.id, &page.entry.path, &text);
                        let commits: Vec<CommitView> =
                            blame.commits.iter().map(|commit| CommitView::new(&links, commit)).collect();
                        let range = |range: &model::objects::BlameRange| RangeView {
                            start: range.start,
                            commit: range.commit.and_then(|index| commits.get(index).cloned()),
                            lines: lines.lines.iter().skip(range.start).take(range.length).cloned().collect(),
                        };
                        Ok(blame.ranges.iter().map(range).collect::<Vec<_>>())
                    }
                },
            };
            Ok((project, page, ranges))
        })
        .await?;
    let BlamePage { revision, entry, size, .. } = page;
    let links = ProjectLinks::new(&project.full_path());
    let (ranges, omitted) = match ranges {
        Ok(ranges) => (ranges, None),
        Err(reason) => (Vec::new(), Some(reason)),
    };
    response::page(&BlameTemplate {
        head: ProjectHead::new(&project, Tab::Code, &viewer),
        layout: Layout::new(
            &cx,
            viewer,
            format!("Blame of {} · {} · {}", entry.path, revision.name, project.full_path()),
        ),
        breadcrumbs: folder::breadcrumbs(&links, &project.path, &revision.name, &entry.path),
        size: human_size(size),
        blob_url: links.blob(&revision.name, &entry.path),
        raw_url: links.raw(&revision.name, &entry.path),
        history_url: links.commits(&revision.name, &entry.path),
        omitted,
        is_unfinished: ranges.iter().any(|range| range.commit.is_none()),
        ranges,
        name: entry.name,
        revision: revision.name,
    })
}
