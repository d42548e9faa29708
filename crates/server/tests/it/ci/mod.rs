//! Tests of continuous integration.

mod artifacts;
pub(crate) mod assignments;
mod builds;
mod job_tokens;
mod job_updates;
mod lint;
mod pipeline_story;
pub(crate) mod pipelines;
mod runner_access;
mod runner_command;
mod runner_crate;
pub(crate) mod runner_story;
pub(crate) mod runners;
mod stale_jobs;
mod statuses;
pub(crate) mod traces;
pub(crate) mod triggers;
mod variables;
