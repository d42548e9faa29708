//! Hooks, kinds of events and deliveries.

use sha2::{Digest as _, Sha256};

use crate::{DeliveryId, HookId, ProjectId, Time};

/// The maximum length of a URL in characters.
pub const MAX_URL_LENGTH: usize = 2000;

/// A hook of a project, or a system hook.
#[derive(Clone)]
pub struct Hook {
    /// Id of the hook.
    pub id: HookId,
    /// The project of the hook; `None` for a system hook.
    pub project: Option<ProjectId>,
    /// The URL, with credentials masked.
    pub url: String,
    /// The kinds of events that it receives.
    pub events: SubscribedEvents,
    /// Whether the TLS certificate of the receiver is verified.
    pub verify_tls: bool,
    /// Set while the hook is paused.
    pub pause: Option<Pause>,
    /// When it was created.
    pub created_at: Time,
    /// When it was last changed.
    pub updated_at: Time,
}

/// The kinds of events that a hook receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscribedEvents {
    /// Pushes to branches.
    pub push: bool,
    /// Pushes of tags.
    pub tag_push: bool,
    /// Issues.
    pub issues: bool,
    /// Confidential issues.
    pub confidential_issues: bool,
    /// Merge requests.
    pub merge_requests: bool,
    /// Comments.
    pub note: bool,
    /// Builds.
    pub build: bool,
    /// Pipelines.
    pub pipeline: bool,
    /// Wiki pages.
    pub wiki_page: bool,
}

impl Default for SubscribedEvents {
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

/// A pause in the deliveries of a hook, after its receiver has failed repeatedly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// When the pause began.
    pub since: Time,
    /// The reason.
    pub reason: String,
    /// When the receiver is probed next.
    pub next_attempt_at: Option<Time>,
}

/// The kind of an event, which determines the subscribed hooks and the `X-Gitlab-Event` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A branch was pushed.
    Push,
    /// A tag was pushed.
    TagPush,
    /// An issue changed.
    Issue,
    /// A confidential issue changed.
    ConfidentialIssue,
    /// A comment was added.
    Note,
    /// A comment was added to a confidential issue.
    ConfidentialNote,
    /// A merge request changed.
    MergeRequest,
    /// The status of a job changed.
    Job,
    /// The status of a pipeline changed.
    Pipeline,
    /// A wiki page changed.
    WikiPage,
    /// An event of the instance; all system hooks receive it.
    System,
    /// A branch was pushed, for system hooks.
    SystemPush,
    /// A tag was pushed, for system hooks.
    SystemTagPush,
}

impl EventKind {
    /// All kinds.
    pub const ALL: [Self; 13] = [
        Self::Push,
        Self::TagPush,
        Self::Issue,
        Self::ConfidentialIssue,
        Self::Note,
        Self::ConfidentialNote,
        Self::MergeRequest,
        Self::Job,
        Self::Pipeline,
        Self::WikiPage,
        Self::System,
        Self::SystemPush,
        Self::SystemTagPush,
    ];

    /// Returns the code that is stored in the database.
    pub fn code(self) -> i32 {
        match self {
            Self::Push => 1,
            Self::TagPush => 2,
            Self::Issue => 3,
            Self::ConfidentialIssue => 4,
            Self::Note => 5,
            Self::ConfidentialNote => 6,
            Self::MergeRequest => 7,
            Self::Job => 8,
            Self::Pipeline => 9,
            Self::WikiPage => 10,
            Self::System => 11,
            Self::SystemPush => 12,
            Self::SystemTagPush => 13,
        }
    }

    /// Returns the kind with a code.
    pub fn from_code(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Returns the value of the `X-Gitlab-Event` header; receivers compare it exactly.
    pub fn header(self) -> &'static str {
        match self {
            Self::Push => "Push Hook",
            Self::TagPush => "Tag Push Hook",
            Self::Issue => "Issue Hook",
            Self::ConfidentialIssue => "Confidential Issue Hook",
            Self::Note | Self::ConfidentialNote => "Note Hook",
            Self::MergeRequest => "Merge Request Hook",
            Self::Job => "Build Hook",
            Self::Pipeline => "Pipeline Hook",
            Self::WikiPage => "Wiki Page Hook",
            Self::System | Self::SystemPush | Self::SystemTagPush => "System Hook",
        }
    }
}

