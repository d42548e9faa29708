//! The pipelines of a project, with filters.

use askama::Template;
use forge::{
    Unvalidated,
    browse::InProject,
    pipeline_pages::{self, PipelineEntry, PipelineList},
};
use model::{Commit, Pipeline, Status, pipelines::PipelineFilter};

use super::status::StatusView;
use crate::{
    context::PageCx,
    error::PageResult,
    layout::{Layout, ProjectHead, Tab},
    links,
    paging::{self, Pager},
    response,
    text::{self, plain},
    times,
};

const PIPELINES_PER_PAGE: i64 = 20;

/// The statuses to choose from.
const STATUSES: [Status; 6] =
    [Status::Pending, Status::Running, Status::Success, Status::Failed, Status::Canceled, Status::Skipped];

#[derive(Template)]
#[template(path = "ci/pipelines.html")]
struct PipelinesTemplate {
    layout: Layout,
    head: ProjectHead,
    ref_name: String,
    /// Value, label, and whether it is the current one.
    statuses: Vec<(&'static str, &'static str, bool)>,
    is_filtered: bool,
    pipelines: Vec<PipelineRow>,
    can_run: bool,
    pager: Pager,
}

struct PipelineRow {
    pipeline: Pipeline,
    status: StatusView,
    commit: Option<Commit>,
    short_id: String,
    stages: Vec<StageMark>,
    duration: Option<String>,
}

/// The mark of a stage with the text that describes it.
struct StageMark {
    class: &'static str,
    text: String,
}

pub(crate) async fn show(cx: PageCx) -> PageResult {
    let (project, query) = (cx.project(), cx.query());
    let page = paging::requested(&query, PIPELINES_PER_PAGE);
    let ref_name = query.text("ref");
    let status = STATUSES.into_iter().find(|status| status.as_str() == query.get("status"));
    let filter = Unvalidated::valid(PipelineFilter {
        only_running: false,
        status,
        ref_name: Some(ref_name.clone()).filter(|name| !name.is_empty()),
    });
    let (viewer, found) = cx.read_list(move |tx| pipeline_pages::list(tx, &project, &filter, &page)).await?;
    let InProject { project, value: PipelineList { pipelines, can_run } } = found;
    let now = viewer.now;
    response::page(&PipelinesTemplate {
        head: ProjectHead::new(&project, Tab::Pipelines, &viewer),
        layout: Layout::new(&cx, viewer, format!("Pipelines · {}", project.full_path())),
        statuses: STATUSES
            .map(|choice| (choice.as_str(), StatusView::from(choice).text, Some(choice) == status))
            .to_vec(),
        is_filtered: !ref_name.is_empty() || status.is_some(),
        ref_name,
        pager: Pager::of(&cx.uri, &query, &pipelines),
        pipelines: pipelines.items.into_iter().map(|entry| PipelineRow::new(entry, now)).collect(),
        can_run,
    })
}

impl PipelineRow {
    fn new(entry: PipelineEntry, now: model::Time) -> Self {
        let PipelineEntry { pipeline, commit, stages } = entry;
        let stages = stages.into_iter().map(|stage| {
            let status = StatusView::from(stage.status);
            let name = stage.name.replace(plain::is_bidi_control, "\u{fffd}");
            StageMark { class: status.class, text: format!("{name}: {}", status.text) }
        });
        Self {
            status: pipeline.status.into(),
            short_id: short_id(&pipeline),
            stages: stages.collect(),
            duration: duration(&pipeline, now),
            commit,
            pipeline,
        }
    }
}

/// Returns the first digits of the id of the commit.
pub(super) fn short_id(pipeline: &Pipeline) -> String {
    pipeline.sha.to_string().chars().take(8).collect()
}

/// Returns how long a pipeline ran, or has been running.
pub(super) fn duration(pipeline: &Pipeline, now: model::Time) -> Option<String> {
    let running = || {
        let start = pipeline.started_at.filter(|_| pipeline.status == Status::Running)?;
        Some(now.as_second() - start.as_second())
    };
    pipeline.duration.or_else(running).map(times::duration)
}
