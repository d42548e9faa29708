//! The JSON of a job for a runner.

use ci::{Artifacts, Cache, Image, JobSpec, Service};
use forge::job_queue::{JobPayload, JobVariable};
use model::Job;
use serde::Serialize;

use crate::runner::replies::{ArtifactsFileJson, before_sha_or_zeros};

/// The minimum length of a masked variable; masking shorter values would make traces unreadable.
const MIN_MASKED_LENGTH: usize = 8;
/// The failure reasons that runners may report.
const FAILURE_REASONS: [&str; 5] =
    ["unknown_failure", "script_failure", "runner_system_failure", "job_execution_timeout", "stuck_or_timeout_failure"];

/// A job.
#[derive(Serialize)]
pub(super) struct JobJson {
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
    /// The built-in runner identifies the caches of a project by this, because another database reuses project IDs.
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
    artifacts_file: Option<ArtifactsFileJson>,
}

#[derive(Serialize)]
struct FeaturesJson {
    trace_sections: bool,
    failure_reasons: [&'static str; FAILURE_REASONS.len()],
}

impl From<JobPayload> for JobJson {
    fn from(payload: JobPayload) -> Self {
        let JobPayload {
            job,
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
        } = payload;
        let token = token.reveal().to_owned();
        Self {
            id: job.id.get(),
            allow_git_fetch: true,
            job_info: JobInfoJson {
                id: job.id.get(),
                name: job.name,
                stage: job.stage,
                project_id: project.id.get(),
                project_name: project.name,
                project_storage_id: project.storage.to_string(),
            },
            git_info: GitInfoJson {
                repo_url: repository_url.reveal().to_owned(),
                ref_name: pipeline.ref_name,
                sha: pipeline.sha.to_string(),
                before_sha: before_sha_or_zeros(pipeline.before_sha),
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

fn steps(spec: &JobSpec, timeout: i64) -> Vec<StepJson> {
    let script = spec.script.clone();
    let mut steps = vec![StepJson { name: "script", script, timeout, when: "on_success", allow_failure: false }];
    if !spec.after_script.is_empty() {
        let script = spec.after_script.clone();
        steps.push(StepJson { name: "after_script", script, timeout, when: "always", allow_failure: true });
    }
    steps
}

/// Returns the archive and each report.
fn artifacts(artifacts: Artifacts) -> Vec<ArtifactJson> {
    let Artifacts { name, untracked, paths, exclude, when, expire_in, reports, .. } = artifacts;
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
            when: when.as_str(),
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
        let masked = !variable.public && value.len() >= MIN_MASKED_LENGTH;
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
        Self { key, untracked, paths, policy: policy.as_str(), when: when.as_str(), fallback_keys }
    }
}

impl DependencyJson {
    /// A job downloads the artifacts of other jobs of its pipeline with its own token.
    fn new(job: Job, token: &str) -> Self {
        Self {
            id: job.id.get(),
            name: job.name.clone(),
            token: token.to_owned(),
            artifacts_file: ArtifactsFileJson::of(&job),
        }
    }
}
