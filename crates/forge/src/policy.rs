//! Who may do what, as tables. Lists apply the same rules in SQL (`store::Viewer`).

use model::{Namespace, NamespaceKind, Project, Role, Scope, User, UserState, Visibility, tokens::Digest};
use store::{Sight, Viewer, projects::Key};

use crate::{Actor, Error, ReadTx, Result, caller};

/// Something one can do to the instance as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// See one's own account.
    ReadOwnAccount,
    /// Change one's own profile, password, keys, addresses and tokens.
    ChangeOwnAccount,
    /// See other users as users see each other.
    ReadUsers,
    /// Create, change, block and remove users, see their keys and addresses.
    AdministerUsers,
    /// Ask which version this is.
    ReadVersion,
    /// See how the service is doing, and steer its background work.
    Operate,
    /// Look for groups, projects and namespaces; what is found is another question.
    Browse,
    /// Create projects and groups; where and how many is another question.
    Create,
    /// See every project, create them for others, move them between namespaces.
    AdministerProjects,
    /// Say who is told what happens in the instance.
    AdministerHooks,
}

/// How close somebody stands to the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Not signed in.
    Anonymous,
    /// Signed in.
    User,
    /// Runs the instance.
    Administrator,
}

impl Ability {
    /// All abilities, for whoever prints the table.
    pub const ALL: [Self; 10] = [
        Self::ReadOwnAccount,
        Self::ChangeOwnAccount,
        Self::ReadUsers,
        Self::AdministerUsers,
        Self::ReadVersion,
        Self::Operate,
        Self::Browse,
        Self::Create,
        Self::AdministerProjects,
        Self::AdministerHooks,
    ];
}

/// The least standing that grants an ability.
pub fn least_standing(ability: Ability) -> Standing {
    match ability {
        Ability::ReadOwnAccount
        | Ability::ChangeOwnAccount
        | Ability::ReadUsers
        | Ability::ReadVersion
        | Ability::Browse
        | Ability::Create => Standing::User,
        Ability::AdministerUsers | Ability::Operate | Ability::AdministerProjects | Ability::AdministerHooks => {
            Standing::Administrator
        }
    }
}

/// The least scope that a token needs for an ability; `api` opens everything.
pub fn least_scope(ability: Ability) -> Scope {
    match ability {
        Ability::ReadOwnAccount | Ability::ReadUsers => Scope::ReadUser,
        Ability::ChangeOwnAccount
        | Ability::AdministerUsers
        | Ability::ReadVersion
        | Ability::Operate
        | Ability::Browse
        | Ability::Create
        | Ability::AdministerProjects
        | Ability::AdministerHooks => Scope::Api,
    }
}

/// Something one can do to a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectAbility {
    /// Fetch a file that was uploaded to it.
    DownloadUpload,
    /// See it and its members.
    ReadProject,
    /// Read its repository.
    DownloadCode,
    /// Write to its repository.
    PushCode,
    /// Say which branches not everybody may change.
    ProtectBranches,
    /// See its pipelines.
    ReadPipelines,
    /// See its builds with what they say and leave behind.
    ReadBuilds,
    /// Start, retry, cancel and erase pipelines and builds.
    RunPipelines,
    /// Say with which runners, variables and triggers it builds.
    AdministerBuilds,
    /// See what others found out about its commits.
    ReadStatuses,
    /// Say what one found out about its commits.
    SetStatus,
    /// Comment on its commits.
    CommentOnCommits,
    /// Say who is told what happens in it.
    AdministerHooks,
    /// Say which keys open it to machines.
    AdministerDeployKeys,
    /// See its issues, apart from those that only some see.
    ReadIssues,
    /// See the issues that only some see.
    ReadConfidentialIssues,
    /// Write issues and notes.
    WriteIssues,
    /// Change issues of others, and say who works on them and until when.
    AdministerIssues,
    /// Remove issues.
    RemoveIssues,
    /// Change and remove notes of others.
    AdministerNotes,
    /// Make, change and remove labels.
    AdministerLabels,
    /// Arrange its board.
    AdministerBoards,
    /// Remove lists from its board.
    RemoveBoardLists,
    /// Make and change milestones.
    AdministerMilestones,
    /// Star it.
    StarProject,
    /// Upload a file to it.
    UploadFile,
    /// Change its path, description and switches.
    ChangeProject,
    /// See the token with which runners join it.
    ReadRunnersToken,
    /// Add, change and remove members.
    AdministerMembers,
    /// Open it to groups and close it again.
    ShareProject,
    /// Change its name and how far it can be seen.
    PresentProject,
    /// Put it away and take it out again.
    ArchiveProject,
    /// Forget from where it was forked.
    UnlinkFork,
    /// Remove it.
    RemoveProject,
}

