//! Runners, and what projects tell them: variables and triggers.

use crate::{Time, projects::Seed, tokens::Secret};

/// A runner as builds and lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerSummary {
    /// Its number.
    pub id: i64,
    /// What its owner calls it.
    pub description: String,
    /// Whether it takes builds.
    pub active: bool,
    /// Whether it is there for every project that wants shared ones.
    pub is_shared: bool,
    /// What it calls itself.
    pub name: Option<String>,
}

/// Somebody who does builds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runner {
    /// Its number.
    pub id: i64,
    /// From what its token is made.
    pub seed: Seed,
    /// What its owner calls it.
    pub description: String,
    /// Whether it takes builds.
    pub active: bool,
    /// Whether it is there for every project that wants shared ones.
    pub is_shared: bool,
    /// Whether it takes builds without tags.
    pub run_untagged: bool,
    /// Whether it joins no further projects.
    pub locked: bool,
    /// What it has to offer.
    pub tags: Vec<String>,
    /// How many seconds a build of it may take at most.
    pub maximum_timeout: Option<i64>,
    /// What it says about itself.
    pub info: RunnerInfo,
    /// When it was last heard of.
    pub contacted_at: Option<Time>,
    /// When it joined.
    pub created_at: Time,
}

/// What a runner says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunnerInfo {
    /// What it calls itself.
    pub name: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// Its revision.
    pub revision: Option<String>,
    /// Its operating system.
    pub platform: Option<String>,
    /// Its processor.
    pub architecture: Option<String>,
}

/// Which runners are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunnerScope {
    /// Those that take builds.
    Active,
    /// Those that take none at the moment.
    Paused,
    /// Those that were heard of lately.
    Online,
    /// Those that belong to projects.
    Specific,
    /// Those that are there for every project.
    Shared,
}

impl Runner {
    /// Whether it has everything that a build wants of it.
    pub fn suits(&self, tags: &[String]) -> bool {
        if tags.is_empty() { self.run_untagged } else { tags.iter().all(|tag| self.tags.contains(tag)) }
    }

    /// The runner in short.
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

/// A variable that a project gives its builds.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Its name.
    pub key: String,
    /// What it holds.
    pub value: Secret,
}

/// A token with which others start pipelines.
#[derive(Clone, Debug)]
pub struct Trigger {
    /// Its number.
    pub id: i64,
    /// From what its token is made.
    pub seed: Seed,
    /// When it was made.
    pub created_at: Time,
    /// When it was last changed.
    pub updated_at: Time,
    /// When it was last used.
    pub last_used: Option<Time>,
}
