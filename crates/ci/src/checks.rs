//! Checks between the jobs of one file. As in GitLab, these messages are not lower-cased and carry no key path.

use std::collections::HashMap;

use crate::config::{FIRST_STAGE, LAST_STAGE};
use crate::config_error::ConfigError;
use crate::environments::EnvironmentAction;
use crate::jobs::Job;

/// Checks stages, dependencies, environments and needs, job by job.
pub(crate) fn check(jobs: &[Job], stages: &[String]) -> Result<(), ConfigError> {
    let stage_positions: HashMap<&str, usize> =
        stages.iter().zip(0..).map(|(stage, index)| (stage.as_str(), index)).collect();
    let by_name: HashMap<&str, usize> = jobs.iter().zip(0..).map(|(job, index)| (job.name.as_str(), index)).collect();
    let checks = ConfigChecks { jobs, stages, stage_positions, by_name };
    for job in jobs {
        checks.check_stage(job)?;
        checks.check_dependencies(job)?;
        checks.check_environment(job)?;
        checks.check_needs(job)?;
    }
    checks.check_cycles()
}

struct ConfigChecks<'a> {
    jobs: &'a [Job],
    stages: &'a [String],
    stage_positions: HashMap<&'a str, usize>,
    by_name: HashMap<&'a str, usize>,
}

impl ConfigChecks<'_> {
    fn find(&self, name: &str) -> Option<&Job> {
        self.by_name.get(name).map(|&index| &self.jobs[index])
    }

    /// Returns the position of a job's stage. An unknown stage counts as the last one; `check_stage` rejects it.
    fn stage_of(&self, job: &Job) -> usize {
        self.stage_positions.get(job.stage.as_str()).copied().unwrap_or(usize::MAX)
    }

    fn check_stage(&self, job: &Job) -> Result<(), ConfigError> {
        if self.stage_positions.contains_key(job.stage.as_str()) {
            return Ok(());
        }
        let listed: Vec<&str> =
            self.stages.iter().map(String::as_str).filter(|stage| ![FIRST_STAGE, LAST_STAGE].contains(stage)).collect();
        Err(ConfigError::new(format!("{} job: stage parameter should be {}", job.name, listed.join(", "))))
    }

    fn check_dependencies(&self, job: &Job) -> Result<(), ConfigError> {
        for name in job.dependencies.iter().flatten() {
            let Some(dependency) = self.find(name) else {
                return Err(ConfigError::new(format!("{} job: undefined dependency: {name}", job.name)));
            };
            let needed = job.needs.iter().flatten().any(|need| need.job == *name);
            if !needed && self.stage_of(dependency) >= self.stage_of(job) {
                return Err(ConfigError::new(format!(
                    "{} job: dependency {name} is not defined in prior stages",
                    job.name
                )));
            }
        }
        Ok(())
    }

    fn check_environment(&self, job: &Job) -> Result<(), ConfigError> {
        let Some(environment) = &job.environment else { return Ok(()) };
        let Some(name) = &environment.on_stop else { return Ok(()) };
        let fail = |why: &str| Err(ConfigError::new(format!("{} job: on_stop job {name} {why}", job.name)));
        let Some(stopping) = self.find(name) else { return fail("is not defined") };
        let Some(stopped) = &stopping.environment else { return fail("does not have environment defined") };
        if stopped.name != environment.name {
            return fail("have different environment name");
        }
        if stopped.action != EnvironmentAction::Stop {
            return fail("needs to have action stop defined");
        }
        Ok(())
    }

    fn check_needs(&self, job: &Job) -> Result<(), ConfigError> {
        for need in job.needs.iter().flatten() {
            match self.find(&need.job) {
                None if need.optional => {}
                None => return Err(ConfigError::new(format!("{} job: undefined need: {}", job.name, need.job))),
                Some(needed) if self.stage_of(needed) > self.stage_of(job) => {
                    return Err(ConfigError::new(format!(
                        "{} job: need {} is not defined in current or prior stages",
                        job.name, need.job
                    )));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Rejects cycles in `needs`, by removing jobs without unmet needs until none is left (Kahn's algorithm).
    fn check_cycles(&self) -> Result<(), ConfigError> {
        let mut unmet: Vec<usize> = vec![0; self.jobs.len()];
        let mut needed_by: Vec<Vec<usize>> = vec![Vec::new(); self.jobs.len()];
        for (index, job) in self.jobs.iter().enumerate() {
            for need in job.needs.iter().flatten() {
                if let Some(&needed) = self.by_name.get(need.job.as_str()) {
                    unmet[index] += 1;
                    needed_by[needed].push(index);
                }
            }
        }
        let mut ready: Vec<usize> = (0..self.jobs.len()).filter(|&index| unmet[index] == 0).collect();
        let mut removed = ready.len();
        while let Some(index) = ready.pop() {
            for &next in &needed_by[index] {
                unmet[next] -= 1;
                if unmet[next] == 0 {
                    removed += 1;
                    ready.push(next);
                }
            }
        }
        if removed == self.jobs.len() {
            return Ok(());
        }
        let stuck: Vec<&str> = self
            .jobs
            .iter()
            .zip(&unmet)
            .filter(|(_, left)| **left > 0)
            .map(|(job, _)| job.name.as_str())
            .take(10)
            .collect();
        Err(ConfigError::new(format!("The pipeline has circular dependencies in `needs`: {}", stuck.join(", "))))
    }
}
