//! The statements of continuous integration.

pub mod artifacts;
pub mod assignments;
pub mod build_lists;
pub mod build_runs;
pub mod builds;
pub mod pipelines;
pub mod runners;
pub mod statuses;
pub mod triggers;
pub mod variables;
