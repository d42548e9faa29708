//! Domain types of the forge and their validation rules: plain values, no I/O, no serialization.

mod accounts;
mod admin;
mod ci;
pub mod projects;
mod repository;
mod tracker;
mod webhooks;

pub use accounts::{emails, keys, tokens, users, web_sessions};
pub use admin::{nodes, tasks};
pub use ci::{jobs, pipelines, runners, statuses, triggers, variables};
pub use projects::{
    avatars, deploy_keys, events, groups, imports, members, namespaces, roles, storage, uploads, visibility,
};
pub use repository::{commit_notes, objects, packs, protections, refs, releases};
pub use tracker::{boards, issues, labels, milestones, notes, references, text_references};
pub use webhooks::{hooks, webhook_events};

pub mod addresses;
pub mod change;
pub mod ids;
pub mod page;
pub mod site;
pub mod text;
pub mod violations;

pub use boards::{Board, BoardList};
pub use change::Change;
pub use commit_notes::CommitNote;
pub use deploy_keys::DeployKey;
pub use emails::Email;
pub use events::Event;
pub use hooks::{Delivery, EventKind, Hook};
pub use ids::{
    ArtifactId, AvatarId, BoardId, BoardListId, CommitNoteId, DeliveryId, DeployKeyId, EmailId, EventId, ForkLinkId,
    HookId, IntentId, IssueId, IssueIid, JobId, KeyId, LabelId, MilestoneId, MilestoneIid, NamespaceId, NoteId, PackId,
    PipelineId, ProjectId, RepositoryId, RunnerId, ShareId, TaskId, TokenId, TraceObjectId, TriggerId, UploadId,
    UserId, WebSessionId, WebhookEventId,
};
pub use issues::{Issue, IssueState};
pub use jobs::Job;
pub use keys::Key;
pub use labels::Label;
pub use members::{Member, Share};
pub use milestones::Milestone;
pub use namespaces::{Namespace, NamespaceKind};
pub use notes::Note;
pub use objects::{Commit, Oid};
pub use packs::PackContent;
pub use page::{Page, Slice, Total};
pub use pipelines::{Pipeline, Status};
pub use projects::Project;
pub use protections::{Protection, PushLevel};
pub use refs::{RefChange, RefKind, RefName};
pub use releases::Release;
pub use roles::Role;
pub use runners::Runner;
pub use site::{DEFAULT_SSH_PORT, Site, SshEndpoint};
pub use statuses::CommitStatus;
pub use storage::StorageId;
pub use tokens::{Scope, Token};
pub use uploads::Upload;
pub use users::{User, UserState};
pub use violations::Violations;
pub use visibility::Visibility;
pub use web_sessions::WebSession;
pub use webhook_events::WebhookEvent;

/// A timestamp in UTC, truncated to microseconds so that every database stores it unchanged.
pub type Time = jiff::Timestamp;