/// Something one can do to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupAbility {
    /// See it, its members, and those of its projects that one sees.
    ReadGroup,
    /// Create projects in it.
    CreateProjects,
    /// Change it.
    ChangeGroup,
    /// Add, change and remove members.
    AdministerMembers,
    /// Remove it with all its projects.
    RemoveGroup,
}

/// What it takes to do something to a project or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Least {
    /// To see it.
    Sight,
    /// To see it and be signed in.
    SignedIn,
    /// To see it without belonging to it, or to be at least this to it.
    OpenOrRole(Role),
    /// To be at least this to it.
    Role(Role),
}

impl ProjectAbility {
    /// All abilities, for whoever prints the table.
    pub const ALL: [Self; 34] = [
        Self::DownloadUpload,
        Self::ReadProject,
        Self::DownloadCode,
        Self::PushCode,
        Self::ProtectBranches,
        Self::ReadPipelines,
        Self::ReadBuilds,
        Self::RunPipelines,
        Self::AdministerBuilds,
        Self::ReadStatuses,
        Self::SetStatus,
        Self::CommentOnCommits,
        Self::AdministerHooks,
        Self::AdministerDeployKeys,
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
        Self::PresentProject,
        Self::ArchiveProject,
        Self::UnlinkFork,
        Self::RemoveProject,
    ];

    /// The table for projects.
    pub fn least(self) -> Least {
        match self {
            Self::DownloadUpload => Least::Sight,
            Self::DownloadCode
            | Self::ReadPipelines
            | Self::ReadBuilds
            | Self::ReadStatuses
            | Self::CommentOnCommits => Least::OpenOrRole(Role::Reporter),
            Self::PushCode | Self::RunPipelines | Self::SetStatus => Least::Role(Role::Developer),
            Self::ReadProject | Self::StarProject | Self::UploadFile | Self::ReadIssues | Self::WriteIssues => {
                Least::SignedIn
            }
            Self::ReadConfidentialIssues | Self::AdministerIssues | Self::AdministerLabels | Self::AdministerBoards => {
                Least::Role(Role::Reporter)
            }
            Self::ProtectBranches
            | Self::AdministerBuilds
            | Self::AdministerNotes
            | Self::AdministerMilestones
            | Self::AdministerDeployKeys
            | Self::AdministerHooks
            | Self::ChangeProject
            | Self::ReadRunnersToken
            | Self::AdministerMembers
            | Self::ShareProject => Least::Role(Role::Master),
            Self::PresentProject
            | Self::ArchiveProject
            | Self::UnlinkFork
            | Self::RemoveProject
            | Self::RemoveIssues
            | Self::RemoveBoardLists => Least::Role(Role::Owner),
        }
    }

    /// Whether nobody can do this to a project whose issues are switched off.
    fn needs_issues(self) -> bool {
        matches!(
            self,
            Self::ReadIssues
                | Self::ReadConfidentialIssues
                | Self::WriteIssues
                | Self::AdministerIssues
                | Self::RemoveIssues
                | Self::AdministerNotes
        )
    }

    /// Whether nobody can do this to a project that builds nothing.
    fn needs_builds(self) -> bool {
        matches!(self, Self::ReadPipelines | Self::ReadBuilds | Self::RunPipelines | Self::AdministerBuilds)
    }

    /// Whether nobody can do this to a project that is put away.
    fn rests_in_archive(self) -> bool {
        matches!(self, Self::PushCode | Self::RunPipelines)
    }
}

impl GroupAbility {
    /// All abilities, for whoever prints the table.
    pub const ALL: [Self; 5] =
        [Self::ReadGroup, Self::CreateProjects, Self::ChangeGroup, Self::AdministerMembers, Self::RemoveGroup];

    /// The table for groups.
    pub fn least(self) -> Least {
        match self {
            Self::ReadGroup => Least::SignedIn,
            Self::CreateProjects => Least::Role(Role::Master),
            Self::ChangeGroup | Self::AdministerMembers | Self::RemoveGroup => Least::Role(Role::Owner),
        }
    }
}

