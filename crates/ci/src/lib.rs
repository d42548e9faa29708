//! Reads CI files, plans pipelines and computes the states of jobs, without I/O.
//!
//! - [`Config::load`] reads a `.gitlab-ci.yml` with the local files that it includes; its errors have the wording of
//!   GitLab. The cost of reading a hostile file is bounded ([`budget`]).
//! - [`plan`](plan::plan) decides which jobs a pipeline has in a given [`PipelineContext`].
//! - [`status`] and [`progress`] are the state machine of jobs and pipelines.

mod artifacts;
pub mod budget;
mod caches;
mod checks;
mod config;
mod config_error;
mod coverage;
mod defaults;
pub mod durations;
mod environments;
mod expression;
mod extends;
mod fields;
mod globs;
mod images;
mod includes;
mod jobs;
mod needs;
mod only_except;
mod parallel;
mod patterns;
mod pipeline_context;
pub mod plan;
pub mod progress;
mod references;
mod retries;
mod rule_evaluator;
mod rules;
mod scalars;
mod spec;
pub mod status;
mod value;
mod variables;
mod yaml;

pub use artifacts::{ArtifactAccess, Artifacts};
pub use caches::{Cache, CacheKey, CachePolicy, UploadWhen};
pub use config::{Config, FIRST_STAGE, LAST_STAGE};
pub use config_error::ConfigError;
pub use coverage::find_coverage;
pub use environments::{Environment, EnvironmentAction};
pub use expression::Expression;
pub use globs::{Glob, GlobSemantics};
pub use images::{Image, Service};
pub use includes::{LocalFiles, NoFiles};
pub use jobs::{AllowFailure, Job, JobSelection};
pub use needs::Need;
pub use only_except::{JobPolicy, RefEntry};
pub use parallel::{Combination, Parallel};
pub use patterns::Pattern;
pub use pipeline_context::{PipelineContext, PipelineSource, skips_ci, slug};
pub use plan::{Plan, PlanError, PlannedJob, PlannedNeed, plan};
pub use retries::Retry;
pub use rules::{Rule, RuleOutcome, When};
pub use spec::JobSpec;
pub use status::{Status, StatusEvent};
pub use variables::{Variables, expand};
