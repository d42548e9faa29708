//! The one gate for refs. Whatever moves a branch or a tag passes here: a push over HTTP or SSH, the endpoints for
//! branches, tags, files and commits.
//!
//! 1. The objects are in quarantine, checked and complete.
//! 2. The change is weighed against the repository, while nobody else writes to it (`weigh`).
//! 3. One transaction judges it and writes it down as intended, with all that follows from it (`judge`).
//! 4. Objects move in and refs move on, all of it on disk ([`git::Repositories::apply`]).
//! 5. The intent is done, and what it carries becomes visible.
//!
//! Whatever is interrupted between two steps is settled before the next push, and at the start: if its refs have moved
//! it is completed, else forgotten. So what follows from a push happens exactly once.

mod judge;
mod weigh;

use std::{sync::Arc, time::Duration};

use git::{Quarantine, Repositories, Repository};
use model::{Change, EventKind, Protection, PushLevel, RefChange, RefName, StorageId};
use store::intents::{Intent, NewIntent};
use tracing::{error, info, warn};

use crate::{
    Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, WriteTx, announcements, forks, mentions,
    pipelines::drafts, repository_locks::Turn, tasks,
};

pub(crate) use weigh::choose_default;

use judge::{Judged, judge, start_pipelines};
use weigh::{SentObjects, Weighed, weigh};

pub(crate) const NO_PROTECTED_PUSH: &str = "You are not allowed to push code to protected branches on this project.";
pub(crate) const STALE: &str = "It has changed meanwhile; fetch first.";
const GONE: &str = "It does not exist.";
/// How long a write waits before it looks again whether somebody still wants a standstill of all refs.
const STANDSTILL_PAUSE: Duration = Duration::from_millis(20);

/// How many refs one push may change.
pub const MOST_CHANGES: usize = 10_000;

/// Changes of refs, all wanted at once.
pub struct Push {
    /// Which refs, from what to what.
    pub changes: Vec<RefChange>,
    /// The objects that come with them.
    pub incoming: Option<Quarantine>,
    /// Whether all shall happen or none.
    pub atomic: bool,
    /// Words of the client to whom it may concern.
    pub options: Vec<String>,
}

/// What came of the change of one ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefOutcome {
    /// Which ref.
    pub name: RefName,
    /// Why it did not change, in one sentence; `None` if it did.
    pub refusal: Option<String>,
}

/// By which way a change came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// A push of git.
    Push,
    /// An endpoint, which has its own rules on top.
    Api,
}

/// Whether a change was refused because somebody else was faster: whoever looks again sees what they did.
pub(crate) fn came_too_late<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Refused(text)) if text == STALE || text == GONE)
}

/// A quarantine for a project that was opened to be written to.
pub fn incoming(forge: &Forge, storage: &StorageId) -> Result<Quarantine> {
    forge.require_room()?;
    forge.heed(forge.shared().repositories.quarantine(storage).map_err(Error::from))
}

/// Changes refs, in one piece and for good, as far as the caller may.
///
/// A change that is refused is no error: each ref is told its outcome. One that may not be refuses all of them, as
/// clients of the original expect; one that came too late refuses the others only in an atomic push.
pub async fn push(forge: &Forge, caller: Caller, project: i64, push: Push, via: Via) -> Result<Vec<RefOutcome>> {
    let forge = forge.clone();
    // On its own: the client may go away, and what was begun has to be ended.
    let task = tokio::spawn(async move { forge.heed(pass(&forge, caller, project, push, via).await) });
    task.await.unwrap_or_else(|error| Err(Error::Internal(format!("a push: {error}"))))
}

