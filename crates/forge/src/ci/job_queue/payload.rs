//! Loads what a runner needs to run a job: its specification, variables and dependencies.

use ci::{CacheKey, JobSpec};
use model::{
    Job, JobId, Oid, Pipeline, Project, Runner, Site, User,
    pipelines::Source,
    tokens::{Digest, Secret},
    variables::Variable,
};

use crate::{
    Error, ProjectAbility, ProjectRef, ReadTx, Result,
    pipelines::{planning, state_machine::DEFAULT_TIMEOUT_SECONDS},
    variables,
};

/// The user name with which jobs clone the repository.
const CLONE_USERNAME: &str = "gitlab-ci-token";
/// The default depth of the clone.
const DEFAULT_DEPTH: u32 = 50;
/// The version of GitLab reported to scripts.
const GITLAB_VERSION: &str = "8.14.0";

/// A job for a runner. Not `Debug`, because it contains secrets.
pub struct JobPayload {
    /// The job.
    pub job: Job,
    /// The pipeline that it belongs to.
    pub pipeline: Pipeline,
    /// The project.
    pub project: Project,
    /// The job token, with which the runner reports on the job and the job clones the repository.
    pub token: Secret,
    /// What the job runs.
    pub spec: JobSpec,
    /// The variables; the last of several with the same key wins.
    pub variables: Vec<JobVariable>,
    /// The jobs whose artifacts it downloads.
    pub dependencies: Vec<Job>,
    /// All jobs whose artifacts it could download, for runners that choose themselves.
    pub earlier_jobs: Vec<Job>,
    /// The key of each cache, in the order of `spec.cache`.
    pub cache_keys: Vec<String>,
    /// The timeout in seconds.
    pub timeout: i64,
    /// The URL to clone from, including the token.
    pub repository_url: Secret,
    /// The refspecs to fetch.
    pub refspecs: Vec<String>,
    /// The depth of the clone; 0 means the full history.
    pub depth: u32,
}

/// A variable of a job.
#[derive(Clone, Debug)]
pub struct JobVariable {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Secret,
    /// Whether all users who can see the job may see the value.
    pub public: bool,
}

/// Loads the payload of a job.
pub(super) fn load(
    tx: &mut ReadTx<'_>,
    job: JobId,
    runner: &Runner,
    token: &Secret,
    site: &Site,
) -> Result<JobPayload> {
    let now = tx.now();
    let missing = || Error::Internal(format!("job {job} no longer exists").into());
    let found = store::jobs::by_ids(tx.db(), &[job], now)?.pop().ok_or_else(missing)?;
    let definition = store::job_queue::definition_of(tx.db(), job)?.ok_or_else(missing)?;
    let spec = JobSpec::from_json(&definition.spec)
        .ok_or_else(|| Error::Internal(format!("cannot parse the specification of job {job}").into()))?;
    let pipeline = store::pipelines::by_id_without_coverage(tx.db(), found.pipeline.id)?.ok_or_else(missing)?;
    let project = tx.project_as_system(&ProjectRef::Id(found.project_id), ProjectAbility::ReadPipelines)?;
    let user = match &found.user {
        Some(user) => store::users::by_id(tx.db(), user.id)?,
        None => None,
    };
    let mut earlier_jobs = store::job_queue::of_earlier_stages(tx.db(), pipeline.id, found.stage_index, now)?;
    let dependencies = match &spec.dependencies {
        None => earlier_jobs.clone(),
        Some(names) => {
            let named = store::job_queue::by_names(tx.db(), pipeline.id, names, now)?;
            earlier_jobs.extend(named.iter().filter(|one| one.stage_index >= found.stage_index).cloned());
            named
        }
    };
    let repository_url = repository_url(site, &project, token);
    let predefined =
        PredefinedVariables { job: &found, pipeline: &pipeline, project: &project, runner, user: user.as_ref(), site };
    let mut variables = predefined.variables(token, &repository_url);
    variables.extend(of_commit(tx, &project, &pipeline)?);
    variables.extend(spec.variables.iter().map(|(key, value)| public(key, value)));
    variables.extend(predefined.of_user());
    variables.extend(variables::of_project(tx, project.id)?.into_iter().map(secret));
    let trigger_variables =
        definition.variables.map(|encrypted| variables::decrypt_all(tx, project.id, &encrypted)).unwrap_or_default();
    variables.extend(trigger_variables.into_iter().map(|(key, value)| hidden(&key, &Secret::new(value))));
    variables.extend(of_environment(&spec, &variables));
    let depth = depth(&variables);
    let timeout = definition.timeout.unwrap_or(DEFAULT_TIMEOUT_SECONDS);
    Ok(JobPayload {
        cache_keys: cache_keys(tx, &project, pipeline.sha, &spec),
        refspecs: refspecs(&pipeline, depth),
        timeout: runner.maximum_timeout.map_or(timeout, |maximum| maximum.min(timeout)),
        dependencies: dependencies.into_iter().filter(|one| one.artifacts.is_some()).collect(),
        job: found,
        pipeline,
        project,
        token: token.clone(),
        spec,
        variables,
        earlier_jobs,
        repository_url,
        depth,
    })
}

