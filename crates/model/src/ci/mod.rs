//! Pipelines, their jobs, and the runners that run them.

pub mod jobs;
pub mod pipelines;
pub mod runners;
pub mod statuses;
pub mod triggers;
pub mod variables;
