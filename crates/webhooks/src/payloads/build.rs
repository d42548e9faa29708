//! The payload of builds, as GitLab 8.14 calls jobs.

use model::{JobId, Oid, PipelineId, Project, Time, UserId, webhook_events::JobEvent};
use serde::Serialize;

use super::{
    JsonPayloadRenderer,
    json::{self, ProjectLinks, RepositoryJson},
};

/// A build that was created, started or finished.
#[derive(Clone, Copy)]
pub struct BuildPayload<'a> {
    /// The project.
    pub project: &'a Project,
    /// The branch or the tag.
    pub ref_name: &'a str,
    /// Whether it is a tag.
    pub tag: bool,
    /// The previous commit of the branch, if known.
    pub before_sha: Option<Oid>,
    /// The commit.
    pub sha: Oid,
    /// Id of the build.
    pub id: JobId,
    /// The name.
    pub name: &'a str,
    /// The stage.
    pub stage: &'a str,
    /// The status: `created`, `pending`, `running`, `success`, `failed`, `canceled` or `skipped`.
    pub status: &'a str,
    /// When it started.
    pub started_at: Option<Time>,
    /// When it finished.
    pub finished_at: Option<Time>,
    /// Duration in seconds.
    pub duration: Option<f64>,
    /// Whether the pipeline continues if it fails.
    pub allow_failure: bool,
    /// The user who caused it; `None` if there is none, or if the account was deleted.
    pub user: Option<BuildUser<'a>>,
    /// The pipeline.
    pub pipeline: BuildPipeline<'a>,
}

/// The user who caused a build.
#[derive(Clone, Copy)]
pub struct BuildUser<'a> {
    /// Id of the user.
    pub id: UserId,
    /// The display name.
    pub name: &'a str,
    /// The primary email address.
    pub email: &'a str,
}

/// The pipeline of a build, with its commit.
#[derive(Clone, Copy)]
pub struct BuildPipeline<'a> {
    /// Id of the pipeline.
    pub id: PipelineId,
    /// The full commit message; `None` if the commit no longer exists.
    pub message: Option<&'a str>,
    /// The author of the commit.
    pub author_name: Option<&'a str>,
    /// The email address of the author.
    pub author_email: Option<&'a str>,
    /// The status of the pipeline.
    pub status: &'a str,
    /// Duration in seconds.
    pub duration: Option<i64>,
    /// When it started.
    pub started_at: Option<Time>,
    /// When it finished.
    pub finished_at: Option<Time>,
}

#[derive(Serialize)]
struct BuildJson<'a> {
    object_kind: &'static str,
    #[serde(rename = "ref")]
    ref_name: &'a str,
    tag: bool,
    before_sha: String,
    sha: String,
    build_id: i64,
    build_name: &'a str,
    build_stage: &'a str,
    build_status: &'a str,
    build_started_at: Option<String>,
    build_finished_at: Option<String>,
    build_duration: Option<f64>,
    build_allow_failure: bool,
    project_id: i64,
    project_name: String,
    user: BuildUserJson<'a>,
    commit: BuildCommitJson<'a>,
    repository: RepositoryJson<'a>,
}

/// Present even if no user caused the build.
#[derive(Serialize)]
struct BuildUserJson<'a> {
    id: Option<i64>,
    name: Option<&'a str>,
    email: Option<&'a str>,
}

/// Named after the commit, but `id` is that of the pipeline.
#[derive(Serialize)]
struct BuildCommitJson<'a> {
    id: i64,
    sha: String,
    message: Option<&'a str>,
    author_name: Option<&'a str>,
    author_email: Option<&'a str>,
    status: &'a str,
    duration: Option<i64>,
    started_at: Option<String>,
    finished_at: Option<String>,
}

impl<'a> From<&JobEvent<'a>> for BuildPayload<'a> {
    fn from(event: &JobEvent<'a>) -> Self {
        let JobEvent { project, pipeline, job, email, commit } = *event;
        let seconds = |(from, to): (Time, Time)| (to - from).total(jiff::Unit::Second).unwrap_or_default();
        Self {
            project,
            ref_name: &pipeline.ref_name,
            tag: pipeline.tag,
            before_sha: pipeline.before_sha,
            sha: pipeline.sha,
            id: job.id,
            name: &job.name,
            stage: &job.stage,
            status: job.status.as_str(),
            started_at: job.started_at,
            finished_at: job.finished_at,
            duration: job.started_at.zip(job.finished_at).map(seconds),
            allow_failure: job.allow_failure,
            user: job.user.as_ref().map(|user| BuildUser {
                id: user.id,
                name: &user.name,
                email: email.unwrap_or_default(),
            }),
            pipeline: BuildPipeline {
                id: pipeline.id,
                message: commit.map(|commit| commit.message.as_str()),
                author_name: commit.map(|commit| commit.author.name.as_str()),
                author_email: commit.map(|commit| commit.author.email.as_str()),
                status: pipeline.status.as_str(),
                duration: pipeline.duration,
                started_at: pipeline.started_at,
                finished_at: pipeline.finished_at,
            },
        }
    }
}

impl BuildPayload<'_> {
    /// Renders the payload.
    pub fn to_json(&self, renderer: &JsonPayloadRenderer) -> String {
        let links = ProjectLinks::new(self.project, renderer);
        let format_time = |time: Option<Time>| time.map(|time| renderer.format_time(time));
        let pipeline = &self.pipeline;
        json::serialize(&BuildJson {
            object_kind: "build",
            ref_name: self.ref_name,
            tag: self.tag,
            before_sha: self.before_sha.map_or_else(|| Oid::ZERO.to_owned(), |oid| oid.to_string()),
            sha: self.sha.to_string(),
            build_id: self.id.get(),
            build_name: self.name,
            build_stage: self.stage,
            build_status: self.status,
            build_started_at: format_time(self.started_at),
            build_finished_at: format_time(self.finished_at),
            build_duration: self.duration,
            build_allow_failure: self.allow_failure,
            project_id: self.project.id.get(),
            project_name: format!("{} / {}", self.project.namespace.name, self.project.name),
            user: BuildUserJson {
                id: self.user.map(|user| user.id.get()),
                name: self.user.map(|user| user.name),
                email: self.user.map(|user| user.email),
            },
            commit: BuildCommitJson {
                id: pipeline.id.get(),
                sha: self.sha.to_string(),
                message: pipeline.message,
                author_name: pipeline.author_name,
                author_email: pipeline.author_email,
                status: pipeline.status,
                duration: pipeline.duration,
                started_at: format_time(pipeline.started_at),
                finished_at: format_time(pipeline.finished_at),
            },
            repository: links.repository_with_urls(),
        })
    }
}
