//! How statuses of pipelines and jobs look, and what they are called.

use std::fmt;

use askama::filters::HtmlSafe;
use forge::job_pages;
use model::{Job, Status};

/// The name of a status and the class of its mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StatusView {
    pub(crate) class: &'static str,
    pub(crate) text: &'static str,
}

impl StatusView {
    /// Returns the status of a job, which differs from its state if it is manual or may fail.
    pub(crate) fn of_job(job: &Job) -> Self {
        match job.status {
            Status::Failed if job.allow_failure => Self { class: "warning", text: "failed (allowed)" },
            _ if job_pages::is_playable(job) => Self { class: "manual", text: "manual" },
            status => status.into(),
        }
    }
}

impl From<Status> for StatusView {
    fn from(status: Status) -> Self {
        let (class, text) = match status {
            Status::Created => ("created", "created"),
            Status::Pending => ("pending", "pending"),
            Status::Running => ("running", "running"),
            Status::Success => ("success", "passed"),
            Status::Failed => ("failed", "failed"),
            Status::Canceled => ("canceled", "canceled"),
            Status::Skipped => ("skipped", "skipped"),
            Status::Manual => ("manual", "manual"),
        };
        Self { class, text }
    }
}

/// A mark with the name of the status.
impl fmt::Display for StatusView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<span class=\"status {}\">{}</span>", self.class, self.text)
    }
}

impl HtmlSafe for StatusView {}

/// Describes the reason of a failure.
pub(crate) fn failure_text(reason: &str) -> String {
    match reason {
        "script_failure" => "the script failed".to_owned(),
        "runner_system_failure" => "the runner failed".to_owned(),
        "job_execution_timeout" => "the job took longer than its timeout".to_owned(),
        "stuck_or_timeout_failure" => "the job was stuck, or its runner stopped responding".to_owned(),
        "unknown_failure" => "unknown".to_owned(),
        other => other.replace('_', " "),
    }
}
