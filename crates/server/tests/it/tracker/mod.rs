//! Tests of the issue tracker.

mod boards;
mod issue_counts;
mod issue_tables;
mod issues;
pub(crate) mod labels;
mod list_costs;
mod markdown;
mod mentions;
mod milestones;
mod notes;
