//! The payload of pipelines.

use model::{
    Commit, JobId, Oid, PipelineId, Project, RunnerId, Time, users::UserSummary, webhook_events::PipelineEvent,
};
use serde::Serialize;

use super::{
    JsonPayloadRenderer,
    json::{self, CommitJson, ProjectJson, ProjectLinks, UserJson},
};

/// A pipeline whose status has changed.
#[derive(Clone, Copy)]
pub struct PipelinePayload<'a> {
    /// The project.
    pub project: &'a Project,
    /// Id of the pipeline.
    pub id: PipelineId,
    /// The branch or the tag.
    pub ref_name: &'a str,
    /// Whether it is a tag.
    pub tag: bool,
    /// The commit.
    pub sha: Oid,
    /// The previous commit of the branch, if known.
    pub before_sha: Option<Oid>,
    /// The status: `created`, `pending`, `running`, `success`, `failed`, `canceled` or `skipped`.
    pub status: &'a str,
    /// The names of its stages, in order.
    pub stages: &'a [&'a str],
    /// When it was created.
    pub created_at: Time,
    /// When it finished.
    pub finished_at: Option<Time>,
    /// Duration in seconds.
    pub duration: Option<i64>,
    /// The user who caused it; `None` if there is none, or if the account was deleted.
    pub user: Option<&'a UserSummary>,
    /// The commit; `None` if it no longer exists.
    pub commit: Option<&'a Commit>,
    /// All its builds, including retried ones.
    pub builds: &'a [PipelineBuild<'a>],
}

/// A build of a pipeline.
#[derive(Clone, Copy)]
pub struct PipelineBuild<'a> {
    /// Id of the build.
    pub id: JobId,
    /// The stage.
    pub stage: &'a str,
    /// The name.
    pub name: &'a str,
    /// The status, with the same values as that of the pipeline.
    pub status: &'a str,
    /// When it was created.
    pub created_at: Time,
    /// When it started.
    pub started_at: Option<Time>,
    /// When it finished.
    pub finished_at: Option<Time>,
    /// When it runs: `on_success`, `on_failure`, `always` or `manual`.
    pub when: &'a str,
    /// The user who caused it; `None` if there is none, or if the account was deleted.
    pub user: Option<&'a UserSummary>,
    /// The runner that it is assigned to.
    pub runner: Option<PipelineRunner<'a>>,
    /// The artifacts: file name and size in bytes.
    pub artifacts_file: Option<(&'a str, i64)>,
}

/// The runner of a build.
#[derive(Clone, Copy)]
pub struct PipelineRunner<'a> {
    /// Id of the runner.
    pub id: RunnerId,
    /// The description.
    pub description: &'a str,
    /// Whether it accepts builds.
    pub active: bool,
    /// Whether it serves all projects.
    pub is_shared: bool,
}

#[derive(Serialize)]
struct PipelineEventJson<'a> {
    object_kind: &'static str,
    object_attributes: PipelineJson<'a>,
    user: Option<UserJson<'a>>,
    project: ProjectJson<'a>,
    commit: Option<CommitJson<'a>>,
    builds: Vec<BuildJson<'a>>,
}

#[derive(Serialize)]
struct PipelineJson<'a> {
    id: i64,
    #[serde(rename = "ref")]
    ref_name: &'a str,
    tag: bool,
    sha: String,
    before_sha: String,
    status: &'a str,
    stages: &'a [&'a str],
    created_at: String,
    finished_at: Option<String>,
    duration: Option<i64>,
}

#[derive(Serialize)]
struct BuildJson<'a> {
    id: i64,
    stage: &'a str,
    name: &'a str,
    status: &'a str,
    created_at: String,
    started_at: Option<String>,
    finished_at: Option<String>,
    when: &'a str,
    manual: bool,
    user: Option<UserJson<'a>>,
    runner: Option<RunnerJson<'a>>,
    artifacts_file: ArtifactsJson<'a>,
}

