//! Activity events of users and projects.

use crate::{
    CommitNote, CommitNoteId, EventId, IssueId, MilestoneId, Note, NoteId, Oid, ProjectId, Time, objects::Signature,
    users::UserSummary,
};

/// An activity event in a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The ID of the event; IDs increase with time.
    pub id: EventId,
    /// The ID of the project.
    pub project: ProjectId,
    /// The user who caused it.
    pub author: UserSummary,
    /// The action.
    pub action: EventAction,
    /// The object of the action, if it has one.
    pub target: Option<EventTarget>,
    /// The title of the target; for a note, the title of its issue.
    pub title: Option<String>,
    /// The note, if the event is about one.
    pub note: Option<Note>,
    /// The comment on a commit, if the event is about one.
    pub commit_note: Option<CommitNote>,
    /// The push, if the event is about one.
    pub push: Option<PushData>,
    /// The time of the event.
    pub created_at: Time,
}

/// The object of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventTarget {
    /// An issue.
    Issue(IssueId),
    /// A note.
    Note {
        /// The ID of the note.
        note: NoteId,
        /// The ID of its issue.
        issue: IssueId,
    },
    /// A comment on a commit.
    CommitNote(CommitNoteId),
    /// A milestone.
    Milestone(MilestoneId),
}

impl EventTarget {
    /// Returns the name of its type.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Issue(_) => "Issue",
            Self::Note { .. } | Self::CommitNote(_) => "Note",
            Self::Milestone(_) => "Milestone",
        }
    }

    /// Returns the number of its ID.
    pub fn number(self) -> i64 {
        match self {
            Self::Issue(id) => id.get(),
            Self::Note { note, .. } => note.get(),
            Self::CommitNote(id) => id.get(),
            Self::Milestone(id) => id.get(),
        }
    }
}

/// The action of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventAction {
    /// Created a project, or opened an object in it.
    Created,
    /// Changed an object.
    Updated,
    /// Closed an object.
    Closed,
    /// Reopened an object.
    Reopened,
    /// Pushed to a branch or a tag.
    Pushed,
    /// Commented on an object.
    Commented,
    /// Merged a merge request.
    Merged,
    /// Joined a project.
    Joined,
    /// Left a project.
    Left,
    /// Deleted an object.
    Destroyed,
    /// Lost the membership of a project because it expired.
    Expired,
}

impl EventAction {
    /// All actions.
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

    /// Returns the number that is stored.
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

    /// Returns the action with this number.
    pub fn from_code(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.code() == code)
    }
}

/// The maximum number of commits stored per push; the newest are kept.
pub const MAX_PUSH_COMMITS: usize = 20;

/// The change of one ref by a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushData {
    /// The full name of the ref.
    pub ref_name: String,
    /// The previous target; `None` if the ref was created.
    pub before: Option<Oid>,
    /// The new target; `None` if the ref was deleted.
    pub after: Option<Oid>,
    /// The pushed commits, oldest first; at most the newest [`MAX_PUSH_COMMITS`].
    pub commits: Vec<PushCommit>,
    /// The number of all pushed commits.
    pub total_commits: i64,
}

/// A pushed commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushCommit {
    /// The object ID.
    pub id: Oid,
    /// The full message.
    pub message: String,
    /// The author and the author date.
    pub author: Signature,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_survive_a_round_trip_through_their_codes() {
        for action in EventAction::ALL {
            assert_eq!(EventAction::from_code(action.code()), Some(action));
        }
        assert_eq!(EventAction::from_code(0), None);
    }
}
