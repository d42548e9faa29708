//! Repositories that come from elsewhere.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use git::FetchLimits;
use model::{
    Project, RefName, StorageId, Violations,
    imports::{ImportState, Sealed},
};
use tracing::{info, warn};

use crate::{
    Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, WriteTx,
    outgoing::{Destination, Refused, basic},
    pushes::{self, blocking},
    repository_locks::Turn,
    tasks::{self, Task},
};

const FIELD: &str = "import_url";
const NOT_EMPTY: &str = "The repository is not empty any more.";
/// How often it is looked whether somebody still wants what is being fetched.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Reads from where a repository shall come; notes what is wrong with it.
pub(crate) fn check(url: &str, allow_local: bool, violations: &mut Violations) -> Option<Destination> {
    match Destination::parse(url) {
        Err(Refused(text)) => violations.add(FIELD, text),
        Ok(destination) if destination.is_plainly_closed(allow_local) => {
            violations.add(FIELD, "leads to an address that this server does not talk to");
        }
        Ok(destination) => return Some(destination),
    }
    None
}

/// Writes down that the repository of a project shall come from elsewhere.
pub(crate) fn schedule(tx: &mut WriteTx<'_>, project: i64, source: &Destination) -> Result<()> {
    let sealed = source.credentials().map(|credentials| {
        let shared = tx.shared();
        shared.instance_key.seal(project, credentials.as_bytes(), &*shared.secrets)
    });
    let requester = tx.actor().user().map(|user| user.id);
    store::imports::insert(tx.db(), project, requester, source.url(), sealed.map(Sealed).as_ref())?;
    let now = tx.now();
    tasks::enqueue(tx, &Task::Import(project), now)
}

/// Whether a project may still be filled from elsewhere: nothing was ever written to it, and nothing is on its way.
pub(crate) fn may_begin(tx: &WriteTx<'_>, project: &Project) -> Result<bool> {
    let under_way = project
        .import
        .as_ref()
        .is_some_and(|import| matches!(import.state, ImportState::Scheduled | ImportState::Started));
    Ok(!under_way && tx.repository(project)?.is_none())
}

/// Fetches what was asked for, and tells how it went; `false` if it has to wait for others. A failure is told on the
/// project, not tried again: whoever asked for it knows better whether that makes sense.
pub(crate) async fn run(forge: &Forge, project: i64) -> Result<bool> {
    // They take long, and others want to get something done, too.
    let requester = forge.read(Caller::system(), move |tx| Ok(store::imports::requester(tx.db(), project)?)).await?;
    let user = requester.map_or(0, |requester| requester.user);
    let Some(_slot) = forge.shared().imports.try_take(user) else { return Ok(false) };
    let found = forge.write(Caller::system(), move |tx| begin(tx, project)).await?;
    let Some((destination, credentials)) = found else {
        forge.write(Caller::system(), move |tx| tasks::forget(tx, &Task::Import(project))).await?;
        return Ok(true);
    };
    let allow_local = forge.shared().allow_local_network;
    let repositories = forge.shared().repositories.clone();
    let limits = FetchLimits { pack: forge.shared().max_push_size, ..FetchLimits::default() };
    let cancelled = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&cancelled);
    let fetching = blocking(move || {
        let pinned = match destination.pin(allow_local) {
            Ok(pinned) => pinned,
            Err(Refused(text)) => return Ok(Err(format!("The URL {text}."))),
        };
        let source = git::Source {
            url: pinned.url,
            host: pinned.host,
            address: pinned.address,
            authorization: credentials.as_deref().map(basic),
        };
        match repositories.fetch(&source, &limits, &flag) {
            // It is fetched once there is room.
            Err(error) if error.is_full() => Err(error.into()),
            fetched => Ok(fetched.map_err(|error| in_words(project, &error))),
        }
    });
    let fetched = match while_wanted(forge, project, &cancelled, fetching).await? {
        Ended::Fetched(fetched) => fetched,
        Ended::Stopped => return Ok(false),
        Ended::Removed => return Ok(true),
        Ended::Blocked => Err("The user who asked for it is blocked.".into()),
    };
    let _turn = forge.shared().turns.take(project, Turn::Write).await;
    if forge.read(Caller::system(), move |tx| Ok(store::projects::is_buried(tx.db(), project)?)).await? {
        // Removed meanwhile: whatever is put there now would stay for ever.
        return Ok(true);
    }
    let _moving = pushes::begin_moving(forge).await?;
    let (repositories, storage) = (forge.shared().repositories.clone(), forge.storage_of(project).await?);
    // A push of the first branch sets one.
    let has_no_default = move |tx: &mut ReadTx<'_>| {
        Ok(tx.open(&ProjectRef::Id(project), ProjectAbility::ReadProject)?.default_branch.is_none())
    };
    let has_no_default = forge.read(Caller::system(), has_no_default).await?;
    let fetched = blocking(move || match fetched {
        Err(problem) => Ok(Err(problem)),
        Ok(fetched) => match repositories.adopt(fetched, &storage) {
            Ok(()) => Ok(Ok(choose_default(&repositories, &storage)?)),
            // It may have been adopted just before the server stopped, which nobody has noted.
            Err(git::Error::Moved(_)) if has_no_default => {
                let chosen = choose_default(&repositories, &storage)?;
                Ok(if chosen.is_some() { Ok(chosen) } else { Err(NOT_EMPTY.into()) })
            }
            Err(git::Error::Moved(_)) => Ok(Err(NOT_EMPTY.into())),
            Err(error) if error.is_full() => Err(error.into()),
            Err(other) => Ok(Err(in_words(project, &other))),
        },
    })
    .await?;
    forge
        .write(Caller::system(), move |tx| {
            let now = tx.now();
            let problem = match &fetched {
                Ok(branch) => {
                    let branch = branch.as_ref().map(RefName::short);
                    store::projects::set_default_branch(tx.db(), project, branch, now)?;
                    None
                }
                Err(problem) => Some(problem.as_str()),
            };
            info!(project.id = project, problem, "an import has ended");
            store::imports::finish(tx.db(), project, problem, now)?;
            let later = now + tasks::HOUSEKEEPING_PAUSE;
            tasks::enqueue(tx, &Task::KeepHouse(project), later)?;
            tasks::forget(tx, &Task::Import(project))
        })
        .await?;
    Ok(true)
}

