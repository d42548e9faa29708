//! What jobs of one file say about each other. These messages are not lower-cased and carry no place.

use std::collections::HashMap;

use crate::config::{FIRST_STAGE, LAST_STAGE};
use crate::environments::Action;
use crate::invalid::Invalid;
use crate::jobs::Job;

/// Checks stages, dependencies, environments and needs, job by job.
pub(crate) fn check(jobs: &[Job], stages: &[String]) -> Result<(), Invalid> {
    let order: HashMap<&str, usize> = stages.iter().zip(0..).map(|(stage, at)| (stage.as_str(), at)).collect();
    let by_name: HashMap<&str, usize> = jobs.iter().zip(0..).map(|(job, at)| (job.name.as_str(), at)).collect();
    let book = Book { jobs, stages, order, by_name };
    for job in jobs {
        book.check_stage(job)?;
        book.check_dependencies(job)?;
        book.check_environment(job)?;
        book.check_needs(job)?;
    }
    book.check_cycles()
}

struct Book<'a> {
    jobs: &'a [Job],
    stages: &'a [String],
    order: HashMap<&'a str, usize>,
    by_name: HashMap<&'a str, usize>,
}

impl Book<'_> {
    fn find(&self, name: &str) -> Option<&Job> {
        self.by_name.get(name).map(|&at| &self.jobs[at])
    }

    /// The position of a job's stage; an unknown one, which is refused in its own turn, counts as the last.
    fn stage_of(&self, job: &Job) -> usize {
        self.order.get(job.stage.as_str()).copied().unwrap_or(usize::MAX)
    }

    fn check_stage(&self, job: &Job) -> Result<(), Invalid> {
        if self.order.contains_key(job.stage.as_str()) {
            return Ok(());
        }
        let listed: Vec<&str> =
            self.stages.iter().map(String::as_str).filter(|stage| ![FIRST_STAGE, LAST_STAGE].contains(stage)).collect();
        Err(Invalid::new(format!("{} job: stage parameter should be {}", job.name, listed.join(", "))))
    }

    fn check_dependencies(&self, job: &Job) -> Result<(), Invalid> {
        for name in job.dependencies.iter().flatten() {
            let Some(dependency) = self.find(name) else {
                return Err(Invalid::new(format!("{} job: undefined dependency: {name}", job.name)));
            };
            let needed = job.needs.iter().flatten().any(|need| need.job == *name);
            if !needed && self.stage_of(dependency) >= self.stage_of(job) {
                return Err(Invalid::new(format!(
                    "{} job: dependency {name} is not defined in prior stages",
                    job.name
                )));
            }
        }
        Ok(())
    }

    fn check_environment(&self, job: &Job) -> Result<(), Invalid> {
        let Some(environment) = &job.environment else { return Ok(()) };
        let Some(name) = &environment.on_stop else { return Ok(()) };
        let refuse = |why: &str| Err(Invalid::new(format!("{} job: on_stop job {name} {why}", job.name)));
        let Some(stopping) = self.find(name) else { return refuse("is not defined") };
        let Some(stopped) = &stopping.environment else { return refuse("does not have environment defined") };
        if stopped.name != environment.name {
            return refuse("have different environment name");
        }
        if stopped.action != Action::Stop {
            return refuse("needs to have action stop defined");
        }
        Ok(())
    }

    fn check_needs(&self, job: &Job) -> Result<(), Invalid> {
        for need in job.needs.iter().flatten() {
            match self.find(&need.job) {
                None if need.optional => {}
                None => return Err(Invalid::new(format!("{} job: undefined need: {}", job.name, need.job))),
                Some(needed) if self.stage_of(needed) > self.stage_of(job) => {
                    return Err(Invalid::new(format!(
                        "{} job: need {} is not defined in current or prior stages",
                        job.name, need.job
                    )));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Takes away jobs that need nothing that is left, until none is; what stays waits for itself.
    fn check_cycles(&self) -> Result<(), Invalid> {
        let mut waiting: Vec<usize> = vec![0; self.jobs.len()];
        let mut needed_by: Vec<Vec<usize>> = vec![Vec::new(); self.jobs.len()];
        for (at, job) in self.jobs.iter().enumerate() {
            for need in job.needs.iter().flatten() {
                if let Some(&needed) = self.by_name.get(need.job.as_str()) {
                    waiting[at] += 1;
                    needed_by[needed].push(at);
                }
            }
        }
        let mut free: Vec<usize> = (0..self.jobs.len()).filter(|&at| waiting[at] == 0).collect();
        let mut taken = free.len();
        while let Some(at) = free.pop() {
            for &next in &needed_by[at] {
                waiting[next] -= 1;
                if waiting[next] == 0 {
                    taken += 1;
                    free.push(next);
                }
            }
        }
        if taken == self.jobs.len() {
            return Ok(());
        }
        let stuck: Vec<&str> = self
            .jobs
            .iter()
            .zip(&waiting)
            .filter(|(_, left)| **left > 0)
            .map(|(job, _)| job.name.as_str())
            .take(10)
            .collect();
        Err(Invalid::new(format!("The pipeline has circular dependencies in `needs`: {}", stuck.join(", "))))
    }
}
