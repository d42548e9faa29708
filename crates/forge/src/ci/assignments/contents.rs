//! What a runner has to know of a job: what it does, with which variables, and what others have left for it.

use ci::{CacheKey, Spec};
use model::{
    Build, Oid, Pipeline, Project, Runner, Site, User,
    pipelines::Source,
    runners::Variable,
    tokens::{Digest, Secret},
};

use crate::{
    Error, ProjectAbility, ProjectRef, ReadTx, Result,
    pipelines::{drafts, machine::USUAL_TIMEOUT},
    variables,
};

/// As whom jobs fetch code.
const USER: &str = "gitlab-ci-token";
/// How much of the history a job fetches unless it says otherwise.
const USUAL_DEPTH: u32 = 50;
/// The version of the original that is spoken here; scripts ask for it.
const SPOKEN: &str = "8.14.0";

/// A job for a runner. It holds secrets, so it does not print.
pub struct Assignment {
    /// The job.
    pub build: Build,
    /// The pipeline that it belongs to.
    pub pipeline: Pipeline,
    /// Where.
    pub project: Project,
    /// Its token: with it the runner tells how it goes, and the job fetches code.
    pub token: Secret,
    /// What it does.
    pub spec: Spec,
    /// What it is told; of two of the same name the later one counts.
    pub variables: Vec<JobVariable>,
    /// The jobs whose artifacts it gets.
    pub dependencies: Vec<Build>,
    /// All jobs whose artifacts it could get, for runners that choose themselves.
    pub earlier: Vec<Build>,
    /// The names of its caches, in the order of the caches.
    pub cache_keys: Vec<String>,
    /// After how many seconds it is stopped.
    pub timeout: i64,
    /// From where it fetches code, with the token.
    pub repository_url: Secret,
    /// What it fetches.
    pub refspecs: Vec<String>,
    /// How much of the history it fetches; 0 is all of it.
    pub depth: u32,
}

/// A variable of a job.
#[derive(Clone, Debug)]
pub struct JobVariable {
    /// Its name.
    pub key: String,
    /// What it holds.
    pub value: Secret,
    /// Whether everybody may see it who sees the job.
    pub public: bool,
}

