//! Taking jobs.

use std::collections::BTreeMap;

use axum::{
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use ci::{Artifacts, Cache, Image, Service, Spec};
use forge::{
    Error, Forge,
    assignments::{self, Answer, Asking, Assignment, JobVariable},
};
use model::{Build, Oid};
use serde::Serialize;

use super::registration::{Info, RunnerToken};
use crate::{
    error::ApiError,
    params::{FromParams, ParamReader, Params},
    reply::{CreatedSecret, Reply},
    routes::{OperationDoc, ReplyDoc, Routes},
    site::Site,
};

/// What a runner comes back with that found nothing.
const LAST_UPDATE: HeaderName = HeaderName::from_static("x-gitlab-last-update");
/// Runners from whose name it is known that they understand 204; others take it for a failure.
const KNOWS_NO_CONTENT: &str = "gitlab-ci-multi-runner ";
/// From this length on a secret is worth hiding in what a job says; shorter ones would hide half of it.
const WORTH_MASKING: usize = 8;
/// Why jobs fail, in the words that runners may use.
const FAILURE_REASONS: [&str; 5] =
    ["unknown_failure", "script_failure", "runner_system_failure", "job_execution_timeout", "stuck_or_timeout_failure"];

pub(super) fn v4() -> Routes {
    Routes::new().post("/jobs/request", "Gives a runner a job", request).also(&[204, 403, 409])
}

pub(super) fn ci_v1() -> Routes {
    Routes::new().post("/builds/register", "Gives a runner a job", request_as_before).also(&[204, 403, 404])
}

struct Request {
    info: Option<Info>,
    last_update: Option<String>,
}

impl FromParams for Request {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self {
            info: from.lenient_object("info", "What the runner says about itself"),
            last_update: from.text("last_update", "What it was told when it last found nothing"),
        }
    }
}

async fn request(
    State(forge): State<Forge>,
    RunnerToken(token): RunnerToken,
    Params(given): Params<Request>,
    site: Site,
) -> Reply<JobReply<JobJson>> {
    let given = given.get()?;
    let asking = asking(token.get()?.clone(), given, site);
    match assignments::request(&forge, asking).await? {
        Answer::Job(job) => Ok(JobReply::Job(JobJson::from(*job))),
        Answer::Nothing { mark } | Answer::Paused { mark } => Ok(JobReply::Nothing { mark }),
        Answer::Lost => Err(Error::Taken("409 Conflict".to_owned()).into()),
    }
}

async fn request_as_before(
    State(forge): State<Forge>,
    RunnerToken(token): RunnerToken,
    Params(given): Params<Request>,
    headers: HeaderMap,
    site: Site,
) -> Reply<JobReply<OldJobJson>> {
    let given = given.get()?;
    let asking = asking(token.get()?.clone(), given, site);
    let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    match assignments::request(&forge, asking).await? {
        Answer::Job(job) => Ok(JobReply::Job(OldJobJson::from(*job))),
        Answer::Nothing { mark } if agent.starts_with(KNOWS_NO_CONTENT) => Ok(JobReply::Nothing { mark }),
        Answer::Lost if agent.starts_with(KNOWS_NO_CONTENT) => Ok(JobReply::Nothing { mark: String::new() }),
        Answer::Nothing { .. } | Answer::Paused { .. } | Answer::Lost => Err(ApiError::Forge(Error::NoSuchRow)),
    }
}

fn asking(token: model::tokens::Secret, given: &Request, site: Site) -> Asking {
    let info = given.info.as_ref().map(|info| info.0.clone()).unwrap_or_default();
    Asking { token, info, last_update: given.last_update.clone(), site }
}

/// What a runner is given.
enum JobReply<T> {
    /// 201: a job.
    Job(T),
    /// 204: nothing to do.
    Nothing { mark: String },
}

impl<T: Serialize> IntoResponse for JobReply<T> {
    fn into_response(self) -> Response {
        match self {
            Self::Job(job) => CreatedSecret(job).into_response(),
            Self::Nothing { mark } => {
                let mut response = StatusCode::NO_CONTENT.into_response();
                if let Ok(mark) = HeaderValue::from_str(&mark)
                    && !mark.is_empty()
                {
                    response.headers_mut().insert(LAST_UPDATE, mark);
                }
                response
            }
        }
    }
}

