//! Work that is done after the answer.

use crate::Time;

/// A piece of background work as the table of jobs holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRecord {
    /// Number of the job.
    pub id: i64,
    /// Which kind of work it is.
    pub kind: String,
    /// What the work needs to know, in the kind's own notation.
    pub payload: String,
    /// How often it was tried.
    pub attempts: i32,
    /// Not before this moment.
    pub run_at: Time,
    /// Until when a worker has it.
    pub leased_until: Option<Time>,
    /// When it was given up.
    pub dead_at: Option<Time>,
    /// What went wrong the last time.
    pub last_error: Option<String>,
    /// When it was written.
    pub created_at: Time,
}