/// Reads all of it.
pub(super) fn read(
    tx: &mut ReadTx<'_>,
    build: i64,
    runner: &Runner,
    token: &Secret,
    site: &Site,
) -> Result<Assignment> {
    let now = tx.now();
    let gone = || Error::Internal(format!("job {build} is not there any more"));
    let found = store::builds::by_ids(tx.db(), &[build], now)?.pop().ok_or_else(gone)?;
    let work = store::assignments::work_of(tx.db(), build)?.ok_or_else(gone)?;
    let spec = Spec::from_text(&work.spec)
        .ok_or_else(|| Error::Internal(format!("nobody understands what job {build} does")))?;
    let pipeline = store::pipelines::in_short(tx.db(), found.pipeline.id)?.ok_or_else(gone)?;
    let project = tx.open_as_service(&ProjectRef::Id(found.project_id), ProjectAbility::ReadPipelines)?;
    let user = match &found.user {
        Some(user) => store::users::by_id(tx.db(), user.id)?,
        None => None,
    };
    let mut earlier = store::assignments::earlier_than(tx.db(), pipeline.id, found.stage_index, now)?;
    let dependencies = match &spec.dependencies {
        None => earlier.clone(),
        Some(names) => {
            let chosen = store::assignments::named(tx.db(), pipeline.id, names, now)?;
            earlier.extend(chosen.iter().filter(|one| one.stage_index >= found.stage_index).cloned());
            chosen
        }
    };
    let repository_url = repository_url(site, &project, token);
    let facts = Facts { build: &found, pipeline: &pipeline, project: &project, runner, user: user.as_ref(), site };
    let mut variables = facts.variables(token, &repository_url);
    variables.extend(of_commit(tx, &project, &pipeline)?);
    variables.extend(spec.variables.iter().map(|(key, value)| public(key, value)));
    variables.extend(facts.of_user());
    variables.extend(variables::of_project(tx, project.id)?.into_iter().map(secret));
    let given = work.variables.map(|sealed| variables::open_all(tx, project.id, &sealed)).unwrap_or_default();
    variables.extend(given.into_iter().map(|(key, value)| hidden(&key, &Secret::new(value))));
    variables.extend(of_environment(&spec, &variables));
    let depth = depth(&variables);
    let usual = work.timeout.unwrap_or(USUAL_TIMEOUT);
    Ok(Assignment {
        cache_keys: cache_keys(tx, &project, pipeline.sha, &spec),
        refspecs: refspecs(&pipeline, depth),
        timeout: runner.maximum_timeout.map_or(usual, |most| most.min(usual)),
        dependencies: dependencies.into_iter().filter(|one| one.artifacts.is_some()).collect(),
        build: found,
        pipeline,
        project,
        token: token.clone(),
        spec,
        variables,
        earlier,
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

/// From where a job fetches the code of its project.
fn repository_url(site: &Site, project: &Project, token: &Secret) -> Secret {
    let page = site.page(&project.full_path());
    let (scheme, rest) = page.split_once("://").unwrap_or(("http", &page));
    Secret::new(format!("{scheme}://{USER}:{}@{rest}.git", token.reveal()))
}

/// What is known of a job before anybody says anything about it.
struct Facts<'a> {
    build: &'a Build,
    pipeline: &'a Pipeline,
    project: &'a Project,
    runner: &'a Runner,
    user: Option<&'a User>,
    site: &'a Site,
}

impl Facts<'_> {
    /// Under the names of today, and under those that older files know.
    fn variables(&self, token: &Secret, repository_url: &Secret) -> Vec<JobVariable> {
        let mut all = self.of_build(token, repository_url);
        all.extend(self.of_project());
        all.extend(self.of_runner());
        all
    }

    fn of_build(&self, token: &Secret, repository_url: &Secret) -> Vec<JobVariable> {
        let Self { build, pipeline, .. } = self;
        let (id, sha) = (build.id.to_string(), pipeline.sha.to_string());
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
            public("CI_JOB_NAME", &build.name),
            public("CI_BUILD_NAME", &build.name),
            public("CI_JOB_STAGE", &build.stage),
            public("CI_BUILD_STAGE", &build.stage),
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
            public("CI_SERVER_VERSION", SPOKEN),
            public("CI_SERVER_REVISION", env!("CARGO_PKG_VERSION")),
            public("CI_SERVER_URL", self.site.root()),
            public("CI_API_V4_URL", self.site.page("api/v4")),
            public("CI_PIPELINE_ID", pipeline.id.to_string()),
            public("CI_PIPELINE_SOURCE", pipeline.source.word()),
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
        if build.when == "manual" {
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

/// What is known of the commit, as far as it is still there.
fn of_commit(tx: &mut ReadTx<'_>, project: &Project, pipeline: &Pipeline) -> Result<Vec<JobVariable>> {
    let commit = tx.repository(project)?.map(|repository| repository.commit(pipeline.sha)).transpose()?.flatten();
    let message = commit.map(|commit| drafts::cut(commit.message)).unwrap_or_default();
    let rules = store::protections::of_project(tx.db(), project.id)?;
    let is_protected = !pipeline.tag && rules.iter().any(|rule| rule.matches(&pipeline.ref_name));
    Ok(vec![
        public("CI_COMMIT_TITLE", message.lines().next().unwrap_or_default()),
        public("CI_COMMIT_MESSAGE", message),
        public("CI_COMMIT_REF_PROTECTED", is_protected.to_string()),
    ])
}

/// What counts of a variable that may be there several times.
fn value_of<'a>(variables: &'a [JobVariable], key: &str) -> Option<&'a JobVariable> {
    variables.iter().rev().find(|variable| variable.key == key)
}

/// Where a job deploys to. Names and addresses are seen by many, so no secret goes into them.
fn of_environment(spec: &Spec, variables: &[JobVariable]) -> Vec<JobVariable> {
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

/// How much of the history a job wants; what is no number counts for nothing.
fn depth(variables: &[JobVariable]) -> u32 {
    let wanted = value_of(variables, "GIT_DEPTH").and_then(|found| found.value.reveal().trim().parse().ok());
    wanted.unwrap_or(USUAL_DEPTH)
}

fn refspecs(pipeline: &Pipeline, depth: u32) -> Vec<String> {
    let name = &pipeline.ref_name;
    match (depth, pipeline.tag) {
        (0, _) => vec!["+refs/heads/*:refs/remotes/origin/*".to_owned(), "+refs/tags/*:refs/tags/*".to_owned()],
        (_, true) => vec![format!("+refs/tags/{name}:refs/tags/{name}")],
        (_, false) => vec![format!("+refs/heads/{name}:refs/remotes/origin/{name}")],
    }
}

/// The names of the caches of a job. One that is made of files changes with their contents, and is the usual one where
/// there are none.
fn cache_keys(tx: &ReadTx<'_>, project: &Project, sha: Oid, spec: &Spec) -> Vec<String> {
    let usual = || "default".to_owned();
    let key_of = |key: &CacheKey| match key {
        CacheKey::Text(text) => text.clone(),
        CacheKey::Files { files, prefix } => {
            let contents = contents_of(tx, project, sha, files).unwrap_or_default();
            let name = if contents.is_empty() { usual() } else { in_hex(&Digest::of(&contents)) };
            prefix.as_ref().map_or(name.clone(), |prefix| format!("{prefix}-{name}"))
        }
    };
    spec.cache.iter().map(|cache| cache.key.as_ref().map_or_else(usual, key_of)).collect()
}

/// What is in these files, as far as they are there; a cache is no reason to fail.
fn contents_of(tx: &ReadTx<'_>, project: &Project, sha: Oid, files: &[String]) -> Option<String> {
    let repository = tx.repository(project).ok()??;
    let entries = files.iter().filter_map(|file| repository.entry(sha, file).ok()?);
    Some(entries.map(|entry| entry.id.to_string()).collect::<Vec<_>>().join("\n"))
}

fn in_hex(digest: &Digest) -> String {
    digest.as_bytes().iter().take(20).fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_variables_of_the_same_name_the_later_one_counts() {
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
    fn names_of_environments_hold_no_secrets() {
        let spec = Spec::from_text(
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