#[derive(Serialize)]
struct RunnerJson<'a> {
    id: i64,
    description: &'a str,
    active: bool,
    is_shared: bool,
}

/// Present even if the build has no artifacts.
#[derive(Serialize)]
struct ArtifactsJson<'a> {
    filename: Option<&'a str>,
    size: Option<i64>,
}

impl<'a> BuildJson<'a> {
    fn new(build: &'a PipelineBuild<'_>, renderer: &JsonPayloadRenderer) -> Self {
        let (filename, size) = build.artifacts_file.unzip();
        Self {
            id: build.id.get(),
            stage: build.stage,
            name: build.name,
            status: build.status,
            created_at: renderer.format_time(build.created_at),
            started_at: build.started_at.map(|time| renderer.format_time(time)),
            finished_at: build.finished_at.map(|time| renderer.format_time(time)),
            when: build.when,
            manual: build.when == "manual",
            user: build.user.map(|user| UserJson::new(user, renderer)),
            runner: build.runner.map(|PipelineRunner { id, description, active, is_shared }| RunnerJson {
                id: id.get(),
                description,
                active,
                is_shared,
            }),
            artifacts_file: ArtifactsJson { filename, size },
        }
    }
}

/// Renders the payload of an event.
pub(super) fn to_json(event: &PipelineEvent<'_>, renderer: &JsonPayloadRenderer) -> String {
    let PipelineEvent { project, pipeline, jobs, commit } = *event;
    let builds: Vec<PipelineBuild<'_>> = jobs
        .iter()
        .map(|job| PipelineBuild {
            id: job.id,
            stage: &job.stage,
            name: &job.name,
            status: job.status.as_str(),
            created_at: job.created_at,
            started_at: job.started_at,
            finished_at: job.finished_at,
            when: &job.when,
            user: job.user.as_ref(),
            runner: job.runner.as_ref().map(|runner| PipelineRunner {
                id: runner.id,
                description: &runner.description,
                active: runner.active,
                is_shared: runner.is_shared,
            }),
            artifacts_file: job.artifacts.as_ref().map(|file| (file.name.as_str(), file.size)),
        })
        .collect();
    // Stages without builds are omitted.
    let used = |stage: &&String| builds.iter().any(|build| build.stage == **stage);
    let stages: Vec<&str> = pipeline.stages.iter().filter(used).map(String::as_str).collect();
    PipelinePayload {
        project,
        id: pipeline.id,
        ref_name: &pipeline.ref_name,
        tag: pipeline.tag,
        sha: pipeline.sha,
        before_sha: pipeline.before_sha,
        status: pipeline.status.as_str(),
        stages: &stages,
        created_at: pipeline.created_at,
        finished_at: pipeline.finished_at,
        duration: pipeline.duration,
        user: pipeline.user.as_ref(),
        commit,
        builds: &builds,
    }
    .to_json(renderer)
}

impl PipelinePayload<'_> {
    /// Renders the payload.
    pub fn to_json(&self, renderer: &JsonPayloadRenderer) -> String {
        let links = ProjectLinks::new(self.project, renderer);
        json::serialize(&PipelineEventJson {
            object_kind: "pipeline",
            object_attributes: PipelineJson {
                id: self.id.get(),
                ref_name: self.ref_name,
                tag: self.tag,
                sha: self.sha.to_string(),
                before_sha: self.before_sha.map_or_else(|| Oid::ZERO.to_owned(), |oid| oid.to_string()),
                status: self.status,
                stages: self.stages,
                created_at: renderer.format_time(self.created_at),
                finished_at: self.finished_at.map(|time| renderer.format_time(time)),
                duration: self.duration,
            },
            user: self.user.map(|user| UserJson::new(user, renderer)),
            project: links.project_without_legacy_urls(),
            commit: self.commit.map(|commit| CommitJson::new(commit, &links)),
            builds: self.builds.iter().map(|build| BuildJson::new(build, renderer)).collect(),
        })
    }
}
