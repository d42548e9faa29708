//! The use cases of continuous integration.

pub mod artifacts;
pub mod assignments;
pub mod builds;
pub(crate) mod job_notifier;
pub mod lint;
pub mod pipelines;
pub mod runners;
pub mod stale_jobs;
pub mod statuses;
pub mod traces;
pub mod triggers;
pub mod variables;
pub mod waiting;