/// The state of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// Pending: not attempted yet, or to be retried.
    Waiting,
    /// The receiver accepted it.
    Delivered,
    /// No further attempt is made.
    Failed,
}

impl DeliveryState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Waiting, Self::Delivered, Self::Failed];

    /// Returns the code that is stored in the database.
    pub fn code(self) -> i32 {
        match self {
            Self::Waiting => 0,
            Self::Delivered => 1,
            Self::Failed => 2,
        }
    }

    /// Returns the state with a code.
    pub fn from_code(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.code() == code)
    }

    /// Returns its name in the REST API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }
}

/// The delivery of an event to a hook, with the result of its last attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Id of the delivery.
    pub id: DeliveryId,
    /// The hook.
    pub hook: HookId,
    /// Identifies the delivery to the receiver: the same for all attempts, and when it is resent.
    pub uuid: String,
    /// The kind of event.
    pub kind: EventKind,
    /// The state.
    pub state: DeliveryState,
    /// The number of attempts.
    pub attempts: i32,
    /// When the event happened.
    pub created_at: Time,
    /// When the next attempt is due, if it is pending.
    pub due_at: Option<Time>,
    /// When the last attempt began.
    pub tried_at: Option<Time>,
    /// When it was delivered or failed.
    pub finished_at: Option<Time>,
    /// Duration of the last attempt in microseconds.
    pub duration: Option<i64>,
    /// The URL, with credentials masked.
    pub url: Option<String>,
    /// The payload.
    pub payload: String,
    /// HTTP status of the response.
    pub status: Option<i32>,
    /// Headers of the response, one per line.
    pub response_headers: Option<String>,
    /// The beginning of the response body.
    pub response_body: Option<String>,
    /// Why the last attempt failed.
    pub error: Option<String>,
}

/// A finished attempt of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryAttempt {
    /// When it began.
    pub started_at: Time,
    /// Duration in microseconds.
    pub duration: i64,
    /// The URL, with credentials masked.
    pub url: String,
    /// Whether the request carried the token and a signature.
    pub signed: bool,
    /// The outcome.
    pub outcome: AttemptOutcome,
}

/// The outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The receiver responded, with any status.
    Responded(HookResponse),
    /// There was no response: a network or TLS error, or a timeout.
    Unreachable(String),
    /// Nothing was sent, for instance because the address is forbidden.
    Refused(String),
}

/// The response of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookResponse {
    /// The HTTP status.
    pub status: u16,
    /// The headers, one per line.
    pub headers: String,
    /// The beginning of the body.
    pub body: String,
    /// The delay that it requests with `Retry-After`, in seconds.
    pub retry_after: Option<u32>,
}

/// Returns the UUID of a delivery, which depends only on the seed of the event and the hook.
pub fn delivery_uuid(seed: &str, hook: HookId) -> String {
    let digest = Sha256::new().chain_update(seed).chain_update(hook.get().to_be_bytes()).finalize();
    let hex = digest[..16].iter().fold(0_u128, |number, byte| number << 8 | u128::from(*byte));
    let hex = format!("{hex:032x}");
    // Version 8 is for custom formats.
    format!("{}-{}-8{}-a{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_states_have_distinct_codes() {
        for kind in EventKind::ALL {
            assert_eq!(EventKind::from_code(kind.code()), Some(kind));
        }
        for state in DeliveryState::ALL {
            assert_eq!(DeliveryState::from_code(state.code()), Some(state));
        }
        assert_eq!((EventKind::from_code(0), DeliveryState::from_code(9)), (None, None));
    }

    #[test]
    fn a_delivery_uuid_depends_on_the_seed_and_the_hook() {
        let one = delivery_uuid("abc", HookId::new(7));
        assert_eq!(one.len(), 36, "{one}");
        assert_eq!(one, delivery_uuid("abc", HookId::new(7)));
        assert_ne!(one, delivery_uuid("abc", HookId::new(8)));
        assert_ne!(one, delivery_uuid("abd", HookId::new(7)));
    }
}
