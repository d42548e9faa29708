//! Permissions, as tables of abilities. Lists apply the same rules in SQL (`store::Viewer`).
//!
//! Who may push to a protected branch is decided in `pushes::authorize`.

use model::{
    Namespace, NamespaceId, NamespaceKind, Project, ProjectId, Role, Scope, User, UserId, UserState, Visibility,
    tokens::Digest,
};
use store::{IssueVisibility, Viewer, projects::ProjectKey};

use crate::{Actor, Error, ReadTx, Result, caller};

/// An action on the instance as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// Read the user's own account.
    ReadOwnAccount,
    /// Change the user's own profile, password, keys, email addresses and tokens.
    ChangeOwnAccount,
    /// Read the public profiles of other users.
    ReadUsers,
    /// Create, change, block and remove users; read their keys and email addresses.
    AdministerUsers,
    /// Read the version of the server.
    ReadVersion,
    /// Monitor the server and control its background tasks.
    ManageServer,
    /// See the pages of the instance, such as the list of public projects; each entry is subject to its own rules.
    ViewPages,
    /// List groups, projects and namespaces; each entry is subject to its own rules.
    Browse,
    /// Create projects and groups; namespaces and limits have their own rules.
    Create,
    /// Read all projects, create them for other users, move them between namespaces.
    AdministerProjects,
    /// Manage the system hooks.
    AdministerHooks,
}

/// The role of an actor in the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstanceRole {
    /// Not signed in.
    Anonymous,
    /// Signed in.
    User,
    /// An administrator.
    Administrator,
}

impl Ability {
    /// All abilities, for printing the table.
    pub const ALL: [Self; 11] = [
        Self::ReadOwnAccount,
        Self::ChangeOwnAccount,
        Self::ReadUsers,
        Self::AdministerUsers,
        Self::ReadVersion,
        Self::ManageServer,
        Self::ViewPages,
        Self::Browse,
        Self::Create,
        Self::AdministerProjects,
        Self::AdministerHooks,
    ];
}

/// Returns the lowest role that has an ability.
pub fn required_role(ability: Ability) -> InstanceRole {
    match ability {
        Ability::ViewPages => InstanceRole::Anonymous,
        Ability::ReadOwnAccount
        | Ability::ChangeOwnAccount
        | Ability::ReadUsers
        | Ability::ReadVersion
        | Ability::Browse
        | Ability::Create => InstanceRole::User,
        Ability::AdministerUsers | Ability::ManageServer | Ability::AdministerProjects | Ability::AdministerHooks => {
            InstanceRole::Administrator
        }
    }
}

/// Returns the token scope that an ability requires; the scope `api` includes all others.
pub fn required_scope(ability: Ability) -> Scope {
    match ability {
        // A token must not prevent what is possible without one, so every scope includes `ViewPages`.
        Ability::ReadOwnAccount | Ability::ReadUsers | Ability::ViewPages => Scope::ReadUser,
        Ability::ChangeOwnAccount
        | Ability::AdministerUsers
        | Ability::ReadVersion
        | Ability::ManageServer
        | Ability::Browse
        | Ability::Create
        | Ability::AdministerProjects
        | Ability::AdministerHooks => Scope::Api,
    }
}