fn public(key: &str, value: impl Into<String>) -> JobVariable {
    JobVariable { key: key.to_owned(), value: Secret::new(value.into()), public: true }
}

fn hidden(key: &str, value: &Secret) -> JobVariable {
    JobVariable { key: key.to_owned(), value: value.clone(), public: false }
}

fn secret(variable: Variable) -> JobVariable {
    JobVariable { key: variable.key, value: variable.value, public: false }
}

/// Returns the URL from which a job clones its project.
fn repository_url(site: &Site, project: &Project, token: &Secret) -> Secret {
    let page = site.page(&project.full_path());
    let (scheme, rest) = page.split_once("://").unwrap_or(("http", &page));
    Secret::new(format!("{scheme}://{CLONE_USERNAME}:{}@{rest}.git", token.reveal()))
}

/// The source of the predefined variables of a job.
struct PredefinedVariables<'a> {
    job: &'a Job,
    pipeline: &'a Pipeline,
    project: &'a Project,
    runner: &'a Runner,
    user: Option<&'a User>,
    site: &'a Site,
}

impl PredefinedVariables<'_> {
    /// Returns the variables under their current names and those of GitLab 8.
    fn variables(&self, token: &Secret, repository_url: &Secret) -> Vec<JobVariable> {
        let mut all = self.of_job(token, repository_url);
        all.extend(self.of_project());
        all.extend(self.of_runner());
        all
    }

    fn of_job(&self, token: &Secret, repository_url: &Secret) -> Vec<JobVariable> {
        let Self { job, pipeline, .. } = self;
        let (id, sha) = (job.id.to_string(), pipeline.sha.to_string());
        let before = pipeline.before_sha.unwrap_or(Oid([0; 20])).to_string();
        let short: String = sha.chars().take(8).collect();
        let slug = ci::slug(&pipeline.ref_name);
        let mut all = vec![
            public("CI", "true"),
            public("GITLAB_CI", "true"),
            public("CI_JOB_ID", &id),
            public("CI_BUILD_ID", id),
            hidden("CI_JOB_TOKEN", token),
            hidden("CI_BUILD_TOKEN", token),
            public("CI_JOB_NAME", &job.name),
            public("CI_BUILD_NAME", &job.name),
            public("CI_JOB_STAGE", &job.stage),
            public("CI_BUILD_STAGE", &job.stage),
            public("CI_COMMIT_SHA", &sha),
            public("CI_BUILD_REF", sha),
            public("CI_COMMIT_SHORT_SHA", short),
            public("CI_COMMIT_BEFORE_SHA", &before),
            public("CI_BUILD_BEFORE_SHA", before),
            public("CI_COMMIT_REF_NAME", &pipeline.ref_name),
            public("CI_BUILD_REF_NAME", &pipeline.ref_name),
            public("CI_COMMIT_REF_SLUG", &slug),
            public("CI_BUILD_REF_SLUG", slug),
            hidden("CI_REPOSITORY_URL", repository_url),
            public("CI_SERVER_NAME", "GitLab"),
            public("CI_SERVER_VERSION", GITLAB_VERSION),
            public("CI_SERVER_REVISION", env!("CARGO_PKG_VERSION")),
            public("CI_SERVER_URL", self.site.root()),
            public("CI_API_V4_URL", self.site.page("api/v4")),
            public("CI_PIPELINE_ID", pipeline.id.to_string()),
            public("CI_PIPELINE_SOURCE", pipeline.source.as_str()),
        ];
        if pipeline.tag {
            all.push(public("CI_COMMIT_TAG", &pipeline.ref_name));
            all.push(public("CI_BUILD_TAG", &pipeline.ref_name));
        } else {
            all.push(public("CI_COMMIT_BRANCH", &pipeline.ref_name));
        }
        if pipeline.source == Source::Trigger {
            all.push(public("CI_PIPELINE_TRIGGERED", "true"));
            all.push(public("CI_BUILD_TRIGGERED", "true"));
        }
        if job.when == "manual" {
            all.push(public("CI_JOB_MANUAL", "true"));
            all.push(public("CI_BUILD_MANUAL", "true"));
        }
        all
    }

    fn of_project(&self) -> Vec<JobVariable> {
        let path = self.project.full_path();
        let mut all = vec![
            public("CI_PROJECT_ID", self.project.id.to_string()),
            public("CI_PROJECT_NAME", &self.project.path),
            public("CI_PROJECT_TITLE", &self.project.name),
            public("CI_PROJECT_PATH_SLUG", ci::slug(&path)),
            public("CI_PROJECT_NAMESPACE", &self.project.namespace.full_path),
            public("CI_PROJECT_URL", self.site.page(&path)),
            public("CI_PROJECT_PATH", path),
        ];
        if let Some(branch) = &self.project.default_branch {
            all.push(public("CI_DEFAULT_BRANCH", branch));
        }
        all
    }

    fn of_runner(&self) -> Vec<JobVariable> {
        vec![
            public("CI_RUNNER_ID", self.runner.id.to_string()),
            public("CI_RUNNER_DESCRIPTION", &self.runner.description),
            public("CI_RUNNER_TAGS", self.runner.tags.join(", ")),
        ]
    }

    fn of_user(&self) -> Vec<JobVariable> {
        let Some(user) = self.user else { return Vec::new() };
        vec![
            public("GITLAB_USER_ID", user.id.to_string()),
            public("GITLAB_USER_EMAIL", &user.email),
            public("GITLAB_USER_LOGIN", &user.username),
            public("GITLAB_USER_NAME", &user.name),
        ]
    }
}

