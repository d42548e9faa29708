//! Stored forms of a plan and of its jobs.
//!
//! The format is JSON and private to this crate. Fields added by later versions have defaults, so that older data can
//! be read.

use serde::{Deserialize, Serialize};

use crate::artifacts::Artifacts;
use crate::caches::Cache;
use crate::environments::Environment;
use crate::images::{Image, Service};
use crate::jobs::AllowFailure;
use crate::plan::Plan;
use crate::retries::Retry;
use crate::variables::Variables;

/// The part of a job that is needed only when it runs, ends or is retried.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobSpec {
    /// The commands to run.
    pub script: Vec<String>,
    /// The commands to run afterwards, whatever the result.
    pub after_script: Vec<String>,
    /// The image that the job runs in.
    pub image: Option<Image>,
    /// Services that run beside the job.
    pub services: Vec<Service>,
    /// The variables of the file.
    pub variables: Variables,
    /// Whether the job may fail without failing the pipeline.
    pub allow_failure: AllowFailure,
    /// The files that the job uploads.
    pub artifacts: Option<Artifacts>,
    /// The caches of the job.
    pub cache: Vec<Cache>,
    /// The names of the jobs whose artifacts are downloaded; `None` means all jobs of earlier stages.
    pub dependencies: Option<Vec<String>>,
    /// Where the job deploys to.
    pub environment: Option<Environment>,
    /// The regular expression, between slashes, that finds the coverage in the trace.
    pub coverage: Option<String>,
    /// How often a failed job is retried.
    pub retry: Retry,
    /// The timeout in seconds.
    pub timeout: Option<u64>,
    /// Whether a newer pipeline may cancel the job.
    pub interruptible: bool,
}

impl JobSpec {
    /// Serializes the job for storage.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("serializing to JSON cannot fail")
    }

    /// Parses the output of [`Self::to_json`].
    pub fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

impl Plan {
    /// Serializes the plan for storage until it is carried out.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("serializing to JSON cannot fail")
    }

    /// Parses the output of [`Self::to_json`].
    pub fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the spec of a job of the plan.
    pub fn spec(&self, index: usize) -> Option<JobSpec> {
        let job = self.jobs.get(index)?;
        let named = job.dependencies.is_some() || job.needs.is_some();
        let name_of = |index: usize| self.jobs[index].name.clone();
        Some(JobSpec {
            script: job.script.clone(),
            after_script: job.after_script.clone(),
            image: job.image.clone(),
            services: job.services.clone(),
            variables: job.variables.clone(),
            allow_failure: job.allow_failure.clone(),
            artifacts: job.artifacts.clone(),
            cache: job.cache.clone(),
            dependencies: named.then(|| self.artifact_sources(index).into_iter().map(name_of).collect()),
            environment: job.environment.clone(),
            coverage: job.coverage.clone(),
            retry: job.retry.clone(),
            timeout: job.timeout,
            interruptible: job.interruptible,
        })
    }

    /// Returns the names of the jobs that a job waits for; `None` means all jobs of earlier stages.
    pub fn needed_job_names(&self, index: usize) -> Option<Vec<&str>> {
        let needs = self.jobs.get(index)?.needs.as_ref()?;
        Some(needs.iter().map(|need| self.jobs[need.job].name.as_str()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, NoFiles, PipelineContext, plan};

    #[test]
    fn a_plan_and_its_jobs_survive_a_round_trip() {
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
        let plan = plan(&config, &PipelineContext::default()).expect("a plan");
        assert_eq!(Plan::from_json(&plan.to_json()).as_ref(), Some(&plan));
        let spec = plan.spec(1).expect("a job");
        assert_eq!(spec.dependencies, Some(vec!["one".to_owned()]));
        assert_eq!(JobSpec::from_json(&spec.to_json()), Some(spec));
        assert_eq!(plan.spec(0).and_then(|spec| spec.dependencies), None);
        assert_eq!(plan.needed_job_names(1), Some(vec!["one"]));
        assert_eq!(plan.needed_job_names(0), None);
        assert_eq!(Plan::from_json("nonsense"), None);
    }

    #[test]
    fn a_job_stored_by_an_older_version_can_be_read() {
        assert_eq!(
            JobSpec::from_json("{\"script\":[\"make\"]}").map(|spec| spec.script),
            Some(vec!["make".to_owned()])
        );
    }
}
