//! Jobs, as people see and steer them.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use ci::{Event, progress};
use model::{Build, Commit, Oid, Page, Project, Slice, Status, User, pipelines::BuildKind};
use store::builds::NewBuildState;

use crate::{
    Ability, Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx,
    pipelines::machine::{self, Held},
    traces,
    waiting::Candidates,
};

/// A job with everything that is shown of it.
#[derive(Clone, Debug)]
pub struct BuildDetail {
    /// The job.
    pub build: Build,
    /// The commit that it builds, as long as that is there.
    pub commit: Option<Commit>,
    /// Who caused it, as long as they are there.
    pub user: Option<User>,
    /// For how many seconds it ran, or has been running.
    pub duration: Option<f64>,
    /// Why no runner will take it as things are, if it waits for one.
    pub pending_reason: Option<String>,
}

/// The gate for those who look.
fn open(tx: &mut ReadTx<'_>, project: &ProjectRef) -> Result<Project> {
    tx.may(Ability::Browse)?;
    tx.open(project, ProjectAbility::ReadBuilds)
}

/// The jobs of a project in one of some states, or in any if none is named; newest first.
pub fn list(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    scope: &Unvalidated<Vec<Status>>,
    page: &Unvalidated<Page>,
) -> Result<Slice<BuildDetail>> {
    let project = open(tx, project)?;
    let (scope, page, now) = (scope.get()?, *page.get()?, tx.now());
    let Slice { items, total, page } = store::build_lists::list(tx.db(), project.id, scope, page, now)?;
    Ok(Slice { items: in_detail(tx, &project, items)?, total, page })
}

/// The jobs of a commit, as [`list`] does it.
pub fn of_commit(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    revision: &str,
    scope: &Unvalidated<Vec<Status>>,
    page: &Unvalidated<Page>,
) -> Result<Slice<BuildDetail>> {
    let project = open(tx, project)?;
    let (scope, page, now) = (scope.get()?, *page.get()?, tx.now());
    let missing = || Error::not_found("Commit");
    let repository = tx.repository(&project)?.ok_or_else(missing)?;
    let sha = repository.resolve(revision)?.ok_or_else(missing)?;
    let Slice { items, total, page } = store::build_lists::of_commit(tx.db(), project.id, sha, scope, page, now)?;
    Ok(Slice { items: in_detail(tx, &project, items)?, total, page })
}

/// One job.
pub fn get(tx: &mut ReadTx<'_>, project: &ProjectRef, id: &Unvalidated<i64>) -> Result<BuildDetail> {
    let project = open(tx, project)?;
    let build = find(tx, &project, *id.get()?)?;
    one_in_detail(tx, &project, build)
}

/// Stops a job; one that has ended stays as it is.
pub async fn cancel(forge: &Forge, caller: Caller, project: ProjectRef, id: Unvalidated<i64>) -> Result<BuildDetail> {
    let stopped = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&stopped);
    let detail = steer(forge, caller, project, id, move |tx, project, mut held, at, _| {
        if let Some(at) = at {
            *noted.lock().unwrap_or_else(PoisonError::into_inner) = Stopped::of(tx, &held, &[at]);
            machine::happen(tx, &mut held, &[at], Event::Cancel, &NewBuildState::default())?;
            machine::follow(tx, project, held)?;
        }
        Ok(None)
    })
    .await?;
    let stopped = stopped.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(stopped) = stopped {
        stopped.close_traces(forge).await;
    }
    Ok(detail)
}

/// Jobs that ran until somebody stopped them.
pub(crate) struct Stopped {
    builds: Vec<i64>,
    by: String,
}

impl Stopped {
    /// Those of some jobs that run, before they are stopped; nothing if none does.
    pub(crate) fn of(tx: &WriteTx<'_>, held: &Held, places: &[usize]) -> Option<Self> {
        let running = places.iter().filter_map(|at| held.builds.get(*at)).filter(|one| one.status == Status::Running);
        let builds: Vec<i64> = running.filter(|one| one.kind == BuildKind::Job).map(|one| one.id).collect();
        let by = tx.actor().user().map_or_else(|| "the server".to_owned(), |user| user.username.clone());
        (!builds.is_empty()).then_some(Self { builds, by })
    }

    /// Says in their traces who has stopped them.
    pub(crate) async fn close_traces(self, forge: &Forge) {
        for build in self.builds {
            traces::close_with(forge, build, &format!("ERROR: job canceled by {}", self.by)).await;
        }
    }
}

/// Tries a job again that has ended: a new one of the same name takes its place, and is answered.
pub async fn retry(forge: &Forge, caller: Caller, project: ProjectRef, id: Unvalidated<i64>) -> Result<BuildDetail> {
    steer(forge, caller, project, id, |tx, project, mut held, at, me| {
        let again = at.and_then(|at| Some((at, progress::retry_one(&held.states(), at)?)));
        let (at, again) = again.ok_or_else(|| Error::forbidden("Build is not retryable"))?;
        machine::renew(tx, &mut held, project, &again.anew, Some(me), false)?;
        // Jobs of later stages run for this user, too: the one before may have left.
        let mine = NewBuildState { user: Some(me), ..NewBuildState::default() };
        machine::happen(tx, &mut held, &again.reopened, Event::Process, &mine)?;
        machine::happen(tx, &mut held, &again.at_once, Event::Enqueue, &NewBuildState::default())?;
        let made = held.builds[at].id;
        machine::follow(tx, project, held)?;
        Ok(Some(made))
    })
    .await
}

