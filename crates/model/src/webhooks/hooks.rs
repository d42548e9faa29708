//! Hooks: whom the service tells what happens, and how that went.

use sha2::{Digest as _, Sha256};

use crate::Time;

/// How long a URL may be.
pub const LONGEST_URL: usize = 2000;

/// A hook of a project, or of the instance.
#[derive(Clone)]
pub struct Hook {
    /// Number of the hook.
    pub id: i64,
    /// The project whose hook it is; `None` for one of the instance.
    pub project: Option<i64>,
    /// Where it leads, as it may be shown: credentials are masked.
    pub url: String,
    /// What it wants to be told.
    pub switches: Switches,
    /// Whether the receiver has to prove who it is.
    pub verify: bool,
    /// Why nothing is sent at present, if that is so.
    pub pause: Option<Pause>,
    /// When it was made.
    pub created_at: Time,
    /// When it was last changed.
    pub updated_at: Time,
}

/// What a hook wants to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switches {
    /// Pushes of branches.
    pub push: bool,
    /// Pushes of tags.
    pub tag_push: bool,
    /// Issues.
    pub issues: bool,
    /// Issues that only some may see.
    pub confidential_issues: bool,
    /// Merge requests.
    pub merge_requests: bool,
    /// Comments.
    pub note: bool,
    /// Builds.
    pub build: bool,
    /// Pipelines.
    pub pipeline: bool,
    /// Pages of the wiki.
    pub wiki_page: bool,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            push: true,
            tag_push: false,
            issues: false,
            confidential_issues: false,
            merge_requests: false,
            note: false,
            build: false,
            pipeline: false,
            wiki_page: false,
        }
    }
}

/// That a hook is left alone for a while, because its receiver fails again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Since when.
    pub since: Time,
    /// Why.
    pub reason: String,
    /// When the receiver is tried again.
    pub next_attempt_at: Option<Time>,
}

/// On which occasion hooks are told something; decides which ones, and what the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A branch changed.
    Push,
    /// A tag changed.
    TagPush,
    /// Something happened to an issue.
    Issue,
    /// Something happened to an issue that only some may see.
    ConfidentialIssue,
    /// Somebody commented on something.
    Note,
    /// Somebody commented on an issue that only some may see.
    ConfidentialNote,
    /// Something happened to a merge request.
    MergeRequest,
    /// A build went on.
    Build,
    /// A pipeline went on.
    Pipeline,
    /// A page of the wiki changed.
    WikiPage,
    /// Something happened to the instance; all its hooks are told.
    System,
    /// A branch changed; hooks of the instance are told.
    SystemPush,
    /// A tag changed; hooks of the instance are told.
    SystemTagPush,
}

impl EventKind {
    /// Every occasion there is.
    pub const ALL: [Self; 13] = [
        Self::Push,
        Self::TagPush,
        Self::Issue,
        Self::ConfidentialIssue,
        Self::Note,
        Self::ConfidentialNote,
        Self::MergeRequest,
        Self::Build,
        Self::Pipeline,
        Self::WikiPage,
        Self::System,
        Self::SystemPush,
        Self::SystemTagPush,
    ];

    /// The number by which it is stored.
    pub fn code(self) -> i32 {
        match self {
            Self::Push => 1,
            Self::TagPush => 2,
            Self::Issue => 3,
            Self::ConfidentialIssue => 4,
            Self::Note => 5,
            Self::ConfidentialNote => 6,
            Self::MergeRequest => 7,
            Self::Build => 8,
            Self::Pipeline => 9,
            Self::WikiPage => 10,
            Self::System => 11,
            Self::SystemPush => 12,
            Self::SystemTagPush => 13,
        }
    }

    /// The occasion with a number.
    pub fn from_code(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|occasion| occasion.code() == code)
    }

    /// What the header `X-Gitlab-Event` says; receivers compare these texts exactly.
    pub fn header(self) -> &'static str {
        match self {
            Self::Push => "Push Hook",
            Self::TagPush => "Tag Push Hook",
            Self::Issue => "Issue Hook",
            Self::ConfidentialIssue => "Confidential Issue Hook",
            Self::Note | Self::ConfidentialNote => "Note Hook",
            Self::MergeRequest => "Merge Request Hook",
            Self::Build => "Build Hook",
            Self::Pipeline => "Pipeline Hook",
            Self::WikiPage => "Wiki Page Hook",
            Self::System | Self::SystemPush | Self::SystemTagPush => "System Hook",
        }
    }
}