/// An action on a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectAbility {
    /// Download an uploaded file.
    DownloadUpload,
    /// See the pages of the project.
    ViewProject,
    /// Read the project and its members.
    ReadProject,
    /// Read the repository.
    DownloadCode,
    /// Write to the repository.
    PushCode,
    /// Protect and unprotect branches.
    ProtectBranches,
    /// See the pages of pipelines.
    ViewPipelines,
    /// Read pipelines.
    ReadPipelines,
    /// See the pages of jobs with their traces and artifacts.
    ViewJobs,
    /// Read jobs with their traces and artifacts.
    ReadJobs,
    /// Start, retry, cancel and erase pipelines and jobs.
    RunPipelines,
    /// Manage runners, variables and triggers.
    AdministerCi,
    /// Read commit statuses.
    ReadStatuses,
    /// Set commit statuses.
    SetStatus,
    /// Comment on commits.
    CommentOnCommits,
    /// Manage webhooks.
    AdministerHooks,
    /// Manage deploy keys.
    AdministerDeployKeys,
    /// See the pages of issues that are not confidential.
    ViewIssues,
    /// Read issues that are not confidential.
    ReadIssues,
    /// Read confidential issues.
    ReadConfidentialIssues,
    /// Create issues and notes.
    WriteIssues,
    /// Change issues of other users, and set assignees and due dates.
    AdministerIssues,
    /// Remove issues.
    RemoveIssues,
    /// Change and remove notes of other users.
    AdministerNotes,
    /// Create, change and remove labels.
    AdministerLabels,
    /// Create and move lists of the board.
    AdministerBoards,
    /// Remove lists from the board.
    RemoveBoardLists,
    /// Create and change milestones.
    AdministerMilestones,
    /// Star the project.
    StarProject,
    /// Upload a file.
    UploadFile,
    /// Change the path, the description and the feature switches.
    ChangeProject,
    /// Read the registration token for runners.
    ReadRunnersToken,
    /// Add, change and remove members.
    AdministerMembers,
    /// Share the project with groups and end such shares.
    ShareProject,
    /// Change the name and the visibility.
    ChangeNameOrVisibility,
    /// Archive and unarchive the project.
    ArchiveProject,
    /// Remove the link to the fork source.
    UnlinkFork,
    /// Remove the project.
    RemoveProject,
}

/// An action on a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupAbility {
    /// See the pages of the group.
    ViewGroup,
    /// Read the group, its members, and those of its projects that the actor may see.
    ReadGroup,
    /// Create projects in the group.
    CreateProjects,
    /// Change the group.
    ChangeGroup,
    /// Add, change and remove members.
    AdministerMembers,
    /// Remove the group with all its projects.
    RemoveGroup,
}

/// What an ability requires of an actor who can see the project or group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// Nothing else.
    Visible,
    /// To be signed in.
    SignedIn,
    /// The project is visible without membership, or the actor has at least this role.
    VisibleOrRole(Role),
    /// To be signed in, and the project is visible without membership or the actor has at least this role.
    SignedInVisibleOrRole(Role),
    /// At least this role.
    Role(Role),
}

impl ProjectAbility {
    /// All abilities, for printing the table.
    pub const ALL: [Self; 38] = [
        Self::DownloadUpload,
        Self::ViewProject,
        Self::ReadProject,
        Self::DownloadCode,
        Self::PushCode,
        Self::ProtectBranches,
        Self::ViewPipelines,
        Self::ReadPipelines,
        Self::ViewJobs,
        Self::ReadJobs,
        Self::RunPipelines,
        Self::AdministerCi,
        Self::ReadStatuses,
        Self::SetStatus,
        Self::CommentOnCommits,
        Self::AdministerHooks,
        Self::AdministerDeployKeys,
        Self::ViewIssues,
        Self::ReadIssues,
        Self::ReadConfidentialIssues,
        Self::WriteIssues,
        Self::AdministerIssues,
        Self::RemoveIssues,
        Self::AdministerNotes,
        Self::AdministerLabels,
        Self::AdministerBoards,
        Self::RemoveBoardLists,
        Self::AdministerMilestones,
        Self::StarProject,
        Self::UploadFile,
        Self::ChangeProject,
        Self::ReadRunnersToken,
        Self::AdministerMembers,
        Self::ShareProject,
        Self::ChangeNameOrVisibility,
        Self::ArchiveProject,
        Self::UnlinkFork,
        Self::RemoveProject,
    ];