/// Starts a job that waits for somebody to do so.
pub async fn play(forge: &Forge, caller: Caller, project: ProjectRef, id: Unvalidated<i64>) -> Result<BuildDetail> {
    steer(forge, caller, project, id, |tx, project, mut held, at, me| {
        let played = at.and_then(|at| Some((at, progress::play(&held.states(), at)?)));
        // The words of the original, in which the reason stands where a parameter would.
        let unplayable = || Error::Refused("400 (Bad request) \"Unplayable Build\" not given".into());
        let (at, reopened) = played.ok_or_else(unplayable)?;
        let mine = NewBuildState { user: Some(me), ..NewBuildState::default() };
        machine::happen(tx, &mut held, &[at], Event::Enqueue, &mine)?;
        machine::happen(tx, &mut held, &reopened, Event::Process, &mine)?;
        machine::follow(tx, project, held)?;
        Ok(None)
    })
    .await
}

/// Does something to a job while its pipeline is held, and answers how it stands then. Told are the position of the job among
/// the latest ones, if it is one of them, and who wants it; the number of another job that takes its place is answered.
async fn steer(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    id: Unvalidated<i64>,
    doing: impl Fn(&mut WriteTx<'_>, &Project, Held, Option<usize>, i64) -> Result<Option<i64>> + Send + 'static,
) -> Result<BuildDetail> {
    let done = forge.write(caller.clone(), move |tx| {
        let project = tx.open(&project, ProjectAbility::RunPipelines)?;
        let me = tx.my_id(Ability::Browse)?;
        let build = find(tx, &project, *id.get()?)?;
        let held = machine::hold(tx, build.pipeline.id)?;
        let at = held.position(build.id);
        let replaced = doing(tx, &project, held, at, me)?;
        find(tx, &project, replaced.unwrap_or(build.id))
    });
    let build = done.await?;
    // The commit is looked up apart, so that nobody who writes has to wait for the repository.
    let show = move |tx: &mut ReadTx<'_>| {
        let project = tx.open(&ProjectRef::Id(build.project_id), ProjectAbility::ReadBuilds)?;
        one_in_detail(tx, &project, build.clone())
    };
    forge.read(caller, show).await
}

fn find(tx: &mut ReadTx<'_>, project: &Project, id: i64) -> Result<Build> {
    let now = tx.now();
    let found = store::build_lists::find(tx.db(), project.id, id, now)?;
    found.ok_or_else(|| Error::Absent("404 Not Found".into()))
}

fn one_in_detail(tx: &mut ReadTx<'_>, project: &Project, build: Build) -> Result<BuildDetail> {
    let mut all = in_detail(tx, project, vec![build])?;
    all.pop().ok_or_else(|| Error::Internal("a build was lost on its way".into()))
}

/// Jobs with what is shown around them: one look at the users, and one at each commit.
fn in_detail(tx: &mut ReadTx<'_>, project: &Project, builds: Vec<Build>) -> Result<Vec<BuildDetail>> {
    let commits = commits_of(tx, project, &builds)?;
    let users: HashSet<i64> = builds.iter().filter_map(|build| Some(build.user.as_ref()?.id)).collect();
    let users = store::build_lists::users_of(tx.db(), &users.into_iter().collect::<Vec<_>>())?;
    let now = tx.now();
    let waits = |build: &Build| build.status == Status::Pending;
    let candidates = if builds.iter().any(waits) { Some(Candidates::of(tx, project)?) } else { None };
    let detail = |build: Build| BuildDetail {
        pending_reason: candidates.as_ref().filter(|_| waits(&build)).and_then(|all| all.reason(&build.tags)),
        commit: commits.get(&build.pipeline.sha).cloned(),
        user: build.user.as_ref().and_then(|user| users.get(&user.id).cloned()),
        duration: build.started_at.map(|start| build.finished_at.unwrap_or(now).duration_since(start).as_secs_f64()),
        build,
    };
    Ok(builds.into_iter().map(detail).collect())
}

/// The commits of jobs; those that no ref leads to any more are left out, and all of them while that is not known.
fn commits_of(tx: &ReadTx<'_>, project: &Project, builds: &[Build]) -> Result<HashMap<Oid, Commit>> {
    let mut found = HashMap::new();
    if builds.is_empty() {
        return Ok(found);
    }
    let Some(repository) = tx.repository(project)? else { return Ok(found) };
    let wanted: HashSet<Oid> = builds.iter().map(|build| build.pipeline.sha).collect();
    let wanted: Vec<Oid> = wanted.into_iter().collect();
    let reachable = match repository.which_commits_are_reachable(&wanted) {
        Err(git::Error::Busy | git::Error::Indexing) => return Ok(found),
        reachable => reachable?,
    };
    for (sha, _) in wanted.into_iter().zip(reachable).filter(|(_, reachable)| *reachable) {
        if let Some(commit) = repository.commit(sha)? {
            found.insert(sha, commit);
        }
    }
    Ok(found)
}