/// How a fetch ended.
enum Ended<T> {
    /// By itself.
    Fetched(T),
    /// The server is about to stop; it is begun anew after the next start.
    Stopped,
    /// The project is removed.
    Removed,
    /// The user who asked for it is blocked or removed.
    Blocked,
}

/// Waits for a fetch, and ends it as soon as nobody wants its result any more.
async fn while_wanted<T>(
    forge: &Forge,
    project: i64,
    cancelled: &AtomicBool,
    fetching: impl Future<Output = Result<T>>,
) -> Result<Ended<T>> {
    let mut fetching = std::pin::pin!(fetching);
    loop {
        if let Ok(fetched) = tokio::time::timeout(LOOK_EVERY, &mut fetching).await {
            return fetched.map(Ended::Fetched);
        }
        let requester = forge.read(Caller::system(), move |tx| Ok(store::imports::requester(tx.db(), project)?)).await;
        let ended = match requester {
            _ if forge.shared().imports.is_stopping() => Ended::Stopped,
            Ok(None) => Ended::Removed,
            Ok(Some(requester)) if requester.is_blocked => Ended::Blocked,
            // A database that does not answer for a moment is no reason to end anything.
            Ok(Some(_)) | Err(_) => continue,
        };
        cancelled.store(true, Ordering::Relaxed);
        // Whatever it comes to: nothing is left running when the slot is free again.
        let _ = fetching.await;
        info!(project.id = project, "an import was cancelled");
        return Ok(ended);
    }
}

/// Why a repository did not come, for whoever asked for it. What git says about it is for the log: it may repeat more
/// of the URL than others should see.
fn in_words(project: i64, error: &git::Error) -> String {
    warn!(project.id = project, error = error.to_string(), "an import failed; the project's import_error says so, too");
    if let git::Error::TooLarge(text) = error {
        return format!("The repository was refused: {text}.");
    }
    let git::Error::Child(said) = error else { return "The repository could not be stored.".into() };
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    let why = if says(&[git::TOO_LARGE, "exceeds maximum allowed size", "signal 25", "signal: 25"]) {
        "it exceeds the limit for pushes of this server (max-push-size)"
    } else if says(&["ut of memory", "unable to mmap", "cannot allocate", "Cannot allocate"]) {
        "it takes more memory than this server gives to an import"
    } else if says(&[git::TOO_SLOW, "too slow"]) {
        "the other side is too slow"
    } else if says(&["Authentication failed", "could not read Username", "could not read Password", " 403"]) {
        "the other side asks for other credentials"
    } else if says(&["not found", " 404"]) {
        "there is none at the other side"
    } else if says(&["timed out", "Failed to connect", "Could not connect", "Connection refused"]) {
        "the other side does not answer"
    } else if says(&["redirect", "Redirect"]) {
        "the other side sends us elsewhere, and we do not follow"
    } else if says(&["fsck error", "index-pack", "object", "pack"]) {
        "what the other side sends is not sound"
    } else {
        "the other side does not answer as a repository does"
    };
    format!("The repository could not be fetched: {why}.")
}

/// Makes one of the branches that came the one that people get who ask for none.
fn choose_default(repositories: &git::Repositories, storage: &StorageId) -> Result<Option<RefName>> {
    let Some(repository) = repositories.find(storage)? else { return Ok(None) };
    let refs = repository.refs()?;
    let chosen = pushes::choose_default(refs.head.as_ref(), refs.branches.iter().map(|branch| &branch.name));
    if chosen != refs.head {
        repositories.apply(storage, None, &[], chosen.as_ref())?;
    }
    Ok(chosen)
}

/// Notes that an import has begun; answers from where, and with which credentials.
fn begin(tx: &mut WriteTx<'_>, project: i64) -> Result<Option<(Destination, Option<String>)>> {
    let Some(import) = store::imports::find(tx.db(), project)? else { return Ok(None) };
    if !matches!(import.status.state, ImportState::Scheduled | ImportState::Started) {
        return Ok(None);
    }
    let now = tx.now();
    store::imports::start(tx.db(), project, now)?;
    let destination = Destination::parse(&import.url).map_err(|Refused(text)| Error::Internal(text))?;
    let opened = import.credentials.map(|Sealed(sealed)| {
        let opened = tx.shared().instance_key.open(project, &sealed);
        opened.and_then(|bytes| String::from_utf8(bytes).ok())
    });
    match opened {
        Some(None) => {
            Err(Error::Internal("the credentials of an import cannot be read; is this its instance-key?".into()))
        }
        Some(credentials) => Ok(Some((destination, credentials))),
        None => Ok(Some((destination, None))),
    }
}
