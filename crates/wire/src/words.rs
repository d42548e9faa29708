//! What a person reads when something was refused.

use forge::Error;
pub(crate) use forge::error::NO_ROOM;

use crate::{origin::Origin, transfers::Busy};

pub(crate) const BUSY: &str = "The server is busy; try again in a moment.";
pub(crate) const SHARE: &str = "Too much is going on with your address already; try again in a moment.";
pub(crate) const FAILED: &str = "Something went wrong on the server; its operator finds more in the log.";
pub(crate) const MISSING: &str = "The project you were looking for could not be found.";

/// Why no turn came.
pub(crate) fn busy(busy: Busy) -> &'static str {
    match busy {
        Busy::Everywhere => BUSY,
        Busy::Here => SHARE,
    }
}

/// One sentence on why a use case did not happen; what is nobody's business goes to the log instead.
pub(crate) fn sentence(refusal: &Error, origin: &Origin) -> String {
    match refusal {
        Error::Unauthenticated | Error::NotFound(_) | Error::NoSuchRow => MISSING.to_owned(),
        Error::Forbidden(Some(text)) | Error::Refused(text) | Error::Taken(text) | Error::LimitReached(text) => {
            one_line(text)
        }
        Error::Forbidden(None) => "You are not allowed to do this.".to_owned(),
        Error::Busy => BUSY.to_owned(),
        Error::NoRoom(_) => {
            origin.warn("there is no room for what git sends or asks for", refusal);
            NO_ROOM.to_owned()
        }
        Error::Unchanged | Error::Malformed(_) | Error::Invalid(_) | Error::Unprocessable(_) => {
            one_line(&refusal.to_string())
        }
        _ => {
            origin.error("git request failed: internal error", refusal);
            FAILED.to_owned()
        }
    }
}

/// A text as one short line that no terminal takes for a command.
pub(crate) fn one_line(text: &str) -> String {
    const LONGEST: usize = 300;
    let plain = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(LONGEST).collect()
}

/// What a program of git complained about last, if it can be told: paths of the server cannot.
pub(crate) fn complaint(log: &str) -> Option<String> {
    let line = log.lines().rev().find_map(|line| line.strip_prefix("fatal: ").or(line.strip_prefix("error: ")))?;
    (!line.contains('/')).then(|| one_line(line))
}

/// Whether a program of git complains that there is no room left. Its words are those of the C locale.
pub(crate) fn tells_of_no_room(log: &str) -> bool {
    ["No space left on device", "Disk quota exceeded"].iter().any(|words| log.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_plain_line() {
        let origin = Origin::new("ssh", [192, 0, 2, 1].into(), "group/project");
        assert_eq!(sentence(&Error::not_found("Project"), &origin), MISSING);
        assert_eq!(sentence(&Error::forbidden("No.\n\x1b[31mred\r"), &origin), "No.  [31mred");
        assert_eq!(sentence(&Error::Internal("secret".to_owned()), &origin), FAILED);
        assert_eq!(one_line(&"x".repeat(1000)).len(), 300);
    }

    #[test]
    fn lesson_24_a_complaint_names_no_folder_of_the_server() {
        assert_eq!(complaint("warning: x\nfatal: early EOF\n").as_deref(), Some("early EOF"));
        assert_eq!(complaint("fatal: cannot open '/srv/gable/x'\n"), None);
        assert_eq!(complaint("progress 1\rprogress 2\n"), None);
        assert_eq!(complaint(""), None);
    }
}