async fn pass(forge: &Forge, caller: Caller, project: i64, push: Push, via: Via) -> Result<Vec<RefOutcome>> {
    // The project may have been removed since the objects came in, and its repository with it.
    let explained = async |error: Error| {
        let open = move |tx: &mut ReadTx<'_>| tx.open(&ProjectRef::Id(project), ProjectAbility::PushCode).map(drop);
        forge.read(caller.clone(), open).await.err().unwrap_or(error)
    };
    let (repositories, storage) = (forge.shared().repositories.clone(), forge.storage_of(project).await?);
    // What takes long is checked before others have to wait for it.
    let checking = move || {
        // Before anything reads them.
        push.incoming.as_ref().map_or(Ok(()), Quarantine::check_sizes)?;
        Ok((SentObjects::check(&repositories, &storage, &push)?, push))
    };
    let (sent, push) = match blocking(checking).await {
        Ok(checked) => checked,
        Err(error) => return Err(explained(error).await),
    };
    let _turn = forge.shared().turns.take(project, Turn::Write).await;
    settle(forge, project).await?;
    forks::copy_before_first_write(forge, project).await?;
    let listened = forge.read_inline(Caller::system(), move |tx: &mut ReadTx<'_>| is_listened_to(tx, project)).await?;
    let (repositories, storage) = (forge.shared().repositories.clone(), forge.storage_of(project).await?);
    let weighing = move || Ok((weigh(&repositories, &storage, &push, sent, listened)?, push));
    let (weighed, push) = match blocking(weighing).await {
        Ok(weighed) => weighed,
        Err(error) => return Err(explained(error).await),
    };
    let (weighed, push) = draft(forge, project, weighed, push).await?;
    let weighed = Arc::new(weighed);
    let depth = caller.depth();
    let _moving = begin_moving(forge).await?;
    let judged = {
        let weighed = Arc::clone(&weighed);
        let atomic = push.atomic;
        forge.write(caller, move |tx| judge(tx, project, &weighed, atomic, via)).await?
    };
    let Judged { outcomes, intent } = judged;
    let Some(intent) = intent else { return Ok(outcomes) };
    match carry_out(forge, intent, push.incoming, depth).await {
        Ok(()) => Ok(outcomes),
        Err(Error::Refused(text)) => {
            Ok(outcomes.into_iter().map(|one| RefOutcome { refusal: Some(text.clone()), ..one }).collect())
        }
        Err(error) => Err(error),
    }
}

/// What is built once the push has happened. It is planned beside the push, after everything that may refuse it, and takes
/// nothing where there is no file that says what to build.
async fn draft(forge: &Forge, project: i64, mut weighed: Weighed, push: Push) -> Result<(Weighed, Push)> {
    let moved = weighed.files_to_build();
    if moved.is_empty() {
        return Ok((weighed, push));
    }
    let survey = move |tx: &mut ReadTx<'_>| {
        let opened = tx.open(&ProjectRef::Id(project), ProjectAbility::ReadPipelines);
        match opened {
            Ok(project) => drafts::survey(tx, project).map(Some),
            // Nothing is built here, or not any more.
            Err(Error::Forbidden(_) | Error::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    };
    let Some(mut ground) = forge.read(Caller::system(), survey).await? else { return Ok((weighed, push)) };
    if let Some(head) = &weighed.head {
        // As it will be by then.
        ground.project.default_branch = Some(head.short().to_owned());
        ground.protections.push(first_protection(head));
    }
    let (repositories, storage) = (forge.shared().repositories.clone(), ground.project.storage.clone());
    blocking(move || {
        let drafted = objects_of(&repositories, &storage, &push).and_then(|objects| match objects {
            Some(objects) => drafts::of_push(&objects, &ground, &moved),
            None => Ok(Vec::new()),
        });
        // Not to know what to build is no reason to refuse a push.
        weighed.drafts = drafted.unwrap_or_else(|error| {
            error!(%error, project.id = project, "the pipelines of a push cannot be planned");
            Vec::new()
        });
        Ok((weighed, push))
    })
    .await
}

/// What is in quarantine and what is there, at once; of a project without a repository only the former.
fn objects_of(repositories: &Repositories, storage: &StorageId, push: &Push) -> Result<Option<Repository>> {
    Ok(match &push.incoming {
        Some(incoming) => Some(incoming.repository()?),
        None => repositories.find(storage)?,
    })
}

/// The rule for the first default branch, which is protected from the beginning.
fn first_protection(head: &RefName) -> Protection {
    Protection { name: head.short().to_owned(), push: PushLevel::Masters, merge: PushLevel::Masters }
}

/// Whether hooks of a project are told what commits do to files; else nobody need look.
fn is_listened_to(tx: &mut ReadTx<'_>, project: i64) -> Result<bool> {
    Ok(announcements::is_wanted(tx, EventKind::Push, Some(project))?
        || announcements::is_wanted(tx, EventKind::TagPush, Some(project))?)
}

/// Steps 4 and 5: does what was written down.
async fn carry_out(forge: &Forge, intent: Intent, incoming: Option<Quarantine>, depth: i32) -> Result<()> {
    let (repositories, storage) = (forge.shared().repositories.clone(), forge.storage_of(intent.project).await?);
    let (applied, intent) = blocking(move || {
        let applied = repositories.apply(&storage, incoming.as_ref(), &intent.changes, head_of(&intent).as_ref());
        Ok((applied, intent))
    })
    .await?;
    match applied {
        Ok(()) => {
            let (id, project) = (intent.id, intent.project);
            let myself = Caller::system().led_by_hooks(depth);
            if let Err(error) = forge.write(myself, move |tx| finish(tx, &intent)).await {
                // The refs stand, and it is written down what follows: that is made up for.
                error!(%error, intent = id, project.id = project, "a push is on disk, but what follows from it has to wait");
            }
            Ok(())
        }
        Err(problem) => {
            warn!(error = %problem, project.id = intent.project, "refs could not be moved");
            // Some may have moved before the disk failed; then all have by now.
            if settle_moving(forge, intent.project).await?.contains(&intent.id) {
                return Ok(());
            }
            match problem {
                git::Error::Moved(_) => Err(Error::Refused(STALE.into())),
                other => Err(other.into()),
            }
        }
    }
}

/// From here on refs move: whoever takes a copy of everything waits until it is written down that they have.
pub(crate) async fn begin_moving(forge: &Forge) -> Result<git::Moving> {
    loop {
        let repositories = forge.shared().repositories.clone();
        if let Some(moving) = blocking(move || Ok(repositories.try_begin_moving()?)).await? {
            return Ok(moving);
        }
        tokio::time::sleep(STANDSTILL_PAUSE).await;
    }
}

/// Does something to the disk that may take a moment, away from those who must not wait.
pub(crate) async fn blocking<T: Send + 'static>(f: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let task = tokio::task::spawn_blocking(f);
    task.await.unwrap_or_else(|error| Err(Error::Internal(format!("a task on the disk: {error}"))))
}

/// Writes down that another branch shall be the default.
pub(crate) fn intend_default(tx: &mut WriteTx<'_>, project: i64, branch: &RefName) -> Result<()> {
    let (now, user) = (tx.now(), tx.actor().user().map(|user| user.id));
    let default_branch = Change::Set(branch.short().to_owned());
    store::intents::insert(tx.db(), &NewIntent { project, user, changes: &[], default_branch, protection: None, now })?;
    Ok(())
}

/// Does what was written down for a repository.
pub(crate) async fn catch_up(forge: &Forge, project: i64) -> Result<()> {
    let _turn = forge.shared().turns.take(project, Turn::Write).await;
    settle(forge, project).await
}

/// The branch that HEAD shall name afterwards, if that changes.
fn head_of(intent: &Intent) -> Option<RefName> {
    intent.default_branch.set().and_then(|branch| RefName::branch(branch))
}

/// Step 5: what was intended has happened.
fn finish(tx: &mut WriteTx<'_>, intent: &Intent) -> Result<()> {
    if !store::intents::hold(tx.db(), intent.id)? {
        // Somebody else was faster, and it happens once.
        return Ok(());
    }
    mentions::act(tx, intent.id)?;
    let now = tx.now();
    let moved: Vec<RefName> = intent.changes.iter().map(|change| change.name.clone()).collect();
    start_pipelines(tx, intent, &moved)?;
    store::intents::finish(tx.db(), intent, &moved, now)?;
    tx.ring();
    tasks::enqueue(tx, &tasks::Task::KeepHouse(intent.project), now + tasks::HOUSEKEEPING_PAUSE)
}

/// Completes or forgets what was interrupted in a repository. Whoever calls this has the turn to write to it.
async fn settle(forge: &Forge, project: i64) -> Result<()> {
    if pending_of(forge, project).await?.is_empty() {
        return Ok(());
    }
    let _moving = begin_moving(forge).await?;
    settle_moving(forge, project).await.map(drop)
}

async fn pending_of(forge: &Forge, project: i64) -> Result<Vec<Intent>> {
    let find = move |tx: &mut ReadTx<'_>| Ok(store::intents::pending_of(tx.db(), project)?);
    forge.read_inline(Caller::system(), find).await
}

/// As [`settle`], while refs move already; tells what was completed.
async fn settle_moving(forge: &Forge, project: i64) -> Result<Vec<i64>> {
    let mut completed = Vec::new();
    for intent in pending_of(forge, project).await? {
        let id = intent.id;
        if settle_one(forge, intent).await? {
            completed.push(id);
        }
    }
    Ok(completed)
}

async fn settle_one(forge: &Forge, intent: Intent) -> Result<bool> {
    let (repositories, storage) = (forge.shared().repositories.clone(), forge.storage_of(intent.project).await?);
    let (happened, intent) = blocking(move || {
        let happened = repositories.which_happened(&storage, &intent.changes)?;
        // One without refs is only about the default branch, which has to be there still.
        let happens = if happened.is_empty() {
            let repository = repositories.find(&storage)?;
            let refs = repository.map(|repository| repository.refs()).transpose()?;
            head_of(&intent).is_some_and(|head| refs.is_some_and(|refs| refs.find(&head).is_some()))
        } else {
            happened.contains(&true)
        };
        if !happens {
            return Ok((false, intent));
        }
        // The objects are in, since they come first; the refs that are missing follow.
        let rest: Vec<RefChange> = intent
            .changes
            .iter()
            .zip(&happened)
            .filter(|(_, happened)| !**happened)
            .map(|(change, _)| change.clone())
            .collect();
        repositories.apply(&storage, None, &rest, head_of(&intent).as_ref())?;
        Ok((true, intent))
    })
    .await?;
    info!(intent = intent.id, project = intent.project, completed = happened, "settled a push that was interrupted");
    forge
        .write(Caller::system(), move |tx| {
            if happened { finish(tx, &intent) } else { Ok(store::intents::drop(tx.db(), intent.id)?) }
        })
        .await?;
    Ok(happened)
}

/// Settles all pushes that were interrupted, and removes what is left of others; at the start, and now and then.
pub async fn settle_all(forge: &Forge) -> Result<()> {
    const AT_ONCE: i64 = 100;
    let repositories = forge.shared().repositories.clone();
    blocking(move || Ok(repositories.empty_trash()?)).await?;
    let mut after = 0;
    loop {
        let pending =
            forge.read(Caller::system(), move |tx| Ok(store::intents::pending(tx.db(), after, AT_ONCE)?)).await?;
        let Some(last) = pending.last() else { return Ok(()) };
        after = last.id;
        for Intent { project, .. } in pending {
            let _turn = forge.shared().turns.take(project, Turn::Write).await;
            if let Err(error) = settle(forge, project).await {
                error!(%error, project.id = project, "a push that was interrupted cannot be settled");
            }
        }
    }
}