impl<T> ReplyDoc for JobReply<T> {
    fn describe(operation: &mut OperationDoc) {
        operation.status = 201;
    }
}

/// A job as runners of today read it.
#[derive(Serialize)]
struct JobJson {
    id: i64,
    token: String,
    allow_git_fetch: bool,
    job_info: JobInfoJson,
    git_info: GitInfoJson,
    runner_info: RunnerInfoJson,
    variables: Vec<VariableJson>,
    steps: Vec<StepJson>,
    image: Option<ImageJson>,
    services: Vec<ServiceJson>,
    artifacts: Option<Vec<ArtifactJson>>,
    cache: Vec<CacheJson>,
    credentials: [(); 0],
    dependencies: Vec<DependencyJson>,
    features: FeaturesJson,
}

#[derive(Serialize)]
struct JobInfoJson {
    id: i64,
    name: String,
    stage: String,
    project_id: i64,
    project_name: String,
    /// By this our own runner tells the caches of projects apart: another database gives numbers again.
    project_storage_id: String,
}

#[derive(Serialize)]
struct GitInfoJson {
    repo_url: String,
    #[serde(rename = "ref")]
    ref_name: String,
    sha: String,
    before_sha: String,
    ref_type: &'static str,
    refspecs: Vec<String>,
    depth: u32,
}

#[derive(Serialize)]
struct RunnerInfoJson {
    timeout: i64,
}

#[derive(Serialize)]
struct VariableJson {
    key: String,
    value: String,
    public: bool,
    masked: bool,
    file: bool,
    raw: bool,
}

#[derive(Serialize)]
struct StepJson {
    name: &'static str,
    script: Vec<String>,
    timeout: i64,
    when: &'static str,
    allow_failure: bool,
}

#[derive(Serialize)]
struct ImageJson {
    name: String,
    entrypoint: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pull_policy: Vec<String>,
}

#[derive(Serialize)]
struct ServiceJson {
    name: String,
    alias: Option<String>,
    entrypoint: Option<Vec<String>>,
    command: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    variables: Vec<VariableJson>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pull_policy: Vec<String>,
}

#[derive(Serialize)]
struct ArtifactJson {
    name: Option<String>,
    untracked: bool,
    paths: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    exclude: Vec<String>,
    when: &'static str,
    expire_in: Option<String>,
    artifact_type: String,
    artifact_format: &'static str,
}

#[derive(Serialize)]
struct CacheJson {
    key: String,
    untracked: bool,
    paths: Vec<String>,
    policy: &'static str,
    when: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fallback_keys: Vec<String>,
}

#[derive(Serialize)]
struct DependencyJson {
    id: i64,
    name: String,
    token: String,
    artifacts_file: Option<FileJson>,
}

#[derive(Serialize)]
struct FileJson {
    filename: String,
    size: i64,
}