/// How a delivery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// It has not arrived yet, and is tried (again).
    Waiting,
    /// It arrived, and was welcome.
    Delivered,
    /// It was given up.
    Failed,
}

impl DeliveryState {
    /// Every state there is.
    pub const ALL: [Self; 3] = [Self::Waiting, Self::Delivered, Self::Failed];

    /// The number by which it is stored.
    pub fn code(self) -> i32 {
        match self {
            Self::Waiting => 0,
            Self::Delivered => 1,
            Self::Failed => 2,
        }
    }

    /// The state with a number.
    pub fn from_code(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.code() == code)
    }

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }
}

/// One message to one hook, and how its last attempt went: a line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Number of the delivery, in the log.
    pub id: i64,
    /// The hook that is told.
    pub hook: i64,
    /// What the receiver knows it by: the same for every attempt, and when it is sent again.
    pub uuid: String,
    /// On which occasion.
    pub occasion: EventKind,
    /// How it stands.
    pub state: DeliveryState,
    /// How often it was tried.
    pub attempts: i32,
    /// When there was something to tell.
    pub created_at: Time,
    /// When it is tried (again), if it waits.
    pub due_at: Option<Time>,
    /// When it was last tried.
    pub tried_at: Option<Time>,
    /// When it arrived or was given up.
    pub finished_at: Option<Time>,
    /// How long the last attempt took, in microseconds.
    pub duration: Option<i64>,
    /// Where it was sent, without credentials.
    pub url: Option<String>,
    /// What was sent.
    pub payload: String,
    /// With which status the receiver answered.
    pub status: Option<i32>,
    /// Its headers, one in a line.
    pub response_headers: Option<String>,
    /// The beginning of what it said.
    pub response_body: Option<String>,
    /// What went wrong.
    pub error: Option<String>,
}

/// How one attempt to tell a hook something went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// When it began.
    pub at: Time,
    /// How long it took, in microseconds.
    pub duration: i64,
    /// Where it was sent, without credentials.
    pub url: String,
    /// Whether the token and a signature went along.
    pub signed: bool,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver answered.
    Answered(Answer),
    /// It did not: the network, a time-out, TLS.
    Unreachable(String),
    /// Nothing was sent: the URL leads to somewhere that is not talked to.
    Refused(String),
}

/// What a receiver answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers, one in a line.
    pub headers: String,
    /// The beginning of the body.
    pub body: String,
    /// For how many seconds it wants to be left alone.
    pub retry_after: Option<u32>,
}

/// What the receiver knows a delivery by: the same whenever the same is told to the same hook. In the form that
/// software expects.
pub fn delivery_uuid(seed: &str, hook: i64) -> String {
    let digest = Sha256::new().chain_update(seed).chain_update(hook.to_be_bytes()).finalize();
    let hex = digest[..16].iter().fold(0_u128, |number, byte| number << 8 | u128::from(*byte));
    let hex = format!("{hex:032x}");
    // Version 8 is for those who make their own.
    format!("{}-{}-8{}-a{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occasions_and_states_are_known_by_their_numbers() {
        for occasion in EventKind::ALL {
            assert_eq!(EventKind::from_code(occasion.code()), Some(occasion));
        }
        for state in DeliveryState::ALL {
            assert_eq!(DeliveryState::from_code(state.code()), Some(state));
        }
        assert_eq!((EventKind::from_code(0), DeliveryState::from_code(9)), (None, None));
    }

    #[test]
    fn a_delivery_is_known_by_its_seed_and_its_hook() {
        let one = delivery_uuid("abc", 7);
        assert_eq!(one.len(), 36, "{one}");
        assert_eq!(one, delivery_uuid("abc", 7));
        assert_ne!(one, delivery_uuid("abc", 8));
        assert_ne!(one, delivery_uuid("abd", 7));
    }
}
