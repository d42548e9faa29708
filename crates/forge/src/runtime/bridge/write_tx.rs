//! Write transactions.

use model::{Commit, JobId, Namespace, Oid, Project, Role, Time, UserId};
use store::Conn;

use super::{ReadTx, Shared};
use crate::{
    Ability, Actor, GroupAbility, GroupRef, ProjectAbility, ProjectRef, Result,
    wakeups::{TraceChange, Wakeups},
};

/// A write transaction with the authenticated actor; rolled back as a whole if the use case fails.
///
/// It has the methods of [`ReadTx`] that most writes need; [`Self::read`] gives access to the others, and to use cases
/// that only read.
pub struct WriteTx<'a> {
    read: ReadTx<'a>,
    /// What is woken up after the commit.
    pub(super) wakeups: Wakeups,
    /// Commits of the push that this transaction applies.
    pushed_commits: Vec<Commit>,
}

impl<'a> WriteTx<'a> {
    /// Creates a write transaction from a read transaction on a connection that can write.
    pub(super) fn new(mut read: ReadTx<'a>) -> Self {
        read.is_writing = true;
        Self { read, wakeups: Wakeups::default(), pushed_commits: Vec::new() }
    }

    /// Returns the transaction for reading; it sees what was written before.
    pub fn read(&mut self) -> &mut ReadTx<'a> {
        &mut self.read
    }

    /// Wakes the webhook dispatcher after the commit.
    pub(crate) fn notify_dispatcher(&mut self) {
        self.wakeups.deliveries = true;
    }

    /// Wakes the task worker after the commit.
    pub(crate) fn notify_task_worker(&mut self) {
        self.wakeups.tasks = true;
    }

    /// Remembers a commit of the push that this transaction applies. It cannot be read from the repository before the
    /// transaction is committed.
    pub(crate) fn remember_commit(&mut self, commit: Commit) {
        self.pushed_commits.push(commit);
    }

    /// Returns a commit of a project, if it exists.
    pub(crate) fn commit(&mut self, project: &Project, id: Oid) -> Result<Option<Commit>> {
        if let Some(pushed) = self.pushed_commits.iter().find(|commit| commit.id == id) {
            return Ok(Some(pushed.clone()));
        }
        let Some(repository) = self.read.repository(project)? else { return Ok(None) };
        Ok(repository.commit(id)?)
    }

    /// Wakes the followers of a trace on other nodes after the commit; those of this node are woken by the use case.
    pub(crate) fn notify_followers(&mut self, job: JobId, change: TraceChange) {
        self.wakeups.traces.push((job, change));
    }

    /// Wakes runners that wait for jobs after the commit.
    pub(crate) fn notify_runners(&mut self) {
        self.wakeups.jobs = true;
    }
}

/// Methods of [`ReadTx`].
impl WriteTx<'_> {
    /// See [`ReadTx::actor`].
    pub fn actor(&self) -> &Actor {
        self.read.actor()
    }

    /// See [`ReadTx::now`].
    pub fn now(&self) -> Time {
        self.read.now()
    }

    pub(crate) fn db(&mut self) -> &mut Conn {
        self.read.db()
    }

    pub(crate) fn shared(&self) -> &Shared {
        self.read.shared()
    }

    /// See [`ReadTx::authorize`].
    pub fn authorize(&self, ability: Ability) -> Result<()> {
        self.read.authorize(ability)
    }

    /// See [`ReadTx::current_user_id`].
    pub fn current_user_id(&self, ability: Ability) -> Result<UserId> {
        self.read.current_user_id(ability)
    }

    /// See [`ReadTx::user_id`].
    pub fn user_id(&self) -> Result<UserId> {
        self.read.user_id()
    }

    /// See [`ReadTx::project`].
    pub fn project(&mut self, project: &ProjectRef, ability: ProjectAbility) -> Result<Project> {
        self.read.project(project, ability)
    }

    /// See [`ReadTx::project_with`].
    pub fn project_with<P>(
        &mut self,
        project: &ProjectRef,
        ability: ProjectAbility,
        params: impl FnOnce() -> Result<P>,
    ) -> Result<(Project, P)> {
        self.read.project_with(project, ability, params)
    }

    /// See [`ReadTx::authorize_project`].
    pub fn authorize_project(&self, project: &Project, ability: ProjectAbility) -> Result<()> {
        self.read.authorize_project(project, ability)
    }

    pub(crate) fn can(&self, project: &Project, ability: ProjectAbility) -> bool {
        self.read.can(project, ability)
    }

    /// See [`ReadTx::group`].
    pub fn group(&mut self, group: &GroupRef, ability: GroupAbility) -> Result<(Namespace, Option<Role>)> {
        self.read.group(group, ability)
    }

    /// See [`ReadTx::group_with`].
    pub fn group_with<P>(
        &mut self,
        group: &GroupRef,
        ability: GroupAbility,
        params: impl FnOnce() -> Result<P>,
    ) -> Result<(Namespace, Option<Role>, P)> {
        self.read.group_with(group, ability, params)
    }
}
