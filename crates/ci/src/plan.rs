//! Decides which jobs a pipeline has.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::artifacts::Artifacts;
use crate::budget::{MAX_JOBS, MAX_PLAN_BYTES};
use crate::caches::Cache;
use crate::config::{Config, FIRST_STAGE, LAST_STAGE};
use crate::environments::Environment;
use crate::images::{Image, Service};
use crate::jobs::{AllowFailure, Job};
use crate::pipeline_context::PipelineContext;
use crate::retries::Retry;
use crate::rule_evaluator::{Decision, RuleEvaluator};
use crate::rules::{RuleOutcome, When};
use crate::variables::Variables;

/// The jobs of a pipeline before they are created.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// All stages of the file in order; jobs refer to them by index.
    pub stages: Vec<String>,
    /// The jobs, stage by stage.
    pub jobs: Vec<PlannedJob>,
}

/// One job of a plan, with everything that a runner and the database need.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedJob {
    /// The name, with a number or values if the job is parallel.
    pub name: String,
    /// The name of the stage.
    pub stage: String,
    /// The index of the stage among all stages.
    pub stage_index: usize,
    /// The commands to run: `before_script`, then `script`.
    pub script: Vec<String>,
    /// The commands to run afterwards, whatever the result.
    pub after_script: Vec<String>,
    /// The image that the job runs in.
    pub image: Option<Image>,
    /// Services that run beside the job.
    pub services: Vec<Service>,
    /// The variables of the file: global, of the job, of the matching rule and of the matrix.
    pub variables: Variables,
    /// The tags that a runner must have.
    pub tags: Vec<String>,
    /// When the job starts.
    pub when: When,
    /// Whether the job may fail without failing the pipeline.
    pub allow_failure: AllowFailure,
    /// The files that the job uploads.
    pub artifacts: Option<Artifacts>,
    /// The caches of the job.
    pub cache: Vec<Cache>,
    /// The indices of the jobs whose artifacts are downloaded; `None` means all jobs of earlier stages.
    pub dependencies: Option<Vec<usize>>,
    /// The jobs to wait for; `None` means all jobs of earlier stages.
    pub needs: Option<Vec<PlannedNeed>>,
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

/// A job of the plan that another one waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedNeed {
    /// The index of the job in the plan.
    pub job: usize,
    /// Whether its artifacts are downloaded.
    pub artifacts: bool,
}

impl Plan {
    /// Returns the indices of the jobs whose artifacts a job downloads: its dependencies, or else its needs, or else
    /// all jobs of earlier stages.
    pub fn artifact_sources(&self, index: usize) -> Vec<usize> {
        let Some(job) = self.jobs.get(index) else { return Vec::new() };
        let needed = job.needs.as_ref().map(|needs| needs.iter().filter(|need| need.artifacts).map(|need| need.job));
        match (&job.dependencies, needed) {
            (Some(named), _) => named.clone(),
            (None, Some(needed)) => needed.collect(),
            (None, None) => (0..index).filter(|&other| self.jobs[other].stage_index < job.stage_index).collect(),
        }
    }
}

/// Why no pipeline is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// No job is selected.
    NoJobs,
    /// The workflow rules exclude the pipeline.
    Workflow,
    /// The file is invalid in this context.
    Invalid(String),
}

impl fmt::Display for PlanError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NoJobs => "No builds for this pipeline.",
            Self::Workflow => "Pipeline filtered out by workflow rules.",
            Self::Invalid(text) => text,
        })
    }
}

impl std::error::Error for PlanError {}

