//! Runners.

use crate::{RunnerId, Time, projects::TokenSeed};

/// The summary of a runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerSummary {
    /// The ID.
    pub id: RunnerId,
    /// The description.
    pub description: String,
    /// Whether it takes jobs.
    pub active: bool,
    /// Whether it is available to all projects that use shared runners.
    pub is_shared: bool,
    /// The name that it reports.
    pub name: Option<String>,
}

/// An agent that runs jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runner {
    /// The ID.
    pub id: RunnerId,
    /// The seed that its token is derived from.
    pub seed: TokenSeed,
    /// The description.
    pub description: String,
    /// Whether it takes jobs.
    pub active: bool,
    /// Whether it is available to all projects that use shared runners.
    pub is_shared: bool,
    /// Whether it takes jobs without tags.
    pub run_untagged: bool,
    /// Whether it cannot be enabled for further projects.
    pub locked: bool,
    /// Its tags.
    pub tags: Vec<String>,
    /// The maximum timeout of its jobs, in seconds.
    pub maximum_timeout: Option<i64>,
    /// The details that it reports about itself.
    pub info: RunnerInfo,
    /// When it last contacted the server.
    pub contacted_at: Option<Time>,
    /// When it was registered.
    pub created_at: Time,
}

/// The details that a runner reports about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunnerInfo {
    /// The name that it reports.
    pub name: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// Its revision.
    pub revision: Option<String>,
    /// Its operating system.
    pub platform: Option<String>,
    /// Its processor architecture.
    pub architecture: Option<String>,
}

/// Which runners to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunnerScope {
    /// Runners that take jobs.
    Active,
    /// Runners that are paused.
    Paused,
    /// Runners that contacted the server recently.
    Online,
    /// Runners of specific projects.
    Specific,
    /// Shared runners.
    Shared,
}

impl Runner {
    /// Returns whether it takes jobs with these tags.
    pub fn accepts_tags(&self, tags: &[String]) -> bool {
        if tags.is_empty() { self.run_untagged } else { tags.iter().all(|tag| self.tags.contains(tag)) }
    }

    /// Returns the summary of the runner.
    pub fn summary(&self) -> RunnerSummary {
        let Self { id, description, active, is_shared, info, .. } = self;
        RunnerSummary {
            id: *id,
            description: description.clone(),
            active: *active,
            is_shared: *is_shared,
            name: info.name.clone(),
        }
    }
}