    /// Returns the requirement of each ability: the permission table of projects.
    pub fn requirement(self) -> Requirement {
        match self {
            Self::DownloadUpload | Self::ViewProject | Self::ViewIssues => Requirement::Visible,
            Self::DownloadCode | Self::ViewPipelines | Self::ViewJobs => Requirement::VisibleOrRole(Role::Reporter),
            Self::ReadPipelines | Self::ReadJobs | Self::ReadStatuses | Self::CommentOnCommits => {
                Requirement::SignedInVisibleOrRole(Role::Reporter)
            }
            Self::PushCode | Self::RunPipelines | Self::SetStatus => Requirement::Role(Role::Developer),
            Self::ReadProject | Self::StarProject | Self::UploadFile | Self::ReadIssues | Self::WriteIssues => {
                Requirement::SignedIn
            }
            Self::ReadConfidentialIssues | Self::AdministerIssues | Self::AdministerLabels | Self::AdministerBoards => {
                Requirement::Role(Role::Reporter)
            }
            Self::ProtectBranches
            | Self::AdministerCi
            | Self::AdministerNotes
            | Self::AdministerMilestones
            | Self::AdministerDeployKeys
            | Self::AdministerHooks
            | Self::ChangeProject
            | Self::ReadRunnersToken
            | Self::AdministerMembers
            | Self::ShareProject => Requirement::Role(Role::Master),
            Self::ChangeNameOrVisibility
            | Self::ArchiveProject
            | Self::UnlinkFork
            | Self::RemoveProject
            | Self::RemoveIssues
            | Self::RemoveBoardLists => Requirement::Role(Role::Owner),
        }
    }

    /// Returns whether the ability is disabled in a project without issues.
    fn needs_issues(self) -> bool {
        matches!(
            self,
            Self::ViewIssues
                | Self::ReadIssues
                | Self::ReadConfidentialIssues
                | Self::WriteIssues
                | Self::AdministerIssues
                | Self::RemoveIssues
                | Self::AdministerNotes
        )
    }

    /// Returns whether the ability is disabled in a project without CI.
    fn needs_ci(self) -> bool {
        matches!(
            self,
            Self::ViewPipelines
                | Self::ReadPipelines
                | Self::ViewJobs
                | Self::ReadJobs
                | Self::RunPipelines
                | Self::AdministerCi
        )
    }

    /// Returns whether the ability is disabled in an archived project.
    fn is_disabled_by_archiving(self) -> bool {
        matches!(self, Self::PushCode | Self::RunPipelines)
    }
}

impl GroupAbility {
    /// All abilities, for printing the table.
    pub const ALL: [Self; 6] = [
        Self::ViewGroup,
        Self::ReadGroup,
        Self::CreateProjects,
        Self::ChangeGroup,
        Self::AdministerMembers,
        Self::RemoveGroup,
    ];

    /// Returns the requirement of each ability: the permission table of groups.
    pub fn requirement(self) -> Requirement {
        match self {
            Self::ViewGroup => Requirement::Visible,
            Self::ReadGroup => Requirement::SignedIn,
            Self::CreateProjects => Requirement::Role(Role::Master),
            Self::ChangeGroup | Self::AdministerMembers | Self::RemoveGroup => Requirement::Role(Role::Owner),
        }
    }

    /// Returns whether a signed-in user with a role in a group has the ability there.
    pub fn is_granted_to(self, role: Option<Role>) -> bool {
        self.requirement().is_met_by(role, false)
    }
}

impl Requirement {
    /// Returns whether an actor with this role, or none, meets the requirement.
    fn is_met_by(self, role: Option<Role>, visible_without_membership: bool) -> bool {
        match self {
            Self::Visible | Self::SignedIn => true,
            Self::VisibleOrRole(required) | Self::SignedInVisibleOrRole(required) => {
                visible_without_membership || role >= Some(required)
            }
            Self::Role(required) => role >= Some(required),
        }
    }
}

/// A reference to a project.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ProjectRef {
    /// By id.
    Id(ProjectId),
    /// By full path.
    Path(String),
}

/// A reference to a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupRef {
    /// By id.
    Id(NamespaceId),
    /// By full path.
    Path(String),
}

