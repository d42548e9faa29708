//! Endpoints for pipelines, jobs and runners.

pub(crate) mod jobs;
pub(crate) mod lint;
pub(crate) mod pipelines;
pub(crate) mod runners;
pub(crate) mod statuses;
pub(crate) mod traces;
pub(crate) mod triggers;
pub(crate) mod variables;
