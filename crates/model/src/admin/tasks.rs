//! Background tasks.

use crate::{TaskId, Time};

/// A background task as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRecord {
    /// The id of the task.
    pub id: TaskId,
    /// The kind of work.
    pub kind: String,
    /// The parameters of the work, in a format of its kind.
    pub payload: String,
    /// The number of attempts so far.
    pub attempts: i32,
    /// The earliest time to run it.
    pub run_at: Time,
    /// The end of the lease of the worker that runs it.
    pub leased_until: Option<Time>,
    /// When it failed permanently, after too many failed attempts.
    pub dead_at: Option<Time>,
    /// The error of the last attempt.
    pub last_error: Option<String>,
    /// When it was enqueued.
    pub created_at: Time,
}