impl Actor {
    /// Returns the role of the actor in the instance.
    pub fn instance_role(&self) -> InstanceRole {
        match self {
            // Deploy keys and jobs only have access to projects.
            Self::Anonymous | Self::DeployKey { .. } | Self::Job { .. } => InstanceRole::Anonymous,
            Self::User { user, .. } if user.admin => InstanceRole::Administrator,
            Self::User { .. } => InstanceRole::User,
            Self::System => InstanceRole::Administrator,
        }
    }

    /// Checks that the actor has an ability.
    ///
    /// A token without the scope is treated like a missing token, as clients of GitLab 8.14 expect.
    pub fn authorize(&self, ability: Ability) -> Result<()> {
        let required = required_role(ability);
        self.check_scope(required_scope(ability))?;
        match self.instance_role() {
            role if role >= required => Ok(()),
            InstanceRole::Anonymous => Err(Error::Unauthenticated),
            InstanceRole::User | InstanceRole::Administrator => Err(Error::Forbidden(None)),
        }
    }

    fn check_scope(&self, required: Scope) -> Result<()> {
        match self {
            Self::User { scopes, .. } if !scopes.contains(&Scope::Api) && !scopes.contains(&required) => {
                Err(Error::Unauthenticated)
            }
            _ => Ok(()),
        }
    }

    /// Checks that the actor is signed in, if the requirement demands it.
    fn check_signed_in(&self, requirement: Requirement) -> Result<()> {
        match requirement {
            Requirement::Visible | Requirement::VisibleOrRole(_) => Ok(()),
            Requirement::SignedIn | Requirement::SignedInVisibleOrRole(_) | Requirement::Role(_) => match self {
                Self::Anonymous => Err(Error::Unauthenticated),
                // Deploy keys and jobs are not users, but may have a role in the project.
                Self::DeployKey { .. } | Self::Job { .. } if requirement == Requirement::SignedIn => {
                    Err(Error::Unauthenticated)
                }
                Self::DeployKey { .. } | Self::Job { .. } => Ok(()),
                Self::User { .. } | Self::System => self.check_scope(Scope::Api),
            },
        }
    }

    /// Checks that the actor has a further ability in a project that was found before.
    pub fn authorize_project(&self, project: &Project, ability: ProjectAbility) -> Result<()> {
        if self.has_deploy_key_for(project.id) && ability == ProjectAbility::DownloadCode {
            return Ok(());
        }
        if matches!(self, Self::DeployKey { .. }) && ability == ProjectAbility::PushCode {
            return Err(Error::forbidden("Deploy keys are not allowed to push code."));
        }
        if let Self::Job { project: own, .. } = self {
            // Every script of the job can read its token, so the token permits very little.
            let readable = match ability {
                ProjectAbility::DownloadCode => true,
                ProjectAbility::ReadJobs => project.id == *own,
                _ => false,
            };
            if !readable {
                return Err(Error::forbidden("Job tokens can only read code."));
            }
        }
        let visible_without_membership = project.visibility >= self.visible_from()
            && (project.features.public_builds
                || !matches!(ability, ProjectAbility::ReadJobs | ProjectAbility::ViewJobs));
        let disabled = ability.is_disabled_by_archiving() && project.archived
            || ability.needs_issues() && !project.features.issues_enabled
            || ability.needs_ci() && !project.features.builds_enabled;
        let allowed =
            ability.requirement().is_met_by(self.project_role(project), visible_without_membership) && !disabled;
        if allowed { Ok(()) } else { Err(Error::Forbidden(None)) }
    }

    /// Returns the role of the actor in a project.
    pub(crate) fn project_role(&self, project: &Project) -> Option<Role> {
        match self {
            // A token without the scope has no rights, even if its owner is an administrator.
            _ if self.check_scope(Scope::Api).is_err() => None,
            actor if actor.is_admin() => Some(Role::Owner),
            actor if actor.has_job_access_to(project.id) => Some(Role::Reporter),
            _ => project.access.role(),
        }
    }

