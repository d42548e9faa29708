//! Which jobs a pipeline has.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::artifacts::Artifacts;
use crate::budget::{MAX_JOBS, MAX_PLAN_TEXT};
use crate::caches::Cache;
use crate::circumstances::Circumstances;
use crate::config::{Config, FIRST_STAGE, LAST_STAGE};
use crate::environments::Environment;
use crate::images::{Image, Service};
use crate::jobs::{AllowFailure, Job};
use crate::judge::{Decision, Judge};
use crate::retries::Retry;
use crate::rules::{Verdict, When};
use crate::variables::Variables;

/// The jobs of a pipeline, before any of them exists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// All stages of the file in their order; jobs point into it.
    pub stages: Vec<String>,
    /// The jobs, stage by stage.
    pub jobs: Vec<PlannedJob>,
}

/// One job of a plan, with everything that a runner and the database need.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedJob {
    /// Its name, with a number or values if it was split.
    pub name: String,
    /// The name of its stage.
    pub stage: String,
    /// The position of its stage among all stages.
    pub stage_index: usize,
    /// What runs: the lines before the script, then the script.
    pub script: Vec<String>,
    /// What runs afterwards, whatever happened.
    pub after_script: Vec<String>,
    /// The image that it runs in.
    pub image: Option<Image>,
    /// Services beside it.
    pub services: Vec<Service>,
    /// The variables of the file: global ones, its own, those of a rule and of a matrix.
    pub variables: Variables,
    /// The tags that a runner must have.
    pub tags: Vec<String>,
    /// When it starts.
    pub when: When,
    /// Whether its failure matters.
    pub allow_failure: AllowFailure,
    /// What it leaves behind.
    pub artifacts: Option<Artifacts>,
    /// What the runner keeps for it.
    pub cache: Vec<Cache>,
    /// The jobs of the plan whose artifacts it gets; nothing said means those of all earlier stages.
    pub dependencies: Option<Vec<usize>>,
    /// The jobs of the plan that it waits for; nothing said means all earlier stages.
    pub needs: Option<Vec<PlannedNeed>>,
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

/// A job of the plan that another one waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedNeed {
    /// Its position in the plan.
    pub job: usize,
    /// Whether its artifacts are fetched.
    pub artifacts: bool,
}

impl Plan {
    /// The positions of the jobs whose artifacts a job gets: those that it names, or else those that it needs, or else
    /// all of earlier stages.
    pub fn sources(&self, at: usize) -> Vec<usize> {
        let Some(job) = self.jobs.get(at) else { return Vec::new() };
        let needed = job.needs.as_ref().map(|needs| needs.iter().filter(|need| need.artifacts).map(|need| need.job));
        match (&job.dependencies, needed) {
            (Some(named), _) => named.clone(),
            (None, Some(needed)) => needed.collect(),
            (None, None) => (0..at).filter(|&other| self.jobs[other].stage_index < job.stage_index).collect(),
        }
    }
}

/// Why there is no pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanRefusal {
    /// No job is left.
    NoJobs,
    /// The rules of the workflow say no.
    Workflow,
    /// The file cannot be planned under these circumstances.
    Invalid(String),
}

impl fmt::Display for PlanRefusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NoJobs => "No builds for this pipeline.",
            Self::Workflow => "Pipeline filtered out by workflow rules.",
            Self::Invalid(text) => text,
        })
    }
}

impl std::error::Error for PlanRefusal {}

