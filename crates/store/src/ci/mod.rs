//! Database access for pipelines, jobs and runners.

pub mod artifacts;
pub mod job_lists;
pub mod job_queue;
pub mod job_runs;
pub mod jobs;
pub mod pipelines;
pub mod runners;
pub mod statuses;
pub mod trace_segments;
pub mod triggers;
pub mod variables;
