//! The ids of records: a type for each kind of record, so that the compiler rejects an id of another kind.

use std::{fmt, num::ParseIntError, str::FromStr};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(i64);

        impl $name {
            /// Creates the id with this number.
            pub const fn new(number: i64) -> Self {
                Self(number)
            }

            /// Returns the number.
            pub const fn get(self) -> i64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIntError;

            fn from_str(text: &str) -> Result<Self, ParseIntError> {
                text.parse().map(Self)
            }
        }

        impl From<$name> for i64 {
            fn from(id: $name) -> Self {
                id.0
            }
        }
    )*};
}

ids! {
    /// The id of a user.
    UserId
    /// The id of an email address of a user.
    EmailId
    /// The id of an SSH key of a user.
    KeyId
    /// The id of a personal access token.
    TokenId
    /// The id of a session of the web interface.
    WebSessionId
    /// The id of a namespace: the personal namespace of a user, or a group.
    NamespaceId
    /// The id of a project.
    ProjectId
    /// The id of the share of a project with a group.
    ShareId
    /// The id of a fork relation.
    ForkLinkId
    /// The id of a deploy key.
    DeployKeyId
    /// The id of an activity event.
    EventId
    /// The id of an upload.
    UploadId
    /// The id of an uploaded avatar.
    AvatarId
    /// The id of a repository.
    RepositoryId
    /// The id of a pack.
    PackId
    /// The id of a comment on a commit.
    CommitNoteId
    /// The id of the intent of a push.
    IntentId
    /// The id of an issue.
    IssueId
    /// The number of an issue within its project.
    IssueIid
    /// The id of a note on an issue.
    NoteId
    /// The id of a label.
    LabelId
    /// The id of a milestone.
    MilestoneId
    /// The number of a milestone within its project.
    MilestoneIid
    /// The id of an issue board.
    BoardId
    /// The id of a list of an issue board.
    BoardListId
    /// The id of a pipeline.
    PipelineId
    /// The id of a CI job, or of a commit status reported by an external service.
    JobId
    /// The id of an artifact of a CI job.
    ArtifactId
    /// The id of an object that holds a part of a trace.
    TraceObjectId
    /// The id of a runner.
    RunnerId
    /// The id of a pipeline trigger.
    TriggerId
    /// The id of a webhook.
    HookId
    /// The id of a webhook event in the outbox.
    WebhookEventId
    /// The id of a webhook delivery.
    DeliveryId
    /// The id of a background task.
    TaskId
}

impl UserId {
    /// Stands for a caller who is not signed in; no user has this id.
    pub const ANONYMOUS: Self = Self(0);
}