#[derive(Serialize)]
struct FeaturesJson {
    trace_sections: bool,
    failure_reasons: [&'static str; FAILURE_REASONS.len()],
}

impl From<Assignment> for JobJson {
    fn from(job: Assignment) -> Self {
        let Assignment {
            build,
            pipeline,
            project,
            token,
            spec,
            variables,
            dependencies,
            cache_keys,
            timeout,
            repository_url,
            refspecs,
            depth,
            ..
        } = job;
        let token = token.reveal().to_owned();
        Self {
            id: build.id,
            allow_git_fetch: true,
            job_info: JobInfoJson {
                id: build.id,
                name: build.name,
                stage: build.stage,
                project_id: project.id,
                project_name: project.name,
                project_storage_id: project.storage.to_string(),
            },
            git_info: GitInfoJson {
                repo_url: repository_url.reveal().to_owned(),
                ref_name: pipeline.ref_name,
                sha: pipeline.sha.to_string(),
                before_sha: before(pipeline.before_sha),
                ref_type: if pipeline.tag { "tag" } else { "branch" },
                refspecs,
                depth,
            },
            runner_info: RunnerInfoJson { timeout },
            variables: variables.iter().map(VariableJson::from).collect(),
            steps: steps(&spec, timeout),
            image: spec.image.map(ImageJson::from),
            services: spec.services.into_iter().map(ServiceJson::from).collect(),
            artifacts: spec.artifacts.map(artifacts),
            cache: spec.cache.into_iter().zip(cache_keys).map(CacheJson::from).collect(),
            credentials: [],
            dependencies: dependencies.into_iter().map(|one| DependencyJson::new(one, &token)).collect(),
            features: FeaturesJson { trace_sections: true, failure_reasons: FAILURE_REASONS },
            token,
        }
    }
}

/// The commit before, which runners want to be there.
fn before(sha: Option<Oid>) -> String {
    sha.unwrap_or(Oid([0; 20])).to_string()
}

fn steps(spec: &Spec, timeout: i64) -> Vec<StepJson> {
    let script = spec.script.clone();
    let mut steps = vec![StepJson { name: "script", script, timeout, when: "on_success", allow_failure: false }];
    if !spec.after_script.is_empty() {
        let script = spec.after_script.clone();
        steps.push(StepJson { name: "after_script", script, timeout, when: "always", allow_failure: true });
    }
    steps
}

/// The archive, and each report that is wanted.
fn artifacts(wanted: Artifacts) -> Vec<ArtifactJson> {
    let Artifacts { name, untracked, paths, exclude, when, expire_in, reports, .. } = wanted;
    let report = |(kind, paths): (String, Vec<String>)| ArtifactJson {
        name: Some(kind.clone()),
        untracked: false,
        paths,
        exclude: Vec::new(),
        when: "always",
        expire_in: expire_in.clone(),
        artifact_type: kind,
        artifact_format: "gzip",
    };
    let mut all: Vec<ArtifactJson> = reports.into_iter().map(report).collect();
    if untracked || !paths.is_empty() {
        let archive = ArtifactJson {
            name,
            untracked,
            paths,
            exclude,
            when: when.word(),
            expire_in,
            artifact_type: "archive".to_owned(),
            artifact_format: "zip",
        };
        all.insert(0, archive);
    }
    all
}

impl From<&JobVariable> for VariableJson {
    fn from(variable: &JobVariable) -> Self {
        let value = variable.value.reveal().to_owned();
        let masked = !variable.public && value.len() >= WORTH_MASKING;
        Self { key: variable.key.clone(), value, public: variable.public, masked, file: false, raw: false }
    }
}

impl From<Image> for ImageJson {
    fn from(Image { name, entrypoint, pull_policy, .. }: Image) -> Self {
        Self { name, entrypoint, pull_policy }
    }
}

impl From<Service> for ServiceJson {
    fn from(service: Service) -> Self {
        let Service { name, alias, entrypoint, command, variables, pull_policy, .. } = service;
        let variable = |(key, value)| VariableJson { key, value, public: true, masked: false, file: false, raw: false };
        Self { name, alias, entrypoint, command, variables: variables.into_iter().map(variable).collect(), pull_policy }
    }
}

impl From<(Cache, String)> for CacheJson {
    fn from((cache, key): (Cache, String)) -> Self {
        let Cache { untracked, paths, policy, when, fallback_keys, .. } = cache;
        Self { key, untracked, paths, policy: policy.word(), when: when.word(), fallback_keys }
    }
}

impl DependencyJson {
    /// A running job fetches what others of its pipeline have left with its own token.
    fn new(build: Build, token: &str) -> Self {
        Self { id: build.id, name: build.name.clone(), token: token.to_owned(), artifacts_file: file_of(&build) }
    }
}

fn file_of(build: &Build) -> Option<FileJson> {
    build.artifacts.as_ref().map(|file| FileJson { filename: file.name.clone(), size: file.size })
}

/// A job as older runners read it.
#[derive(Serialize)]
struct OldJobJson {
    id: i64,
    #[serde(rename = "ref")]
    ref_name: String,
    tag: bool,
    sha: String,
    status: &'static str,
    name: String,
    token: String,
    stage: String,
    project_id: i64,
    project_name: String,
    commands: String,
    repo_url: String,
    before_sha: String,
    allow_git_fetch: bool,
    options: OptionsJson,
    timeout: i64,
    variables: Vec<OldVariableJson>,
    depends_on_builds: Vec<OldDependencyJson>,
    credentials: [(); 0],
}

#[derive(Serialize)]
struct OldVariableJson {
    key: String,
    value: String,
    public: bool,
}

/// What the file says, as far as older runners look at it.
#[derive(Serialize)]
struct OptionsJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    services: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    artifacts: Option<OldArtifactsJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache: Option<OldCacheJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dependencies: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    after_script: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    environment: Option<BTreeMap<&'static str, String>>,
}

