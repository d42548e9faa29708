//! Reads a CI file, plans a pipeline and moves the states of its jobs, without I/O of any kind.
//!
//! - [`Config::load`] reads a `.gitlab-ci.yml` with the local files that it includes, and tells the first error in the
//!   words that clients know. Whatever a file says, the cost of reading it is bounded ([`budget`]).
//! - [`plan`](plan::plan) decides which jobs a pipeline has under given [`Circumstances`].
//! - [`status`] and [`progress`] are the machine: what may happen to a job, what follows for the others, and what the
//!   pipeline is called then.

mod artifacts;
pub mod budget;
mod caches;
mod checks;
mod circumstances;
mod config;
mod coverage;
mod defaults;
pub mod durations;
mod entries;
mod environments;
mod expression;
mod extends;
mod globs;
mod images;
mod includes;
mod invalid;
mod jobs;
mod judge;
mod needs;
mod parallel;
mod patterns;
pub mod plan;
pub mod progress;
mod references;
mod refs;
mod retries;
mod rules;
mod scalars;
mod spec;
pub mod status;
mod value;
mod variables;
mod yaml;

pub use artifacts::{ArtifactAccess, Artifacts};
pub use caches::{Cache, CacheKey, CachePolicy, Outcome};
pub use circumstances::{Circumstances, Source, asks_to_skip, slug};
pub use config::{Config, FIRST_STAGE, LAST_STAGE};
pub use coverage::find_coverage;
pub use environments::{Action, Environment};
pub use expression::Expression;
pub use globs::Glob;
pub use images::{Image, Service};
pub use includes::{Include, NoFiles};
pub use invalid::Invalid;
pub use jobs::{AllowFailure, Job, Selection};
pub use needs::Need;
pub use parallel::{Combination, Parallel};
pub use patterns::Pattern;
pub use plan::{Plan, PlanRefusal, PlannedJob, PlannedNeed, plan};
pub use refs::{Policy, RefEntry};
pub use retries::Retry;
pub use rules::{Rule, Verdict, When};
pub use spec::Spec;
pub use status::{Event, Status};
pub use variables::{Variables, expand};
