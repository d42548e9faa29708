//! The JSON of a build for a runner.

use std::collections::BTreeMap;

use ci::{Artifacts, JobSpec};
use forge::job_queue::{JobPayload, JobVariable};
use model::Job;
use serde::Serialize;

use crate::runner::replies::{ArtifactsFileJson, before_sha_or_zeros};

/// A build.
#[derive(Serialize)]
pub(super) struct BuildJson {
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
    variables: Vec<VariableJson>,
    depends_on_builds: Vec<DependencyJson>,
    credentials: [(); 0],
}

#[derive(Serialize)]
struct VariableJson {
    key: String,
    value: String,
    public: bool,
}

/// The parts of the CI file that older runners read.
#[derive(Serialize)]
struct OptionsJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    services: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    artifacts: Option<ArtifactsJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache: Option<CacheJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dependencies: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    after_script: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    environment: Option<BTreeMap<&'static str, String>>,
}

#[derive(Serialize)]
struct ArtifactsJson {
    name: Option<String>,
    untracked: bool,
    paths: Vec<String>,
    when: &'static str,
    expire_in: Option<String>,
}

#[derive(Serialize)]
struct CacheJson {
    key: String,
    untracked: bool,
    paths: Vec<String>,
}

#[derive(Serialize)]
struct DependencyJson {
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
    artifacts_file: Option<ArtifactsFileJson>,
}

impl From<JobPayload> for BuildJson {
    fn from(payload: JobPayload) -> Self {
        let JobPayload {
            job,
            pipeline,
            project,
            token,
            spec,
            variables,
            earlier_jobs,
            cache_keys,
            timeout,
            repository_url,
            ..
        } = payload;
        let token = token.reveal().to_owned();
        let variable = |one: &JobVariable| VariableJson {
            key: one.key.clone(),
            value: one.value.reveal().to_owned(),
            public: one.public,
        };
        let dependency = |one: Job| DependencyJson {
            id: one.id.get(),
            ref_name: one.pipeline.ref_name.clone(),
            tag: one.pipeline.tag,
            sha: one.pipeline.sha.to_string(),
            status: one.status.as_str(),
            name: one.name.clone(),
            token: token.clone(),
            stage: one.stage.clone(),
            project_id: one.project_id.get(),
            project_name: project.name.clone(),
            artifacts_file: ArtifactsFileJson::of(&one),
        };
        Self {
            id: job.id.get(),
            ref_name: pipeline.ref_name,
            tag: pipeline.tag,
            sha: pipeline.sha.to_string(),
            status: job.status.as_str(),
            name: job.name,
            stage: job.stage,
            project_id: project.id.get(),
            commands: spec.script.join("\n"),
            repo_url: repository_url.reveal().to_owned(),
            before_sha: before_sha_or_zeros(pipeline.before_sha),
            allow_git_fetch: true,
            timeout,
            variables: variables.iter().map(variable).collect(),
            depends_on_builds: earlier_jobs.into_iter().map(dependency).collect(),
            credentials: [],
            options: OptionsJson::new(spec, cache_keys),
            project_name: project.name,
            token,
        }
    }
}

impl OptionsJson {
    fn new(spec: JobSpec, cache_keys: Vec<String>) -> Self {
        let archive = |artifacts: Artifacts| ArtifactsJson {
            name: artifacts.name,
            untracked: artifacts.untracked,
            paths: artifacts.paths,
            when: artifacts.when.as_str(),
            expire_in: artifacts.expire_in,
        };
        // These runners support one cache.
        let cache = spec.cache.into_iter().zip(cache_keys).next();
        Self {
            image: spec.image.map(|image| image.name),
            services: spec.services.into_iter().map(|service| service.name).collect(),
            artifacts: spec
                .artifacts
                .filter(|artifacts| artifacts.untracked || !artifacts.paths.is_empty())
                .map(archive),
            cache: cache.map(|(cache, key)| CacheJson { key, untracked: cache.untracked, paths: cache.paths }),
            dependencies: spec.dependencies,
            after_script: spec.after_script,
            environment: spec.environment.map(|environment| BTreeMap::from([("name", environment.name)])),
        }
    }
}
