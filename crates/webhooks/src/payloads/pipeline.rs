//! How pipelines go on.

use model::{Commit, Oid, Project, Time, users::UserSummary, webhook_events::PipelineHappening};
use serde::Serialize;

use super::{
    Clerk,
    shared::{self, CommitJson, Place, ProjectJson, UserJson},
};

/// A pipeline whose status has changed.
#[derive(Clone, Copy)]
pub struct PipelinePayload<'a> {
    /// Where.
    pub project: &'a Project,
    /// Number of the pipeline.
    pub id: i64,
    /// The branch or the tag.
    pub ref_name: &'a str,
    /// Whether it is a tag.
    pub tag: bool,
    /// The commit that is built.
    pub sha: Oid,
    /// Where the branch was before; `None` if that is not known.
    pub before_sha: Option<Oid>,
    /// How it stands: `created`, `pending`, `running`, `success`, `failed`, `canceled` or `skipped`.
    pub status: &'a str,
    /// The names of its stages, in order.
    pub stages: &'a [&'a str],
    /// When it was made.
    pub created_at: Time,
    /// When it ended.
    pub finished_at: Option<Time>,
    /// How long it took, in seconds.
    pub duration: Option<i64>,
    /// Who caused it; `None` if nobody did, or if they are gone.
    pub user: Option<&'a UserSummary>,
    /// The commit that is built; `None` if it is gone.
    pub commit: Option<&'a Commit>,
    /// All its builds, also those that were tried again.
    pub builds: &'a [PipelineBuild<'a>],
}

/// A build of a pipeline.
#[derive(Clone, Copy)]
pub struct PipelineBuild<'a> {
    /// Number of the build.
    pub id: i64,
    /// The stage that it belongs to.
    pub stage: &'a str,
    /// What it is called.
    pub name: &'a str,
    /// How it stands, in the words of the pipeline.
    pub status: &'a str,
    /// When it was made.
    pub created_at: Time,
    /// When it began.
    pub started_at: Option<Time>,
    /// When it ended.
    pub finished_at: Option<Time>,
    /// When it is run: `on_success`, `on_failure`, `always` or `manual`.
    pub when: &'a str,
    /// Who caused it; `None` if nobody did, or if they are gone.
    pub user: Option<&'a UserSummary>,
    /// Who runs it, or ran it.
    pub runner: Option<PipelineRunner<'a>>,
    /// What it left behind: the name of the file, and its size in bytes.
    pub artifacts_file: Option<(&'a str, i64)>,
}

/// Who runs a build.
#[derive(Clone, Copy)]
pub struct PipelineRunner<'a> {
    /// Number of the runner.
    pub id: i64,
    /// What it is.
    pub description: &'a str,
    /// Whether it takes builds.
    pub active: bool,
    /// Whether it is there for everybody.
    pub is_shared: bool,
}

#[derive(Serialize)]
struct PipelineHappeningJson<'a> {
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

/// The object is there even if the build left nothing behind.
#[derive(Serialize)]
struct ArtifactsJson<'a> {
    filename: Option<&'a str>,
    size: Option<i64>,
}

impl<'a> BuildJson<'a> {
    fn new(build: &'a PipelineBuild<'_>, clerk: &Clerk) -> Self {
        let (filename, size) = build.artifacts_file.unzip();
        Self {
            id: build.id,
            stage: build.stage,
            name: build.name,
            status: build.status,
            created_at: clerk.moment(build.created_at),
            started_at: build.started_at.map(|time| clerk.moment(time)),
            finished_at: build.finished_at.map(|time| clerk.moment(time)),
            when: build.when,
            manual: build.when == "manual",
            user: build.user.map(|user| UserJson::new(user, clerk)),
            runner: build.runner.map(|PipelineRunner { id, description, active, is_shared }| RunnerJson {
                id,
                description,
                active,
                is_shared,
            }),
            artifacts_file: ArtifactsJson { filename, size },
        }
    }
}

/// The text of the payload of something that has happened.
pub(super) fn to_json(happening: &PipelineHappening<'_>, clerk: &Clerk) -> String {
    let PipelineHappening { project, pipeline, builds, commit } = *happening;
    let builds: Vec<PipelineBuild<'_>> = builds
        .iter()
        .map(|build| PipelineBuild {
            id: build.id,
            stage: &build.stage,
            name: &build.name,
            status: build.status.word(),
            created_at: build.created_at,
            started_at: build.started_at,
            finished_at: build.finished_at,
            when: &build.when,
            user: build.user.as_ref(),
            runner: build.runner.as_ref().map(|runner| PipelineRunner {
                id: runner.id,
                description: &runner.description,
                active: runner.active,
                is_shared: runner.is_shared,
            }),
            artifacts_file: build.artifacts.as_ref().map(|file| (file.name.as_str(), file.size)),
        })
        .collect();
    // Only stages in which something is built.
    let used = |stage: &&String| builds.iter().any(|build| build.stage == **stage);
    let stages: Vec<&str> = pipeline.stages.iter().filter(used).map(String::as_str).collect();
    PipelinePayload {
        project,
        id: pipeline.id,
        ref_name: &pipeline.ref_name,
        tag: pipeline.tag,
        sha: pipeline.sha,
        before_sha: pipeline.before_sha,
        status: pipeline.status.word(),
        stages: &stages,
        created_at: pipeline.created_at,
        finished_at: pipeline.finished_at,
        duration: pipeline.duration,
        user: pipeline.user.as_ref(),
        commit,
        builds: &builds,
    }
    .to_json(clerk)
}

impl PipelinePayload<'_> {
    /// The text of the payload.
    pub fn to_json(&self, clerk: &Clerk) -> String {
        let place = Place::new(self.project, clerk);
        shared::text(&PipelineHappeningJson {
            object_kind: "pipeline",
            object_attributes: PipelineJson {
                id: self.id,
                ref_name: self.ref_name,
                tag: self.tag,
                sha: self.sha.to_string(),
                before_sha: self.before_sha.map_or_else(|| Oid::ZERO.to_owned(), |oid| oid.to_string()),
                status: self.status,
                stages: self.stages,
                created_at: clerk.moment(self.created_at),
                finished_at: self.finished_at.map(|time| clerk.moment(time)),
                duration: self.duration,
            },
            user: self.user.map(|user| UserJson::new(user, clerk)),
            project: place.short_project(),
            commit: self.commit.map(|commit| CommitJson::new(commit, &place)),
            builds: self.builds.iter().map(|build| BuildJson::new(build, clerk)).collect(),
        })
    }
}
