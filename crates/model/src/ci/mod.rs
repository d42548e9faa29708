//! The nouns of continuous integration.

pub mod pipelines;
pub mod runners;
pub mod statuses;