/// Decides which jobs a pipeline has.
pub fn plan(config: &Config, context: &PipelineContext<'_>) -> Result<Plan, PlanError> {
    let predefined = context.predefined_variables();
    let mut evaluator = RuleEvaluator::new(context);
    let mut globals = config.variables.clone();
    if let Some(rules) = &config.workflow {
        let layers = [&context.variables, &config.variables, &predefined];
        match evaluator.first_match(rules, &layers, "workflow")? {
            Some(rule) if rule.outcome != Some(RuleOutcome::Never) => globals.extend(rule.variables.clone()),
            _ => return Err(evaluator.limit_error().unwrap_or(PlanError::Workflow)),
        }
    }

    let mut selected: Vec<(&Job, usize, Decision)> = Vec::new();
    for job in &config.jobs {
        let layers = [&context.variables, &job.variables, &globals, &predefined];
        if let Some(decision) = evaluator.decide(job, &layers)? {
            let stage = config.stages.iter().position(|stage| *stage == job.stage).unwrap_or_default();
            selected.push((job, stage, decision));
        }
    }
    if let Some(error) = evaluator.limit_error() {
        return Err(error);
    }
    // Jobs of `.pre` and `.post` alone do not make a pipeline.
    if selected.iter().all(|(job, ..)| job.stage == FIRST_STAGE || job.stage == LAST_STAGE) {
        return Err(PlanError::NoJobs);
    }
    selected.sort_by_key(|(_, stage, _)| *stage);
    check_size(&selected, &globals)?;

    let positions = JobPositions::of(&selected);
    let mut jobs = Vec::with_capacity(positions.total);
    for (job, stage_index, decision) in selected {
        let needs = positions.needs(job)?;
        let dependencies = positions.dependencies(job);
        let mut variables = globals.clone();
        variables.extend(job.variables.clone());
        variables.extend(decision.variables);
        for instance in job.parallel.instances(&job.name) {
            let mut variables = variables.clone();
            variables.extend(instance.variables);
            jobs.push(PlannedJob {
                name: instance.name,
                stage: job.stage.clone(),
                stage_index,
                script: job.script.clone(),
                after_script: job.after_script.clone(),
                image: job.image.clone(),
                services: job.services.clone(),
                variables,
                tags: job.tags.clone(),
                when: decision.when,
                allow_failure: decision.allow_failure.clone(),
                artifacts: job.artifacts.clone(),
                cache: job.cache.clone(),
                dependencies: dependencies.clone(),
                needs: needs.clone(),
                environment: job.environment.clone(),
                coverage: job.coverage.clone(),
                retry: job.retry.clone(),
                timeout: job.timeout,
                interruptible: job.interruptible,
            });
        }
    }
    check_names(&jobs)?;
    Ok(Plan { stages: config.stages.clone(), jobs })
}

/// Checks the number of jobs and the size of their text before anything is copied.
fn check_size(selected: &[(&Job, usize, Decision)], globals: &Variables) -> Result<(), PlanError> {
    let size = |variables: &Variables| variables.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
    let global_bytes = size(globals);
    let total: usize = selected.iter().map(|(job, ..)| job.parallel.count()).sum();
    if total > MAX_JOBS {
        return Err(PlanError::Invalid(format!("The pipeline would have {total} jobs (maximum is {MAX_JOBS})")));
    }
    let bytes = selected
        .iter()
        .map(|(job, _, decision)| {
            (job.text_bytes + global_bytes + size(&decision.variables)).saturating_mul(job.parallel.count())
        })
        .fold(0, usize::saturating_add);
    if bytes > MAX_PLAN_BYTES {
        return Err(PlanError::Invalid(format!(
            "The jobs of the pipeline would carry {bytes} bytes of scripts and variables (maximum is {MAX_PLAN_BYTES})"
        )));
    }
    Ok(())
}

/// The indices of jobs in the plan; a parallel job has several.
struct JobPositions<'a> {
    by_name: HashMap<&'a str, (usize, usize)>,
    total: usize,
}

impl<'a> JobPositions<'a> {
    fn of(selected: &[(&'a Job, usize, Decision)]) -> Self {
        let mut by_name = HashMap::new();
        let mut total = 0;
        for (job, ..) in selected {
            by_name.insert(job.name.as_str(), (total, job.parallel.count()));
            total += job.parallel.count();
        }
        Self { by_name, total }
    }

    fn range(&self, name: &str) -> Range<usize> {
        self.by_name.get(name).map_or(0..0, |&(first, count)| first..first + count)
    }

    fn needs(&self, job: &Job) -> Result<Option<Vec<PlannedNeed>>, PlanError> {
        let Some(needs) = &job.needs else { return Ok(None) };
        let mut planned: Vec<PlannedNeed> = Vec::new();
        for need in needs {
            let range = self.range(&need.job);
            if range.is_empty() && !need.optional {
                return Err(PlanError::Invalid(format!(
                    "'{}' job needs '{}' job, but '{}' does not exist in the pipeline. This might be because of the \
                     only, except, or rules keywords. To need a job that sometimes does not exist in the pipeline, \
                     use needs:optional.",
                    job.name, need.job, need.job
                )));
            }
            planned.extend(range.map(|index| PlannedNeed { job: index, artifacts: need.artifacts }));
        }
        planned.sort_by_key(|need| need.job);
        planned.dedup_by_key(|need| need.job);
        Ok(Some(planned))
    }

    fn dependencies(&self, job: &Job) -> Option<Vec<usize>> {
        let names = job.dependencies.as_ref()?;
        let mut planned: Vec<usize> = names.iter().flat_map(|name| self.range(name)).collect();
        planned.sort_unstable();
        planned.dedup();
        Some(planned)
    }
}

/// Rejects duplicate names, which parallel jobs can cause: jobs are identified by name within a pipeline.
fn check_names(jobs: &[PlannedJob]) -> Result<(), PlanError> {
    let mut names: HashSet<&str> = HashSet::with_capacity(jobs.len());
    for job in jobs {
        if !names.insert(&job.name) {
            return Err(PlanError::Invalid(format!("Two jobs of the pipeline would be called '{}'", job.name)));
        }
    }
    Ok(())
}