#[derive(Serialize)]
struct OldArtifactsJson {
    name: Option<String>,
    untracked: bool,
    paths: Vec<String>,
    when: &'static str,
    expire_in: Option<String>,
}

#[derive(Serialize)]
struct OldCacheJson {
    key: String,
    untracked: bool,
    paths: Vec<String>,
}

#[derive(Serialize)]
struct OldDependencyJson {
    id: i64,
    #[serde(rename = "ref")]
    ref_name: String,
    tag: bool,
    sha: String,
    status: &'static str,
    name: String,
    token: String,
    stage: String,
    project_id: i64,
    project_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    artifacts_file: Option<FileJson>,
}

impl From<Assignment> for OldJobJson {
    fn from(job: Assignment) -> Self {
        let Assignment {
            build,
            pipeline,
            project,
            token,
            spec,
            variables,
            earlier,
            cache_keys,
            timeout,
            repository_url,
            ..
        } = job;
        let token = token.reveal().to_owned();
        let variable = |one: &JobVariable| OldVariableJson {
            key: one.key.clone(),
            value: one.value.reveal().to_owned(),
            public: one.public,
        };
        let dependency = |one: Build| OldDependencyJson {
            id: one.id,
            ref_name: one.pipeline.ref_name.clone(),
            tag: one.pipeline.tag,
            sha: one.pipeline.sha.to_string(),
            status: one.status.word(),
            name: one.name.clone(),
            token: token.clone(),
            stage: one.stage.clone(),
            project_id: one.project_id,
            project_name: project.name.clone(),
            artifacts_file: file_of(&one),
        };
        Self {
            id: build.id,
            ref_name: pipeline.ref_name,
            tag: pipeline.tag,
            sha: pipeline.sha.to_string(),
            status: build.status.word(),
            name: build.name,
            stage: build.stage,
            project_id: project.id,
            commands: spec.script.join("\n"),
            repo_url: repository_url.reveal().to_owned(),
            before_sha: before(pipeline.before_sha),
            allow_git_fetch: true,
            timeout,
            variables: variables.iter().map(variable).collect(),
            depends_on_builds: earlier.into_iter().map(dependency).collect(),
            credentials: [],
            options: OptionsJson::new(spec, cache_keys),
            project_name: project.name,
            token,
        }
    }
}

impl OptionsJson {
    fn new(spec: Spec, cache_keys: Vec<String>) -> Self {
        let archive = |wanted: Artifacts| OldArtifactsJson {
            name: wanted.name,
            untracked: wanted.untracked,
            paths: wanted.paths,
            when: wanted.when.word(),
            expire_in: wanted.expire_in,
        };
        // They know one cache.
        let cache = spec.cache.into_iter().zip(cache_keys).next();
        Self {
            image: spec.image.map(|image| image.name),
            services: spec.services.into_iter().map(|service| service.name).collect(),
            artifacts: spec.artifacts.filter(|wanted| wanted.untracked || !wanted.paths.is_empty()).map(archive),
            cache: cache.map(|(cache, key)| OldCacheJson { key, untracked: cache.untracked, paths: cache.paths }),
            dependencies: spec.dependencies,
            after_script: spec.after_script,
            environment: spec.environment.map(|environment| BTreeMap::from([("name", environment.name)])),
        }
    }
}
