//! Pipelines, their jobs, and the runners that run them.

pub mod artifact_files;
pub mod artifacts;
pub mod ci_setting_pages;
pub(crate) mod job_notifier;
pub mod job_pages;
pub mod job_queue;
pub mod jobs;
pub mod lint;
pub mod pipeline_pages;
pub mod pipelines;
pub mod runners;
pub mod stale_jobs;
pub mod statuses;
pub mod stuck_jobs;
pub mod traces;
pub mod triggers;
pub mod variables;