/// Returns the variables of the commit; empty values if it no longer exists.
fn of_commit(tx: &mut ReadTx<'_>, project: &Project, pipeline: &Pipeline) -> Result<Vec<JobVariable>> {
    let commit = tx.repository(project)?.map(|repository| repository.commit(pipeline.sha)).transpose()?.flatten();
    let message = commit.map(|commit| planning::truncate(commit.message)).unwrap_or_default();
    let rules = store::protections::of_project(tx.db(), project.id)?;
    let is_protected = !pipeline.tag && rules.iter().any(|rule| rule.matches(&pipeline.ref_name));
    Ok(vec![
        public("CI_COMMIT_TITLE", message.lines().next().unwrap_or_default()),
        public("CI_COMMIT_MESSAGE", message),
        public("CI_COMMIT_REF_PROTECTED", is_protected.to_string()),
    ])
}

/// Returns the variable with this key; the last one wins.
fn value_of<'a>(variables: &'a [JobVariable], key: &str) -> Option<&'a JobVariable> {
    variables.iter().rev().find(|variable| variable.key == key)
}

/// Returns the variables of the deployment environment. Its name and URL are public, so secrets are not expanded in them.
fn of_environment(spec: &JobSpec, variables: &[JobVariable]) -> Vec<JobVariable> {
    let Some(environment) = &spec.environment else { return Vec::new() };
    let lookup = |key: &str| value_of(variables, key).filter(|found| found.public).map(|found| found.value.reveal());
    let Some(name) = ci::expand(&environment.name, lookup) else { return Vec::new() };
    let mut all = vec![public("CI_ENVIRONMENT_SLUG", ci::slug(&name)), public("CI_ENVIRONMENT_NAME", name)];
    let own = |key: &str| value_of(&all, key).map(|found| found.value.reveal()).or_else(|| lookup(key));
    if let Some(url) = environment.url.as_ref().and_then(|url| ci::expand(url, own)) {
        all.push(public("CI_ENVIRONMENT_URL", url));
    }
    all
}