impl Least {
    /// Whether a role, or none, is enough for somebody who sees the thing, which may be open to those without a role.
    fn is_met_by(self, role: Option<Role>, open: bool) -> bool {
        match self {
            Self::Sight | Self::SignedIn => true,
            Self::OpenOrRole(least) => open || role >= Some(least),
            Self::Role(least) => role >= Some(least),
        }
    }
}

/// Which project is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProjectRef {
    /// By number.
    Id(i64),
    /// By its full path.
    Path(String),
}

/// Which group is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupRef {
    /// By number.
    Id(i64),
    /// By its full path.
    Path(String),
}

impl Actor {
    /// How close this actor stands to the instance.
    pub fn standing(&self) -> Standing {
        match self {
            // A key or a job opens projects and nothing of the instance.
            Self::Anonymous | Self::DeployKey { .. } | Self::Job { .. } => Standing::Anonymous,
            Self::User { user, .. } if user.admin => Standing::Administrator,
            Self::User { .. } => Standing::User,
            Self::System => Standing::Administrator,
        }
    }

    /// Whether this actor may do this.
    ///
    /// A token without the scope counts as no token at all, as clients of the original expect.
    pub fn check(&self, ability: Ability) -> Result<()> {
        let least = least_standing(ability);
        self.check_scope(least_scope(ability))?;
        match self.standing() {
            standing if standing >= least => Ok(()),
            Standing::Anonymous => Err(Error::Unauthenticated),
            Standing::User | Standing::Administrator => Err(Error::Forbidden(None)),
        }
    }

    fn check_scope(&self, least: Scope) -> Result<()> {
        match self {
            Self::User { scopes, .. } if !scopes.contains(&Scope::Api) && !scopes.contains(&least) => {
                Err(Error::Unauthenticated)
            }
            _ => Ok(()),
        }
    }

    /// Whether this actor can try at all: whoever has to be signed in, is.
    fn check_entry(&self, least: Least) -> Result<()> {
        match (self, least) {
            (_, Least::Sight | Least::OpenOrRole(_)) | (Self::DeployKey { .. } | Self::Job { .. }, Least::Role(_)) => {
                Ok(())
            }
            (Self::Anonymous, Least::SignedIn | Least::Role(_))
            | (Self::DeployKey { .. } | Self::Job { .. }, Least::SignedIn) => Err(Error::Unauthenticated),
            (_, Least::SignedIn | Least::Role(_)) => self.check_scope(Scope::Api),
        }
    }

    /// What is at least this visible, the actor sees without belonging to it.
    fn open_from(&self) -> Visibility {
        match self {
            Self::Anonymous | Self::DeployKey { .. } | Self::Job { user: None, .. } => Visibility::Public,
            Self::User { user, .. } | Self::Job { user: Some(user), .. } if user.external => Visibility::Public,
            Self::User { .. } | Self::Job { .. } | Self::System => Visibility::Internal,
        }
    }
}