/// Decides which jobs a pipeline has.
pub fn plan(config: &Config, circumstances: &Circumstances<'_>) -> Result<Plan, PlanRefusal> {
    let known = circumstances.known_variables();
    let mut judge = Judge::new(circumstances);
    let mut globals = config.variables.clone();
    if let Some(rules) = &config.workflow {
        let layers = [&circumstances.variables, &config.variables, &known];
        match judge.first(rules, &layers, "workflow")? {
            Some(rule) if rule.verdict != Some(Verdict::Never) => globals.extend(rule.variables.clone()),
            _ => return Err(judge.excess().unwrap_or(PlanRefusal::Workflow)),
        }
    }

    let mut chosen: Vec<(&Job, usize, Decision)> = Vec::new();
    for job in &config.jobs {
        let layers = [&circumstances.variables, &job.variables, &globals, &known];
        if let Some(decision) = judge.decide(job, &layers)? {
            let stage = config.stages.iter().position(|stage| *stage == job.stage).unwrap_or_default();
            chosen.push((job, stage, decision));
        }
    }
    if let Some(excess) = judge.excess() {
        return Err(excess);
    }
    // Jobs before and after everything are no reason for a pipeline.
    if chosen.iter().all(|(job, ..)| job.stage == FIRST_STAGE || job.stage == LAST_STAGE) {
        return Err(PlanRefusal::NoJobs);
    }
    chosen.sort_by_key(|(_, stage, _)| *stage);
    weigh(&chosen, &globals)?;

    let places = Places::of(&chosen);
    let mut jobs = Vec::with_capacity(places.total);
    for (job, stage_index, decision) in chosen {
        let needs = places.needs(job)?;
        let dependencies = places.dependencies(job);
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

/// Counts jobs and their text before anything is copied.
fn weigh(chosen: &[(&Job, usize, Decision)], globals: &Variables) -> Result<(), PlanRefusal> {
    let size = |variables: &Variables| variables.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
    let common = size(globals);
    let total: usize = chosen.iter().map(|(job, ..)| job.parallel.count()).sum();
    if total > MAX_JOBS {
        return Err(PlanRefusal::Invalid(format!("The pipeline would have {total} jobs (maximum is {MAX_JOBS})")));
    }
    let bytes = chosen
        .iter()
        .map(|(job, _, decision)| {
            (job.weight + common + size(&decision.variables)).saturating_mul(job.parallel.count())
        })
        .fold(0, usize::saturating_add);
    if bytes > MAX_PLAN_TEXT {
        return Err(PlanRefusal::Invalid(format!(
            "The jobs of the pipeline would carry {bytes} bytes of scripts and variables (maximum is {MAX_PLAN_TEXT})"
        )));
    }
    Ok(())
}

/// Where the jobs of a file stand in the plan; a split job takes several places.
struct Places<'a> {
    first: HashMap<&'a str, (usize, usize)>,
    total: usize,
}

impl<'a> Places<'a> {
    fn of(chosen: &[(&'a Job, usize, Decision)]) -> Self {
        let mut first = HashMap::new();
        let mut total = 0;
        for (job, ..) in chosen {
            first.insert(job.name.as_str(), (total, job.parallel.count()));
            total += job.parallel.count();
        }
        Self { first, total }
    }

    fn range(&self, name: &str) -> Range<usize> {
        self.first.get(name).map_or(0..0, |&(first, count)| first..first + count)
    }

    fn needs(&self, job: &Job) -> Result<Option<Vec<PlannedNeed>>, PlanRefusal> {
        let Some(needs) = &job.needs else { return Ok(None) };
        let mut planned: Vec<PlannedNeed> = Vec::new();
        for need in needs {
            let range = self.range(&need.job);
            if range.is_empty() && !need.optional {
                return Err(PlanRefusal::Invalid(format!(
                    "'{}' job needs '{}' job, but '{}' does not exist in the pipeline. This might be because of the \
                     only, except, or rules keywords. To need a job that sometimes does not exist in the pipeline, \
                     use needs:optional.",
                    job.name, need.job, need.job
                )));
            }
            planned.extend(range.map(|at| PlannedNeed { job: at, artifacts: need.artifacts }));
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

/// A split job may take the name of another one; the latest job of a name is the one that counts, so names are unique.
fn check_names(jobs: &[PlannedJob]) -> Result<(), PlanRefusal> {
    let mut names: HashSet<&str> = HashSet::with_capacity(jobs.len());
    for job in jobs {
        if !names.insert(&job.name) {
            return Err(PlanRefusal::Invalid(format!("Two jobs of the pipeline would be called '{}'", job.name)));
        }
    }
    Ok(())
}
