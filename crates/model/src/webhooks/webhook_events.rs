//! Webhook events: the data of each payload, as of the time of the event.

use crate::{
    Commit, CommitNote, Issue, Job, Namespace, Note, Pipeline, Project, Role, Time, User, UserId, events::PushData,
    users::UserSummary,
};

/// An event that hooks receive.
#[derive(Clone, Copy)]
pub enum WebhookEvent<'a> {
    /// A branch or a tag was pushed.
    Push(&'a PushEvent<'a>),
    /// An issue changed.
    Issue(&'a IssueEvent<'a>),
    /// A comment was added.
    Note(&'a NoteEvent<'a>),
    /// A job was created, started or finished.
    Job(&'a JobEvent<'a>),
    /// The status of a pipeline changed.
    Pipeline(&'a PipelineEvent<'a>),
    /// An event of the instance.
    System(&'a SystemEvent<'a>),
    /// A test of a system hook.
    SystemTest,
}

/// A push to a branch or a tag.
#[derive(Clone, Copy)]
pub struct PushEvent<'a> {
    /// The project.
    pub project: &'a Project,
    /// The user who pushed.
    pub user: &'a User,
    /// The changes, with at most [`crate::events::MAX_PUSH_COMMITS`] commits.
    pub data: &'a PushData,
    /// The message of an annotated tag.
    pub message: Option<&'a str>,
    /// The changed files of each commit, in the same order; shorter if they were not listed.
    pub files: &'a [ChangedPaths],
    /// Whether it is for system hooks, which receive no commits.
    pub for_system_hook: bool,
}

/// The paths that a commit changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedPaths {
    /// Added paths, including the new paths of renamed files.
    pub added: Vec<String>,
    /// Modified paths.
    pub modified: Vec<String>,
    /// Removed paths, except for the old paths of renamed files.
    pub removed: Vec<String>,
}

/// What was done to an issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IssueAction {
    /// It was created.
    Open,
    /// It was changed.
    Update,
    /// It was closed.
    Close,
    /// It was reopened.
    Reopen,
}

impl IssueAction {
    /// Returns its name in payloads.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Update => "update",
            Self::Close => "close",
            Self::Reopen => "reopen",
        }
    }
}

/// A change of an issue.
#[derive(Clone, Copy)]
pub struct IssueEvent<'a> {
    /// The project.
    pub project: &'a Project,
    /// The user who did it.
    pub user: &'a UserSummary,
    /// The issue in its current state.
    pub issue: &'a Issue,
    /// The user who last changed it, if any.
    pub updated_by: Option<UserId>,
    /// What was done.
    pub action: IssueAction,
}

/// A new comment.
#[derive(Clone, Copy)]
pub struct NoteEvent<'a> {
    /// The project.
    pub project: &'a Project,
    /// The author.
    pub user: &'a UserSummary,
    /// What it comments on.
    pub on: NoteTarget<'a>,
}

/// A job that was created, started or finished.
#[derive(Clone, Copy)]
pub struct JobEvent<'a> {
    /// The project.
    pub project: &'a Project,
    /// The pipeline in its current state.
    pub pipeline: &'a Pipeline,
    /// The job in its current state.
    pub job: &'a Job,
    /// The email address of the user who caused it.
    pub email: Option<&'a str>,
    /// The commit; `None` if it no longer exists.
    pub commit: Option<&'a Commit>,
}

/// A pipeline whose status has changed.
#[derive(Clone, Copy)]
pub struct PipelineEvent<'a> {
    /// The project.
    pub project: &'a Project,
    /// The pipeline in its current state.
    pub pipeline: &'a Pipeline,
    /// All its jobs, including retried ones.
    pub jobs: &'a [Job],
    /// The commit; `None` if it no longer exists.
    pub commit: Option<&'a Commit>,
}

/// The target of a comment.
#[derive(Clone, Copy)]
pub enum NoteTarget<'a> {
    /// An issue.
    Issue {
        /// The comment.
        note: &'a Note,
        /// The issue in its current state.
        issue: &'a Issue,
        /// The user who last changed the issue, if any.
        updated_by: Option<UserId>,
    },
    /// A commit.
    Commit {
        /// The comment.
        note: &'a CommitNote,
        /// The commit.
        commit: &'a Commit,
    },
}

/// An event of the instance, for system hooks.
#[derive(Clone, Copy)]
pub enum SystemEvent<'a> {
    /// A project was created.
    ProjectCreated(ProjectRecord<'a>),
    /// A project was deleted.
    ProjectDestroyed(ProjectRecord<'a>),
    /// The path of a project changed within its namespace.
    ProjectRenamed {
        /// Its current state.
        project: ProjectRecord<'a>,
        /// The previous full path.
        old_path: &'a str,
    },
    /// A project was moved to another namespace.
    ProjectTransferred {
        /// Its current state.
        project: ProjectRecord<'a>,
        /// The previous full path.
        old_path: &'a str,
    },
    /// A user became a member of a project.
    MemberJoinedProject(ProjectMember<'a>),
    /// A user is no longer a member of a project.
    MemberLeftProject(ProjectMember<'a>),
    /// A user was created.
    UserCreated(UserRecord<'a>),
    /// A user was deleted.
    UserDestroyed(UserRecord<'a>),
    /// A key was added.
    KeyCreated(KeyRecord<'a>),
    /// A key was removed.
    KeyDestroyed(KeyRecord<'a>),
    /// A group was created.
    GroupCreated(&'a Namespace),
    /// A group was deleted.
    GroupDestroyed(&'a Namespace),
    /// A user became a member of a group.
    MemberJoinedGroup(GroupMember<'a>),
    /// A user is no longer a member of a group.
    MemberLeftGroup(GroupMember<'a>),
}

/// A project and its owner.
#[derive(Clone, Copy)]
pub struct ProjectRecord<'a> {
    /// The project.
    pub project: &'a Project,
    /// The name of the owner or the group.
    pub owner_name: &'a str,
    /// The email address of the owner; empty for a group.
    pub owner_email: &'a str,
}

/// The fields of a user in payloads of system hooks.
#[derive(Clone, Copy)]
pub struct UserRecord<'a> {
    /// Id of the user.
    pub id: UserId,
    /// The username.
    pub username: &'a str,
    /// The display name.
    pub name: &'a str,
    /// The primary email address.
    pub email: &'a str,
    /// When the user was created.
    pub created_at: Time,
    /// When the user was last changed.
    pub updated_at: Time,
}

/// A membership of a project.
#[derive(Clone, Copy)]
pub struct ProjectMember<'a> {
    /// The project.
    pub project: &'a Project,
    /// The member.
    pub user: UserRecord<'a>,
    /// The role.
    pub role: Role,
    /// When the membership began.
    pub created_at: Time,
    /// When it was last changed.
    pub updated_at: Time,
}

/// A membership of a group.
#[derive(Clone, Copy)]
pub struct GroupMember<'a> {
    /// The group.
    pub group: &'a Namespace,
    /// The member.
    pub user: UserRecord<'a>,
    /// The role.
    pub role: Role,
    /// When the membership began.
    pub created_at: Time,
    /// When it was last changed.
    pub updated_at: Time,
}

/// An SSH key or a deploy key.
#[derive(Clone, Copy)]
pub struct KeyRecord<'a> {
    /// Id of the key.
    pub id: i64,
    /// The public key.
    pub key: &'a str,
    /// The owner; `None` for a deploy key.
    pub username: Option<&'a str>,
    /// When it was added.
    pub created_at: Time,
    /// When it was last changed.
    pub updated_at: Time,
}
