//! Error messages that users read in their terminal.

use forge::Error;
pub(crate) use forge::error::DISK_FULL_MESSAGE;

use crate::{log_context::LogContext, transfers::Busy};

pub(crate) const BUSY: &str = "the server is busy; try again later";
pub(crate) const UNAVAILABLE: &str = "the server is temporarily unavailable; try again later";
pub(crate) const CLIENT_BUSY: &str = "too many transfers from your address; try again later";
pub(crate) const INTERNAL_ERROR: &str = "internal server error; the administrator can find details in the log";
pub(crate) const PROJECT_NOT_FOUND: &str = "The project you were looking for could not be found.";

/// Returns the message for a refused permit.
pub(crate) fn busy_message(busy: Busy) -> &'static str {
    match busy {
        Busy::Server => BUSY,
        Busy::Client => CLIENT_BUSY,
    }
}

/// Returns one line about a failed use case. Internal errors are logged and not shown.
pub(crate) fn describe_error(error: &Error, log: &LogContext) -> String {
    match error {
        Error::Unauthenticated | Error::NotFound(_) | Error::NoSuchRow => PROJECT_NOT_FOUND.to_owned(),
        Error::Forbidden(Some(text)) | Error::Refused(text) | Error::Taken(text) | Error::LimitReached(text) => {
            one_line(text)
        }
        Error::Forbidden(None) => "you are not allowed to do this".to_owned(),
        Error::Busy => BUSY.to_owned(),
        Error::Unavailable(_) => {
            log.warn("git request failed: the database or the store is unavailable", error);
            UNAVAILABLE.to_owned()
        }
        Error::DiskFull(_) => {
            log.warn("git request failed: no disk space left", error);
            DISK_FULL_MESSAGE.to_owned()
        }
        Error::RefRejected(_)
        | Error::Unchanged
        | Error::Malformed(_)
        | Error::Invalid(_)
        | Error::Unprocessable(_) => one_line(&error.to_string()),
        _ => {
            log.error("git request failed: internal error", error);
            INTERNAL_ERROR.to_owned()
        }
    }
}

/// Returns text as one short line without control characters, so that it cannot contain terminal escapes.
pub(crate) fn one_line(text: &str) -> String {
    const MAX_CHARS: usize = 300;
    let plain = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(MAX_CHARS).collect()
}

/// Returns the last error in git's standard error, unless it contains a path of the server.
pub(crate) fn last_git_error(stderr: &str) -> Option<String> {
    let line = stderr.lines().rev().find_map(|line| line.strip_prefix("fatal: ").or(line.strip_prefix("error: ")))?;
    (!line.contains('/')).then(|| one_line(line))
}

/// Returns whether git's standard error, in the C locale, reports a full disk or an exceeded quota.
pub(crate) fn reports_full_disk(stderr: &str) -> bool {
    ["No space left on device", "Disk quota exceeded"].iter().any(|text| stderr.contains(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_plain_line() {
        let log = LogContext::new("ssh", [192, 0, 2, 1].into(), "group/project");
        assert_eq!(describe_error(&Error::not_found("Project"), &log), PROJECT_NOT_FOUND);
        assert_eq!(describe_error(&Error::forbidden("No.\n\x1b[31mred\r"), &log), "No.  [31mred");
        assert_eq!(describe_error(&Error::Internal("secret".into()), &log), INTERNAL_ERROR);
        assert_eq!(one_line(&"x".repeat(1000)).len(), 300);
    }

    #[test]
    fn an_error_of_git_with_a_server_path_is_not_shown() {
        assert_eq!(last_git_error("warning: x\nfatal: early EOF\n").as_deref(), Some("early EOF"));
        assert_eq!(last_git_error("fatal: cannot open '/srv/gable/x'\n"), None);
        assert_eq!(last_git_error("progress 1\rprogress 2\n"), None);
        assert_eq!(last_git_error(""), None);
    }
}
