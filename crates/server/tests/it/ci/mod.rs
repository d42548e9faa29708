//! Tests of pipelines, jobs and runners.

mod artifacts;
pub(crate) mod job_requests;
mod job_tokens;
mod job_updates;
mod jobs;
mod lint;
mod pipeline_lifecycle;
pub(crate) mod pipelines;
mod runner_access;
mod runner_command;
mod runner_crate;
pub(crate) mod runner_end_to_end;
pub(crate) mod runners;
mod stale_jobs;
mod statuses;
mod trace_segments;
pub(crate) mod traces;
pub(crate) mod triggers;
mod variables;