impl ReadTx<'_> {
    /// The gate to the instance: every use case begins here, or by opening a project or a group.
    pub fn may(&self, ability: Ability) -> Result<()> {
        self.actor().check(ability)
    }

    /// The gate to one's own account: answers the number of the user who is asking.
    pub fn my_id(&self, ability: Ability) -> Result<i64> {
        self.may(ability)?;
        self.actor().user().map(|user| user.id).ok_or(Error::Unauthenticated)
    }

    /// The gate to one's own account for use cases that are about nothing else: hands out the user who is asking.
    pub fn take_myself(&mut self, ability: Ability) -> Result<User> {
        self.may(ability)?;
        match self.take_actor() {
            Actor::User { user, .. } => Ok(*user),
            Actor::Anonymous | Actor::DeployKey { .. } | Actor::Job { .. } | Actor::System => {
                Err(Error::Unauthenticated)
            }
        }
    }

    /// Through whose eyes lists are seen.
    pub(crate) fn viewer(&self) -> Viewer {
        let user = match self.actor() {
            // A job reads what the one reads who started it.
            Actor::Job { user, .. } => user.as_deref(),
            actor => actor.user(),
        };
        let user = user.map_or(0, |user| user.id);
        Viewer { user, open_from: self.actor().open_from(), admin: self.actor().is_admin(), now: self.now() }
    }

    /// The same where projects are shown: what is open to everybody is so to those whose token opens nothing here, too.
    pub(crate) fn viewer_of_projects(&self) -> Viewer {
        if self.is_stranger() {
            return Viewer { user: 0, open_from: Visibility::Public, admin: false, now: self.now() };
        }
        self.viewer()
    }

    /// Whether the actor shows a token that opens no project.
    fn is_stranger(&self) -> bool {
        self.actor().check_scope(Scope::Api).is_err()
    }

    /// The gate to a project: the only way to get hold of one is to say what for.
    ///
    /// Who does not see it hears that there is none; who sees it but may not do this hears that.
    pub fn open(&mut self, project: &ProjectRef, ability: ProjectAbility) -> Result<Project> {
        self.actor().check_entry(ability.least())?;
        let (stranger, viewer) = (self.is_stranger(), self.viewer_of_projects());
        let key = match project {
            ProjectRef::Id(id) => Some(Key::Id(*id)),
            ProjectRef::Path(path) => path.rsplit_once('/').map(|(namespace, path)| Key::Path(namespace, path)),
        };
        let found = key.map(|key| store::projects::find(self.db(), &viewer, key)).transpose()?.flatten();
        let seen = |project: &Project| project.visibility == Visibility::Public || (!stranger && self.sees(project));
        let project = found.filter(seen).ok_or(Error::not_found("Project"))?;
        self.may_to(&project, ability)?;
        Ok(project)
    }

    /// The gate for what the service does on behalf of somebody who has shown the token of a runner or a job, and who has
    /// no rights of their own: the project is there, and what is to be done is not switched off.
    pub(crate) fn open_as_service(&mut self, project: &ProjectRef, ability: ProjectAbility) -> Result<Project> {
        let asking = std::mem::replace(&mut self.actor, Actor::System);
        let opened = self.open(project, ability);
        self.actor = asking;
        opened
    }

    /// Whether a user could do this to a project at this moment; no user who is blocked or removed can.
    pub(crate) fn may_user_to(&mut self, user: i64, project: i64, ability: ProjectAbility) -> Result<bool> {
        let user = caller::prove_by_id(self.db(), user)?;
        let asking = std::mem::replace(&mut self.actor, user);
        let opened = self.open(&ProjectRef::Id(project), ability);
        self.actor = asking;
        match opened {
            Ok(_) => Ok(true),
            Err(Error::NotFound(_) | Error::Forbidden(_) | Error::Unauthenticated) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The gate for a job that runs: opens a project with the rights that its token has at this moment.
    pub(crate) fn open_as_job(
        &mut self,
        token: &Digest,
        project: &ProjectRef,
        ability: ProjectAbility,
    ) -> Result<Project> {
        let job = caller::prove_by_job_token(self.db(), token)?;
        let asking = std::mem::replace(&mut self.actor, job);
        let opened = self.open(project, ability);
        self.actor = asking;
        opened.map_err(|error| match error {
            // The job knows of its own project.
            Error::NotFound(_) | Error::Unauthenticated => Error::Forbidden(None),
            other => other,
        })
    }

    /// Whether an open project may also be used for something else.
    pub fn may_to(&self, project: &Project, ability: ProjectAbility) -> Result<()> {
        let (actor, least) = (self.actor(), ability.least());
        if actor.has_key_to(project.id) && ability == ProjectAbility::DownloadCode {
            return Ok(());
        }
        if matches!(actor, Actor::DeployKey { .. }) && ability == ProjectAbility::PushCode {
            return Err(Error::forbidden("Deploy keys are not allowed to push code."));
        }
        if let Actor::Job { project: own, .. } = actor {
            // Its token is known to every script that runs in it, so it opens next to nothing.
            let readable = match ability {
                ProjectAbility::DownloadCode => true,
                ProjectAbility::ReadBuilds => project.id == *own,
                _ => false,
            };
            if !readable {
                return Err(Error::forbidden("The token of a job only reads code."));
            }
        }
        let open = project.visibility >= actor.open_from()
            && (ability != ProjectAbility::ReadBuilds || project.switches.public_builds);
        let off = ability.rests_in_archive() && project.archived
            || ability.needs_issues() && !project.switches.issues_enabled
            || ability.needs_builds() && !project.switches.builds_enabled;
        let may = least.is_met_by(self.role_to(project), open) && !off;
        if may { Ok(()) } else { Err(Error::Forbidden(None)) }
    }

    /// Whether an open project may also be used for something else, as an answer.
    pub(crate) fn can(&self, project: &Project, ability: ProjectAbility) -> bool {
        self.may_to(project, ability).is_ok()
    }

    /// Which issues of a project the actor sees.
    pub(crate) fn sight_in(&self, project: &Project) -> Sight {
        let user = self.actor().user().map_or(0, |user| user.id);
        Sight { user, confidential: self.can(project, ProjectAbility::ReadConfidentialIssues) }
    }

    /// Whether another user who may come in sees a project.
    pub(crate) fn is_seen_by(&mut self, project: &Project, user: i64) -> Result<bool> {
        let found = store::users::by_id(self.db(), user)?.filter(|user| user.state == UserState::Active);
        let Some(found) = found else { return Ok(false) };
        let other = Actor::User { user: Box::new(found), scopes: vec![Scope::Api] };
        if project.visibility >= other.open_from() || other.is_admin() {
            return Ok(true);
        }
        let viewer = Viewer { user, open_from: other.open_from(), admin: false, now: self.now() };
        let seen = store::projects::find(self.db(), &viewer, Key::Id(project.id))?;
        Ok(seen.is_some_and(|seen| seen.access.role().is_some()))
    }

    /// What the actor is to a project.
    pub(crate) fn role_to(&self, project: &Project) -> Option<Role> {
        match self.actor() {
            // A token without the scope opens nothing, whoever it belongs to.
            _ if self.is_stranger() => None,
            actor if actor.is_admin() => Some(Role::Owner),
            actor if actor.has_own_rights_to(project.id) => Some(Role::Reporter),
            _ => project.access.role(),
        }
    }

    /// Whether the actor sees a project.
    fn sees(&self, project: &Project) -> bool {
        let actor = self.actor();
        let belongs = self.role_to(project).is_some() || actor.has_key_to(project.id);
        belongs || project.visibility >= actor.open_from()
    }

    /// The gate to a group, as [`Self::open`] is to a project. Also answers what the actor is to it.
    pub fn open_group(&mut self, group: &GroupRef, ability: GroupAbility) -> Result<(Namespace, Option<Role>)> {
        self.actor().check_entry(ability.least())?;
        let found = match group {
            GroupRef::Id(id) => store::namespaces::by_id(self.db(), *id)?,
            GroupRef::Path(path) => store::namespaces::by_full_path(self.db(), path)?,
        };
        let group = found.filter(|found| found.kind == NamespaceKind::Group).ok_or(Error::not_found("Group"))?;
        let role = self.role_in(&group)?;
        let seen = role.is_some() || group.visibility >= self.actor().open_from() || {
            // A private group is no secret to those who see something in it.
            let viewer = self.viewer();
            store::groups::shows_a_project(self.db(), &viewer, group.id)?
        };
        match (seen, ability.least().is_met_by(role, false)) {
            (false, _) => Err(Error::not_found("Group")),
            (true, false) => Err(Error::Forbidden(None)),
            (true, true) => Ok((group, role)),
        }
    }

    /// What the actor is to a namespace.
    fn role_in(&mut self, namespace: &Namespace) -> Result<Option<Role>> {
        if self.actor().is_admin() {
            return Ok(Some(Role::Owner));
        }
        let viewer = self.viewer();
        Ok(match namespace.kind {
            NamespaceKind::User => (namespace.owner_id == Some(viewer.user)).then_some(Role::Owner),
            NamespaceKind::Group => store::groups::role_in(self.db(), &viewer, namespace.id)?,
        })
    }

    /// Whether a user may create projects in a namespace; the user need not be the one who is asking.
    pub(crate) fn may_create_in(&mut self, namespace: &Namespace, user: &User) -> Result<bool> {
        if user.admin {
            return Ok(true);
        }
        let viewer = Viewer { user: user.id, ..self.viewer() };
        Ok(match namespace.kind {
            NamespaceKind::User => namespace.owner_id == Some(user.id),
            NamespaceKind::Group => {
                let role = store::groups::role_in(self.db(), &viewer, namespace.id)?;
                GroupAbility::CreateProjects.least().is_met_by(role, false)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rights, as tables a person can read.
    #[test]
    fn the_table_of_rights() {
        let rows: Vec<String> = Ability::ALL
            .iter()
            .map(|ability| {
                let (standing, scope) = (least_standing(*ability), least_scope(*ability).as_str());
                format!("{:<20}{:<15}{scope}", format!("{ability:?}"), format!("{standing:?}"))
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
                "Operate             Administrator  api",
                "Browse              User           api",
                "Create              User           api",
                "AdministerProjects  Administrator  api",
                "AdministerHooks     Administrator  api",
            ]
        );
    }

    /// Who may do what to something they see: a stranger, and each role.
    fn table<A: std::fmt::Debug + Copy>(abilities: &[A], least: impl Fn(A) -> Least) -> String {
        let mut table = format!("{:<22}{:>9}{:>9}", "", "anonymous", "stranger");
        for role in Role::ALL {
            table += &format!("{:>10}", format!("{role:?}").to_lowercase());
        }
        for ability in abilities {
            let least = least(*ability);
            let yes = |may: bool| if may { "yes" } else { "-" };
            let stranger = least.is_met_by(None, true);
            let anonymous = stranger && Actor::Anonymous.check_entry(least).is_ok();
            table += &format!("\n{:<22}{:>9}{:>9}", format!("{ability:?}"), yes(anonymous), yes(stranger));
            for role in Role::ALL {
                table += &format!("{:>10}", yes(least.is_met_by(Some(role), false)));
            }
        }
        table
    }

    #[test]
    fn the_table_of_rights_in_a_project() {
        assert_eq!(
            table(&ProjectAbility::ALL, ProjectAbility::least),
            "                      anonymous stranger     guest  reporter developer    master     owner
DownloadUpload              yes      yes       yes       yes       yes       yes       yes
ReadProject                   -      yes       yes       yes       yes       yes       yes
DownloadCode                yes      yes         -       yes       yes       yes       yes
PushCode                      -        -         -         -       yes       yes       yes
ProtectBranches               -        -         -         -         -       yes       yes
ReadPipelines               yes      yes         -       yes       yes       yes       yes
ReadBuilds                  yes      yes         -       yes       yes       yes       yes
RunPipelines                  -        -         -         -       yes       yes       yes
AdministerBuilds              -        -         -         -         -       yes       yes
ReadStatuses                yes      yes         -       yes       yes       yes       yes
SetStatus                     -        -         -         -       yes       yes       yes
CommentOnCommits            yes      yes         -       yes       yes       yes       yes
AdministerHooks               -        -         -         -         -       yes       yes
AdministerDeployKeys          -        -         -         -         -       yes       yes
ReadIssues                    -      yes       yes       yes       yes       yes       yes
ReadConfidentialIssues        -        -         -       yes       yes       yes       yes
WriteIssues                   -      yes       yes       yes       yes       yes       yes
AdministerIssues              -        -         -       yes       yes       yes       yes
RemoveIssues                  -        -         -         -         -         -       yes
AdministerNotes               -        -         -         -         -       yes       yes
AdministerLabels              -        -         -       yes       yes       yes       yes
AdministerBoards              -        -         -       yes       yes       yes       yes
RemoveBoardLists              -        -         -         -         -         -       yes
AdministerMilestones          -        -         -         -         -       yes       yes
StarProject                   -      yes       yes       yes       yes       yes       yes
UploadFile                    -      yes       yes       yes       yes       yes       yes
ChangeProject                 -        -         -         -         -       yes       yes
ReadRunnersToken              -        -         -         -         -       yes       yes
AdministerMembers             -        -         -         -         -       yes       yes
ShareProject                  -        -         -         -         -       yes       yes
PresentProject                -        -         -         -         -         -       yes
ArchiveProject                -        -         -         -         -         -       yes
UnlinkFork                    -        -         -         -         -         -       yes
RemoveProject                 -        -         -         -         -         -       yes"
        );
    }

    #[test]
    fn the_table_of_rights_in_a_group() {
        assert_eq!(
            table(&GroupAbility::ALL, GroupAbility::least),
            "                      anonymous stranger     guest  reporter developer    master     owner
ReadGroup                     -      yes       yes       yes       yes       yes       yes
CreateProjects                -        -         -         -         -       yes       yes
ChangeGroup                   -        -         -         -         -         -       yes
AdministerMembers             -        -         -         -         -         -       yes
RemoveGroup                   -        -         -         -         -         -       yes"
        );
    }
}
