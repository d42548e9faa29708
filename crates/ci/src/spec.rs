//! What is kept of a plan: how it is written down until it is carried out, and what each job does.
//!
//! The notation is this crate's own matter. Fields that later versions add have defaults, so that what an older one has
//! written can be read.

use serde::{Deserialize, Serialize};

use crate::artifacts::Artifacts;
use crate::caches::Cache;
use crate::environments::Environment;
use crate::images::{Image, Service};
use crate::jobs::AllowFailure;
use crate::plan::Plan;
use crate::retries::Retry;
use crate::variables::Variables;

/// What a job does: everything that is asked for only once it runs, or ends, or is tried again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spec {
    /// What runs.
    pub script: Vec<String>,
    /// What runs afterwards, whatever happened.
    pub after_script: Vec<String>,
    /// The image that it runs in.
    pub image: Option<Image>,
    /// Services beside it.
    pub services: Vec<Service>,
    /// The variables of the file.
    pub variables: Variables,
    /// Whether its failure matters.
    pub allow_failure: AllowFailure,
    /// What it leaves behind.
    pub artifacts: Option<Artifacts>,
    /// What the runner keeps for it.
    pub cache: Vec<Cache>,
    /// The names of the jobs whose artifacts it gets; nothing said means those of all earlier stages.
    pub dependencies: Option<Vec<String>>,
    /// Where it deploys to.
    pub environment: Option<Environment>,
    /// The regular expression, between slashes, that finds the coverage in its trace.
    pub coverage: Option<String>,
    /// How often it is tried again.
    pub retry: Retry,
    /// After how many seconds it is stopped.
    pub timeout: Option<u64>,
    /// Whether a newer pipeline may cancel it.
    pub interruptible: bool,
}

impl Spec {
    /// The text that is kept.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("everything in it can be written")
    }

    /// Reads what [`Self::to_text`] wrote; nothing if it is something else.
    pub fn from_text(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

impl Plan {
    /// The text that is kept until the plan is carried out.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("everything in it can be written")
    }

    /// Reads what [`Self::to_text`] wrote; nothing if it is something else.
    pub fn from_text(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// What a job of the plan does.
    pub fn spec(&self, at: usize) -> Option<Spec> {
        let job = self.jobs.get(at)?;
        let named = job.dependencies.is_some() || job.needs.is_some();
        let name_of = |at: usize| self.jobs[at].name.clone();
        Some(Spec {
            script: job.script.clone(),
            after_script: job.after_script.clone(),
            image: job.image.clone(),
            services: job.services.clone(),
            variables: job.variables.clone(),
            allow_failure: job.allow_failure.clone(),
            artifacts: job.artifacts.clone(),
            cache: job.cache.clone(),
            dependencies: named.then(|| self.sources(at).into_iter().map(name_of).collect()),
            environment: job.environment.clone(),
            coverage: job.coverage.clone(),
            retry: job.retry.clone(),
            timeout: job.timeout,
            interruptible: job.interruptible,
        })
    }

    /// The names of the jobs that a job waits for; nothing said means all earlier stages.
    pub fn needs(&self, at: usize) -> Option<Vec<&str>> {
        let needs = self.jobs.get(at)?.needs.as_ref()?;
        Some(needs.iter().map(|need| self.jobs[need.job].name.as_str()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Circumstances, Config, NoFiles, plan};

    #[test]
    fn a_plan_and_its_jobs_are_read_back_as_they_were_written() {
        let file = "
stages: [build, test]
variables: {A: '1'}
one:
  stage: build
  image: {name: rust, entrypoint: [sh]}
  services: [postgres]
  script: [make, 'echo \"ä\"']
  artifacts: {paths: [out], expire_in: 1 week, reports: {junit: a.xml}}
  cache: {key: {files: [Cargo.lock]}, paths: [target]}
two:
  needs: [one]
  script: make test
  allow_failure: {exit_codes: [3]}
  retry: {max: 2, when: script_failure}
  environment: {name: review/$CI_COMMIT_REF_NAME, url: http://x, on_stop: three}
  coverage: '/(\\d+)%/'
three:
  script: stop
  when: manual
  environment: {name: review/$CI_COMMIT_REF_NAME, action: stop}
";
        let config = Config::load(file, &NoFiles).expect("a good file");
        let plan = plan(&config, &Circumstances::default()).expect("a plan");
        assert_eq!(Plan::from_text(&plan.to_text()).as_ref(), Some(&plan));
        let spec = plan.spec(1).expect("a job");
        assert_eq!(spec.dependencies, Some(vec!["one".to_owned()]));
        assert_eq!(Spec::from_text(&spec.to_text()), Some(spec));
        assert_eq!(plan.spec(0).and_then(|spec| spec.dependencies), None);
        assert_eq!(plan.needs(1), Some(vec!["one"]));
        assert_eq!(plan.needs(0), None);
        assert_eq!(Plan::from_text("nonsense"), None);
    }

    #[test]
    fn a_job_that_an_older_version_has_written_can_be_read() {
        assert_eq!(Spec::from_text("{\"script\":[\"make\"]}").map(|spec| spec.script), Some(vec!["make".to_owned()]));
    }
}
