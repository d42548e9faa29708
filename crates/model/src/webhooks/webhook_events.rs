//! What hooks are told: everything that goes into a payload, as it was when it happened.

use crate::{
    Build, Commit, CommitNote, Issue, Namespace, Note, Pipeline, Project, Role, Time, User, events::PushData,
    users::UserSummary,
};

/// Something that hooks are told.
#[derive(Clone, Copy)]
pub enum WebhookEvent<'a> {
    /// A branch or a tag changed.
    Push(&'a Pushed<'a>),
    /// Something happened to an issue.
    Issue(&'a IssueHappening<'a>),
    /// Somebody commented on something.
    Note(&'a NoteHappening<'a>),
    /// A build was made, began or ended.
    Build(&'a BuildHappening<'a>),
    /// The status of a pipeline changed.
    Pipeline(&'a PipelineHappening<'a>),
    /// Something happened to the instance.
    System(&'a SystemHappening<'a>),
    /// Somebody wants to know whether the hook of the instance works.
    SystemTest,
}

/// A change of a branch or a tag.
#[derive(Clone, Copy)]
pub struct Pushed<'a> {
    /// Where.
    pub project: &'a Project,
    /// Who pushed.
    pub user: &'a User,
    /// What changed, with at most [`crate::events::COMMITS_KEPT`] commits.
    pub data: &'a PushData,
    /// What the annotation of a tag says.
    pub message: Option<&'a str>,
    /// What each of the commits did to files, in the same order; shorter if that was not looked at.
    pub files: &'a [FileLists],
    /// Whether it is told to hooks of the instance, which hear of no commits.
    pub to_system: bool,
}

/// What a commit did to files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileLists {
    /// New paths, also those of files that were renamed.
    pub added: Vec<String>,
    /// Paths of files that were changed.
    pub modified: Vec<String>,
    /// Paths of files that are gone, apart from those that were renamed.
    pub removed: Vec<String>,
}

/// What happened to an issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IssueAction {
    /// It was written.
    Open,
    /// It was changed.
    Update,
    /// It was closed.
    Close,
    /// It was opened again.
    Reopen,
}

impl IssueAction {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Update => "update",
            Self::Close => "close",
            Self::Reopen => "reopen",
        }
    }
}

/// Something that happened to an issue.
#[derive(Clone, Copy)]
pub struct IssueHappening<'a> {
    /// Where.
    pub project: &'a Project,
    /// Who did it.
    pub user: &'a UserSummary,
    /// The issue as it is now.
    pub issue: &'a Issue,
    /// Who changed it last, if anybody has.
    pub updated_by: Option<i64>,
    /// What was done.
    pub action: IssueAction,
}

/// A comment.
#[derive(Clone, Copy)]
pub struct NoteHappening<'a> {
    /// Where.
    pub project: &'a Project,
    /// Who wrote it.
    pub user: &'a UserSummary,
    /// What it is about.
    pub on: Commented<'a>,
}

/// A build that was made, began or ended.
#[derive(Clone, Copy)]
pub struct BuildHappening<'a> {
    /// Where.
    pub project: &'a Project,
    /// The pipeline that it belongs to, as it is now.
    pub pipeline: &'a Pipeline,
    /// The build as it is now.
    pub build: &'a Build,
    /// The address of whoever caused it.
    pub email: Option<&'a str>,
    /// The commit that is built; `None` if it is gone.
    pub commit: Option<&'a Commit>,
}

/// A pipeline whose status has changed.
#[derive(Clone, Copy)]
pub struct PipelineHappening<'a> {
    /// Where.
    pub project: &'a Project,
    /// The pipeline as it is now.
    pub pipeline: &'a Pipeline,
    /// All its builds, also those that were tried again.
    pub builds: &'a [Build],
    /// The commit that is built; `None` if it is gone.
    pub commit: Option<&'a Commit>,
}

/// What was commented on.
#[derive(Clone, Copy)]
pub enum Commented<'a> {
    /// An issue.
    Issue {
        /// The comment.
        note: &'a Note,
        /// The issue as it is now.
        issue: &'a Issue,
        /// Who changed the issue last, if anybody has.
        updated_by: Option<i64>,
    },
    /// A commit.
    Commit {
        /// The comment.
        note: &'a CommitNote,
        /// The commit.
        commit: &'a Commit,
    },
}

/// Something that happened to the instance. Every record says when it was made and when it was last changed.
#[derive(Clone, Copy)]
pub enum SystemHappening<'a> {
    /// A project was made.
    ProjectCreated(ProjectRecord<'a>),
    /// A project is gone.
    ProjectDestroyed(ProjectRecord<'a>),
    /// A project has another path, in the same place.
    ProjectRenamed {
        /// As it is now.
        project: ProjectRecord<'a>,
        /// Its full path before.
        old_path: &'a str,
    },
    /// A project has moved to another place.
    ProjectTransferred {
        /// As it is now.
        project: ProjectRecord<'a>,
        /// Its full path before.
        old_path: &'a str,
    },
    /// Somebody became a member of a project.
    MemberJoinedProject(ProjectMember<'a>),
    /// Somebody is no longer a member of a project.
    MemberLeftProject(ProjectMember<'a>),
    /// A user was made.
    UserCreated(Person<'a>),
    /// A user is gone.
    UserDestroyed(Person<'a>),
    /// A key was added.
    KeyCreated(KeyRecord<'a>),
    /// A key is gone.
    KeyDestroyed(KeyRecord<'a>),
    /// A group was made.
    GroupCreated(&'a Namespace),
    /// A group is gone.
    GroupDestroyed(&'a Namespace),
    /// Somebody became a member of a group.
    MemberJoinedGroup(GroupMember<'a>),
    /// Somebody is no longer a member of a group.
    MemberLeftGroup(GroupMember<'a>),
}

/// A project, and to whom it belongs.
#[derive(Clone, Copy)]
pub struct ProjectRecord<'a> {
    /// The project.
    pub project: &'a Project,
    /// The name of its owner, or of its group.
    pub owner_name: &'a str,
    /// The address of its owner; empty for that of a group.
    pub owner_email: &'a str,
}

/// A user, as far as hooks of the instance are told.
#[derive(Clone, Copy)]
pub struct Person<'a> {
    /// Number of the user.
    pub id: i64,
    /// The unique name.
    pub username: &'a str,
    /// The name people read.
    pub name: &'a str,
    /// The primary address.
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
    /// Who.
    pub user: Person<'a>,
    /// As what.
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
    /// Who.
    pub user: Person<'a>,
    /// As what.
    pub role: Role,
    /// When the membership began.
    pub created_at: Time,
    /// When it was last changed.
    pub updated_at: Time,
}

/// A key.
#[derive(Clone, Copy)]
pub struct KeyRecord<'a> {
    /// Number of the key.
    pub id: i64,
    /// Its public part.
    pub key: &'a str,
    /// Whose it is; `None` for that of a machine.
    pub username: Option<&'a str>,
    /// When it was added.
    pub created_at: Time,
    /// When it was last changed.
    pub updated_at: Time,
}
