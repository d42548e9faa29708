//! How builds go on.

use model::{Oid, Project, Time, webhook_events::BuildHappening};
use serde::Serialize;

use super::{
    Clerk,
    shared::{self, Place, RepositoryJson},
};

/// A build that was made, began or ended.
#[derive(Clone, Copy)]
pub struct BuildPayload<'a> {
    /// Where.
    pub project: &'a Project,
    /// The branch or the tag.
    pub ref_name: &'a str,
    /// Whether it is a tag.
    pub tag: bool,
    /// Where the branch was before; `None` if that is not known.
    pub before_sha: Option<Oid>,
    /// The commit that is built.
    pub sha: Oid,
    /// Number of the build.
    pub id: i64,
    /// What it is called.
    pub name: &'a str,
    /// The stage that it belongs to.
    pub stage: &'a str,
    /// How it stands: `created`, `pending`, `running`, `success`, `failed`, `canceled` or `skipped`.
    pub status: &'a str,
    /// When it began.
    pub started_at: Option<Time>,
    /// When it ended.
    pub finished_at: Option<Time>,
    /// How long it took, in seconds.
    pub duration: Option<f64>,
    /// Whether the others go on if it fails.
    pub allow_failure: bool,
    /// Who caused it; `None` if nobody did, or if they are gone.
    pub user: Option<BuildUser<'a>>,
    /// The pipeline that it belongs to.
    pub pipeline: BuildPipeline<'a>,
}

/// Who caused a build.
#[derive(Clone, Copy)]
pub struct BuildUser<'a> {
    /// Number of the user.
    pub id: i64,
    /// The name people read.
    pub name: &'a str,
    /// The primary address.
    pub email: &'a str,
}

/// The pipeline that a build belongs to, with the commit that both are about.
#[derive(Clone, Copy)]
pub struct BuildPipeline<'a> {
    /// Number of the pipeline.
    pub id: i64,
    /// All of the commit's message; `None` if the commit is gone.
    pub message: Option<&'a str>,
    /// Who wrote the commit.
    pub author_name: Option<&'a str>,
    /// Their address.
    pub author_email: Option<&'a str>,
    /// How the pipeline stands.
    pub status: &'a str,
    /// How long it took, in seconds.
    pub duration: Option<i64>,
    /// When it began.
    pub started_at: Option<Time>,
    /// When it ended.
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

/// The object is there even if nobody caused the build.
#[derive(Serialize)]
struct BuildUserJson<'a> {
    id: Option<i64>,
    name: Option<&'a str>,
    email: Option<&'a str>,
}

/// Called a commit, but its number is that of the pipeline.
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

impl<'a> From<&BuildHappening<'a>> for BuildPayload<'a> {
    fn from(happening: &BuildHappening<'a>) -> Self {
        let BuildHappening { project, pipeline, build, email, commit } = *happening;
        let seconds = |(from, to): (Time, Time)| (to - from).total(jiff::Unit::Second).unwrap_or_default();
        Self {
            project,
            ref_name: &pipeline.ref_name,
            tag: pipeline.tag,
            before_sha: pipeline.before_sha,
            sha: pipeline.sha,
            id: build.id,
            name: &build.name,
            stage: &build.stage,
            status: build.status.word(),
            started_at: build.started_at,
            finished_at: build.finished_at,
            duration: build.started_at.zip(build.finished_at).map(seconds),
            allow_failure: build.allow_failure,
            user: build.user.as_ref().map(|user| BuildUser {
                id: user.id,
                name: &user.name,
                email: email.unwrap_or_default(),
            }),
            pipeline: BuildPipeline {
                id: pipeline.id,
                message: commit.map(|commit| commit.message.as_str()),
                author_name: commit.map(|commit| commit.author.name.as_str()),
                author_email: commit.map(|commit| commit.author.email.as_str()),
                status: pipeline.status.word(),
                duration: pipeline.duration,
                started_at: pipeline.started_at,
                finished_at: pipeline.finished_at,
            },
        }
    }
}

impl BuildPayload<'_> {
    /// The text of the payload.
    pub fn to_json(&self, clerk: &Clerk) -> String {
        let place = Place::new(self.project, clerk);
        let moment = |time: Option<Time>| time.map(|time| clerk.moment(time));
        let pipeline = &self.pipeline;
        shared::text(&BuildJson {
            object_kind: "build",
            ref_name: self.ref_name,
            tag: self.tag,
            before_sha: self.before_sha.map_or_else(|| Oid::ZERO.to_owned(), |oid| oid.to_string()),
            sha: self.sha.to_string(),
            build_id: self.id,
            build_name: self.name,
            build_stage: self.stage,
            build_status: self.status,
            build_started_at: moment(self.started_at),
            build_finished_at: moment(self.finished_at),
            build_duration: self.duration,
            build_allow_failure: self.allow_failure,
            project_id: self.project.id,
            project_name: format!("{} / {}", self.project.namespace.name, self.project.name),
            user: BuildUserJson {
                id: self.user.map(|user| user.id),
                name: self.user.map(|user| user.name),
                email: self.user.map(|user| user.email),
            },
            commit: BuildCommitJson {
                id: pipeline.id,
                sha: self.sha.to_string(),
                message: pipeline.message,
                author_name: pipeline.author_name,
                author_email: pipeline.author_email,
                status: pipeline.status,
                duration: pipeline.duration,
                started_at: moment(pipeline.started_at),
                finished_at: moment(pipeline.finished_at),
            },
            repository: place.wide_repository(),
        })
    }
}