    /// Returns the lowest visibility level that the actor sees without membership.
    fn visible_from(&self) -> Visibility {
        match self {
            Self::Anonymous | Self::DeployKey { .. } | Self::Job { user: None, .. } => Visibility::Public,
            Self::User { user, .. } | Self::Job { user: Some(user), .. } if user.external => Visibility::Public,
            Self::User { .. } | Self::Job { .. } | Self::System => Visibility::Internal,
        }
    }
}

impl ReadTx<'_> {
    /// Checks that the actor has an ability in the instance. Every use case starts with this, [`Self::project`] or
    /// [`Self::group`].
    pub fn authorize(&self, ability: Ability) -> Result<()> {
        self.actor().authorize(ability)
    }

    /// Checks an ability and returns the id of the signed-in user.
    pub fn current_user_id(&self, ability: Ability) -> Result<UserId> {
        self.authorize(ability)?;
        self.user_id()
    }

    /// Returns the id of the signed-in user, for use after a check of an ability that requires one.
    pub fn user_id(&self) -> Result<UserId> {
        self.actor().user().map(|user| user.id).ok_or(Error::Unauthenticated)
    }

    /// Checks an ability and takes the signed-in user out of the transaction, for use cases that need no actor afterwards.
    pub fn take_current_user(&mut self, ability: Ability) -> Result<User> {
        self.authorize(ability)?;
        match self.take_actor() {
            Actor::User { user, .. } => Ok(*user),
            Actor::Anonymous | Actor::DeployKey { .. } | Actor::Job { .. } | Actor::System => {
                Err(Error::Unauthenticated)
            }
        }
    }

    /// Returns the viewer by whose rights lists are filtered.
    pub(crate) fn viewer(&self) -> Viewer {
        let user = match self.actor() {
            // A job has the rights of the user who started it.
            Actor::Job { user, .. } => user.as_deref(),
            actor => actor.user(),
        };
        let user = user.map_or(UserId::ANONYMOUS, |user| user.id);
        Viewer { user, visible_from: self.actor().visible_from(), admin: self.actor().is_admin(), now: self.now() }
    }

    /// Returns the viewer for lists of projects; a token without the scope `api` sees public projects only.
    pub(crate) fn viewer_of_projects(&self) -> Viewer {
        if self.lacks_api_scope() {
            return Viewer { user: UserId::ANONYMOUS, visible_from: Visibility::Public, admin: false, now: self.now() };
        }
        self.viewer()
    }

    /// Returns whether the actor's token lacks the scope for projects.
    fn lacks_api_scope(&self) -> bool {
        self.actor().check_scope(Scope::Api).is_err()
    }

    /// Finds a project and checks that the actor has an ability in it; there is no other way to get a project.
    ///
    /// Fails with `NotFound` if the actor cannot see the project, and with `Forbidden` if they only lack the ability.
    pub fn project(&mut self, project: &ProjectRef, ability: ProjectAbility) -> Result<Project> {
        self.actor().check_signed_in(ability.requirement())?;
        let (lacks_scope, viewer) = (self.lacks_api_scope(), self.viewer_of_projects());
        let found = self.find_project(&viewer, project)?;
        let visible =
            |project: &Project| project.visibility == Visibility::Public || (!lacks_scope && self.can_see(project));
        let project = found.filter(visible).ok_or(Error::not_found("Project"))?;
        self.authorize_project(&project, ability)?;
        Ok(project)
    }

    /// Finds a project with the roles of a viewer, who may be unable to see it.
    fn find_project(&mut self, viewer: &Viewer, project: &ProjectRef) -> Result<Option<Project>> {
        let key = match project {
            ProjectRef::Id(id) => ProjectKey::Id(*id),
            ProjectRef::Path(path) => match path.rsplit_once('/') {
                Some((namespace, path)) => ProjectKey::Path(namespace, path),
                None => return Ok(None),
            },
        };
        let (db, lookups) = self.db_and_lookups();
        let mut find = || Ok(store::projects::find(db, viewer, key)?);
        match lookups {
            Some(lookups) => lookups.project(&(viewer.user, viewer.admin, project.clone()), find),
            None => find(),
        }
    }

    /// As [`Self::project`], and validates the parameters of the request after the check for a signed-in user: the contract's
    /// sections on projects and groups require 401 before 400, and 400 before 404 and 403.
    pub fn project_with<P>(
        &mut self,
        project: &ProjectRef,
        ability: ProjectAbility,
        params: impl FnOnce() -> Result<P>,
    ) -> Result<(Project, P)> {
        self.actor().check_signed_in(ability.requirement())?;
        let params = params()?;
        Ok((self.project(project, ability)?, params))
    }

    /// As [`Self::group`], and validates the parameters of the request as [`Self::project_with`] does.
    pub fn group_with<P>(
        &mut self,
        group: &GroupRef,
        ability: GroupAbility,
        params: impl FnOnce() -> Result<P>,
    ) -> Result<(Namespace, Option<Role>, P)> {
        self.actor().check_signed_in(ability.requirement())?;
        let params = params()?;
        let (group, role) = self.group(group, ability)?;
        Ok((group, role, params))
    }

    /// As [`Self::project`], with the rights of the server, for a client that was authenticated by the token of a runner or
    /// a job: checks that the project exists and that the ability is not disabled in it.
    pub(crate) fn project_as_system(&mut self, project: &ProjectRef, ability: ProjectAbility) -> Result<Project> {
        let caller_actor = std::mem::replace(&mut self.actor, Actor::System);
        let result = self.project(project, ability);
        self.actor = caller_actor;
        result
    }

    /// Returns whether a user currently has an ability in a project; blocked and removed users have none.
    pub(crate) fn user_can(&mut self, user: UserId, project: ProjectId, ability: ProjectAbility) -> Result<bool> {
        let user = caller::authenticate_user_id(self.db(), user)?;
        let caller_actor = std::mem::replace(&mut self.actor, user);
        let result = self.project(&ProjectRef::Id(project), ability);
        self.actor = caller_actor;
        match result {
            Ok(_) => Ok(true),
            Err(Error::NotFound(_) | Error::Forbidden(_) | Error::Unauthenticated) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// As [`Self::project`], with the current rights of a job token.
    pub(crate) fn project_as_job(
        &mut self,
        token: &Digest,
        project: &ProjectRef,
        ability: ProjectAbility,
    ) -> Result<Project> {
        let job = caller::authenticate_job_token(self.db(), token)?;
        let caller_actor = std::mem::replace(&mut self.actor, job);
        let result = self.project(project, ability);
        self.actor = caller_actor;
        result.map_err(|error| match error {
            // The job knows that its own project exists.
            Error::NotFound(_) | Error::Unauthenticated => Error::Forbidden(None),
            other => other,
        })
    }

    /// See [`Actor::authorize_project`].
    pub fn authorize_project(&self, project: &Project, ability: ProjectAbility) -> Result<()> {
        self.actor().authorize_project(project, ability)
    }

    /// Returns whether the actor has a further ability in a project that was found before.
    pub(crate) fn can(&self, project: &Project, ability: ProjectAbility) -> bool {
        self.authorize_project(project, ability).is_ok()
    }

    /// Returns which issues of a project the actor may see.
    pub(crate) fn issue_visibility(&self, project: &Project) -> IssueVisibility {
        let user = self.actor().user().map_or(UserId::ANONYMOUS, |user| user.id);
        IssueVisibility { user, confidential: self.can(project, ProjectAbility::ReadConfidentialIssues) }
    }

    /// Returns whether another user is active and can see a project.
    pub(crate) fn is_visible_to(&mut self, project: &Project, user: UserId) -> Result<bool> {
        let found = store::users::by_id(self.db(), user)?.filter(|user| user.state == UserState::Active);
        let Some(found) = found else { return Ok(false) };
        let other = Actor::User { user: Box::new(found), scopes: vec![Scope::Api] };
        if project.visibility >= other.visible_from() || other.is_admin() {
            return Ok(true);
        }
        let viewer = Viewer { user, visible_from: other.visible_from(), admin: false, now: self.now() };
        let found = store::projects::find(self.db(), &viewer, ProjectKey::Id(project.id))?;
        Ok(found.is_some_and(|found| found.access.role().is_some()))
    }

    /// See [`Actor::project_role`].
    pub(crate) fn project_role(&self, project: &Project) -> Option<Role> {
        self.actor().project_role(project)
    }

    /// Returns whether the actor can see a project.
    fn can_see(&self, project: &Project) -> bool {
        let actor = self.actor();
        let is_member = self.project_role(project).is_some() || actor.has_deploy_key_for(project.id);
        is_member || project.visibility >= actor.visible_from()
    }

    /// Finds a group and checks that the actor has an ability in it, as [`Self::project`] does; also returns their role.
    pub fn group(&mut self, group: &GroupRef, ability: GroupAbility) -> Result<(Namespace, Option<Role>)> {
        self.actor().check_signed_in(ability.requirement())?;
        let found = match group {
            GroupRef::Id(id) => store::namespaces::by_id(self.db(), *id)?,
            GroupRef::Path(path) => store::namespaces::by_full_path(self.db(), path)?,
        };
        let group = found.filter(|found| found.kind == NamespaceKind::Group).ok_or(Error::not_found("Group"))?;
        let role = self.namespace_role(&group)?;
        let visible = role.is_some() || group.visibility >= self.actor().visible_from() || {
            // A private group is visible to those who can see one of its projects.
            let viewer = self.viewer();
            store::groups::has_visible_project(self.db(), &viewer, group.id)?
        };
        match (visible, ability.requirement().is_met_by(role, false)) {
            (false, _) => Err(Error::not_found("Group")),
            (true, false) => Err(Error::Forbidden(None)),
            (true, true) => Ok((group, role)),
        }
    }

    /// Returns the role of the actor in a namespace.
    fn namespace_role(&mut self, namespace: &Namespace) -> Result<Option<Role>> {
        if self.actor().is_admin() {
            return Ok(Some(Role::Owner));
        }
        let viewer = self.viewer();
        Ok(match namespace.kind {
            NamespaceKind::User => (namespace.owner_id == Some(viewer.user)).then_some(Role::Owner),
            NamespaceKind::Group => store::groups::role_in(self.db(), &viewer, namespace.id)?,
        })
    }

    /// Returns whether a user, not necessarily the actor, may create projects in a namespace.
    pub(crate) fn user_can_create_in(&mut self, namespace: &Namespace, user: &User) -> Result<bool> {
        if user.admin {
            return Ok(true);
        }
        let viewer = Viewer { user: user.id, ..self.viewer() };
        Ok(match namespace.kind {
            NamespaceKind::User => namespace.owner_id == Some(user.id),
            NamespaceKind::Group => {
                let role = store::groups::role_in(self.db(), &viewer, namespace.id)?;
                GroupAbility::CreateProjects.requirement().is_met_by(role, false)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_permission_table() {
        let rows: Vec<String> = Ability::ALL
            .iter()
            .map(|ability| {
                let (role, scope) = (required_role(*ability), required_scope(*ability).as_str());
                format!("{:<20}{:<15}{scope}", format!("{ability:?}"), format!("{role:?}"))
            })
            .collect();
        assert_eq!(
            rows,
            [
                "ReadOwnAccount      User           read_user",
                "ChangeOwnAccount    User           api",
                "ReadUsers           User           read_user",
                "AdministerUsers     Administrator  api",
                "ReadVersion         User           api",
                "ManageServer        Administrator  api",
                "ViewPages           Anonymous      read_user",
                "Browse              User           api",
                "Create              User           api",
                "AdministerProjects  Administrator  api",
                "AdministerHooks     Administrator  api",
            ]
        );
    }

    /// Prints which abilities a non-member and each role have in a project or group that they can see. Non-members are
    /// evaluated as in a public project, and roles as in a private one.
    fn table<A: std::fmt::Debug + Copy>(abilities: &[A], requirement: impl Fn(A) -> Requirement) -> String {
        let mut table = format!("{:<22}{:>9}{:>11}", "", "anonymous", "non-member");
        for role in Role::ALL {
            table += &format!("{:>10}", format!("{role:?}").to_lowercase());
        }
        for ability in abilities {
            let requirement = requirement(*ability);
            let yes = |allowed: bool| if allowed { "yes" } else { "-" };
            let non_member = requirement.is_met_by(None, true);
            let anonymous = non_member && Actor::Anonymous.check_signed_in(requirement).is_ok();
            table += &format!("\n{:<22}{:>9}{:>11}", format!("{ability:?}"), yes(anonymous), yes(non_member));
            for role in Role::ALL {
                table += &format!("{:>10}", yes(requirement.is_met_by(Some(role), false)));
            }
        }
        table
    }

    #[test]
    fn project_permission_table() {
        assert_eq!(
            table(&ProjectAbility::ALL, ProjectAbility::requirement),
            "                      anonymous non-member     guest  reporter developer    master     owner
DownloadUpload              yes        yes       yes       yes       yes       yes       yes
ViewProject                 yes        yes       yes       yes       yes       yes       yes
ReadProject                   -        yes       yes       yes       yes       yes       yes
DownloadCode                yes        yes         -       yes       yes       yes       yes
PushCode                      -          -         -         -       yes       yes       yes
ProtectBranches               -          -         -         -         -       yes       yes
ViewPipelines               yes        yes         -       yes       yes       yes       yes
ReadPipelines                 -        yes         -       yes       yes       yes       yes
ViewJobs                    yes        yes         -       yes       yes       yes       yes
ReadJobs                      -        yes         -       yes       yes       yes       yes
RunPipelines                  -          -         -         -       yes       yes       yes
AdministerCi                  -          -         -         -         -       yes       yes
ReadStatuses                  -        yes         -       yes       yes       yes       yes
SetStatus                     -          -         -         -       yes       yes       yes
CommentOnCommits              -        yes         -       yes       yes       yes       yes
AdministerHooks               -          -         -         -         -       yes       yes
AdministerDeployKeys          -          -         -         -         -       yes       yes
ViewIssues                  yes        yes       yes       yes       yes       yes       yes
ReadIssues                    -        yes       yes       yes       yes       yes       yes
ReadConfidentialIssues        -          -         -       yes       yes       yes       yes
WriteIssues                   -        yes       yes       yes       yes       yes       yes
AdministerIssues              -          -         -       yes       yes       yes       yes
RemoveIssues                  -          -         -         -         -         -       yes
AdministerNotes               -          -         -         -         -       yes       yes
AdministerLabels              -          -         -       yes       yes       yes       yes
AdministerBoards              -          -         -       yes       yes       yes       yes
RemoveBoardLists              -          -         -         -         -         -       yes
AdministerMilestones          -          -         -         -         -       yes       yes
StarProject                   -        yes       yes       yes       yes       yes       yes
UploadFile                    -        yes       yes       yes       yes       yes       yes
ChangeProject                 -          -         -         -         -       yes       yes
ReadRunnersToken              -          -         -         -         -       yes       yes
AdministerMembers             -          -         -         -         -       yes       yes
ShareProject                  -          -         -         -         -       yes       yes
ChangeNameOrVisibility        -          -         -         -         -         -       yes
ArchiveProject                -          -         -         -         -         -       yes
UnlinkFork                    -          -         -         -         -         -       yes
RemoveProject                 -          -         -         -         -         -       yes"
        );
    }

    #[test]
    fn group_permission_table() {
        assert_eq!(
            table(&GroupAbility::ALL, GroupAbility::requirement),
            "                      anonymous non-member     guest  reporter developer    master     owner
ViewGroup                   yes        yes       yes       yes       yes       yes       yes
ReadGroup                     -        yes       yes       yes       yes       yes       yes
CreateProjects                -          -         -         -         -       yes       yes
ChangeGroup                   -          -         -         -         -         -       yes
AdministerMembers             -          -         -         -         -         -       yes
RemoveGroup                   -          -         -         -         -         -       yes"
        );
    }
}