/// Returns the depth of the clone from `GIT_DEPTH`; a value that is not a number is ignored.
fn depth(variables: &[JobVariable]) -> u32 {
    let depth = value_of(variables, "GIT_DEPTH").and_then(|found| found.value.reveal().trim().parse().ok());
    depth.unwrap_or(DEFAULT_DEPTH)
}

fn refspecs(pipeline: &Pipeline, depth: u32) -> Vec<String> {
    let name = &pipeline.ref_name;
    match (depth, pipeline.tag) {
        (0, _) => vec!["+refs/heads/*:refs/remotes/origin/*".to_owned(), "+refs/tags/*:refs/tags/*".to_owned()],
        (_, true) => vec![format!("+refs/tags/{name}:refs/tags/{name}")],
        (_, false) => vec![format!("+refs/heads/{name}:refs/remotes/origin/{name}")],
    }
}

/// Returns the cache keys of a job. A key derived from files changes with their contents and is `default` if none exists.
fn cache_keys(tx: &mut ReadTx<'_>, project: &Project, sha: Oid, spec: &JobSpec) -> Vec<String> {
    let default_key = || "default".to_owned();
    let mut key_of = |key: &CacheKey| match key {
        CacheKey::Text(text) => text.clone(),
        CacheKey::Files { files, prefix } => {
            let blob_ids = blob_ids(tx, project, sha, files).unwrap_or_default();
            let name = if blob_ids.is_empty() { default_key() } else { to_hex(&Digest::of(&blob_ids)) };
            prefix.as_ref().map_or(name.clone(), |prefix| format!("{prefix}-{name}"))
        }
    };
    spec.cache.iter().map(|cache| cache.key.as_ref().map_or_else(default_key, &mut key_of)).collect()
}

/// Returns the IDs of these files; missing files and errors are ignored, because a cache must not fail the job.
fn blob_ids(tx: &mut ReadTx<'_>, project: &Project, sha: Oid, files: &[String]) -> Option<String> {
    let repository = tx.repository(project).ok()??;
    let entries = files.iter().filter_map(|file| repository.entry(sha, file).ok()?);
    Some(entries.map(|entry| entry.id.to_string()).collect::<Vec<_>>().join("\n"))
}

fn to_hex(digest: &Digest) -> String {
    model::text::hex(&digest.as_bytes()[..20])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_several_variables_with_the_same_key_wins() {
        let check = |values: &[&str], expected: u32| {
            let variables: Vec<_> = values.iter().map(|value| public("GIT_DEPTH", *value)).collect();
            assert_eq!(depth(&variables), expected, "{values:?}");
        };
        check(&[], 50);
        check(&["3"], 3);
        check(&["3", " 0 "], 0);
        check(&["3", "many"], 50);
        check(&["-1"], 50);
    }

    #[test]
    fn environment_names_contain_no_secrets() {
        let spec = JobSpec::from_json(
            r#"{"environment":{"name":"review/$B-$S","url":"http://$B","action":"Start","on_stop":null,
                "auto_stop_in":null,"deployment_tier":null}}"#,
        )
        .expect("a spec");
        let variables = [public("B", "x y"), hidden("S", &Secret::new("hush".into()))];
        let found: Vec<_> =
            of_environment(&spec, &variables).iter().map(|one| format!("{}={}", one.key, one.value.reveal())).collect();
        assert_eq!(
            found,
            ["CI_ENVIRONMENT_SLUG=review-x-y", "CI_ENVIRONMENT_NAME=review/x y-", "CI_ENVIRONMENT_URL=http://x y"]
        );
    }
}
