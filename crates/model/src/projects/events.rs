//! What happened: the activity of users and projects.

use crate::{CommitNote, Note, Oid, Time, objects::Signature, users::UserSummary};

/// Something that happened in a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Number of the event; the higher, the newer.
    pub id: i64,
    /// Where it happened.
    pub project: i64,
    /// Who did it.
    pub author: UserSummary,
    /// What was done.
    pub action: Action,
    /// What it was done to, if it was done to something.
    pub target: Option<Target>,
    /// The title of that, or of the issue that the note is about.
    pub title: Option<String>,
    /// The note that was written, if one was.
    pub note: Option<Note>,
    /// The comment on a commit that was written, if one was.
    pub commit_note: Option<CommitNote>,
    /// What was pushed, if something was.
    pub push: Option<PushData>,
    /// When it happened.
    pub created_at: Time,
}

/// What something was done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// An issue.
    Issue(i64),
    /// A note.
    Note {
        /// Which one.
        note: i64,
        /// The issue that it is about.
        issue: i64,
    },
    /// A comment on a commit.
    CommitNote(i64),
    /// A milestone.
    Milestone(i64),
}

impl Target {
    /// The word for its kind.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Issue(_) => "Issue",
            Self::Note { .. } | Self::CommitNote(_) => "Note",
            Self::Milestone(_) => "Milestone",
        }
    }

    /// Its number.
    pub fn id(self) -> i64 {
        match self {
            Self::Issue(id) | Self::Note { note: id, .. } | Self::CommitNote(id) | Self::Milestone(id) => id,
        }
    }
}

/// What somebody did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Made a project, or opened something in it.
    Created,
    /// Changed something.
    Updated,
    /// Closed something.
    Closed,
    /// Opened something again.
    Reopened,
    /// Changed a branch or a tag.
    Pushed,
    /// Said something about something.
    Commented,
    /// Merged a merge request.
    Merged,
    /// Became a member of a project.
    Joined,
    /// Is no longer a member of a project.
    Left,
    /// Removed something.
    Destroyed,
    /// Was a member of a project until a day that is past.
    Expired,
}

impl Action {
    /// Every action there is.
    pub const ALL: [Self; 11] = [
        Self::Created,
        Self::Updated,
        Self::Closed,
        Self::Reopened,
        Self::Pushed,
        Self::Commented,
        Self::Merged,
        Self::Joined,
        Self::Left,
        Self::Destroyed,
        Self::Expired,
    ];

    /// The number by which it is stored.
    pub fn code(self) -> i32 {
        match self {
            Self::Created => 1,
            Self::Updated => 2,
            Self::Closed => 3,
            Self::Reopened => 4,
            Self::Pushed => 5,
            Self::Commented => 6,
            Self::Merged => 7,
            Self::Joined => 8,
            Self::Left => 9,
            Self::Destroyed => 10,
            Self::Expired => 11,
        }
    }

    /// The action with a number.
    pub fn from_code(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.code() == code)
    }
}

/// How many commits of a push are kept at most; the newest ones.
pub const COMMITS_KEPT: usize = 20;

/// How one ref changed by a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushData {
    /// The full name of the ref.
    pub ref_name: String,
    /// What it pointed to; `None` if it was not there.
    pub before: Option<Oid>,
    /// What it points to; `None` if it is gone.
    pub after: Option<Oid>,
    /// The commits that came, oldest first; of many only the newest [`COMMITS_KEPT`].
    pub commits: Vec<PushCommit>,
    /// How many commits came.
    pub total_commits: i64,
}

/// A commit that came with a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushCommit {
    /// Its name.
    pub id: Oid,
    /// All of the message.
    pub message: String,
    /// Who wrote it, and when.
    pub author: Signature,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_known_by_their_numbers() {
        for action in Action::ALL {
            assert_eq!(Action::from_code(action.code()), Some(action));
        }
        assert_eq!(Action::from_code(0), None);
    }
}
