//! Imports of repositories from other servers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use git::{FetchLimits, FetchedRepository};
use model::{
    Project, ProjectId, RefName, UserId, Violations,
    imports::{EncryptedCredentials, ImportState},
};
use store::{packs::NewPack, repositories::RefUpdate};
use tracing::{info, warn};

use crate::{
    Caller, Error, Forge, ReadTx, Result, WriteTx, blocking,
    outbound_addresses::{Destination, DestinationError, basic_authorization},
    pushes,
    tasks::{self, Task},
};

const FIELD: &str = "import_url";
/// Reasons of a failed fetch.
const TOO_LARGE: &str = "it exceeds the push size limit of this server (max-push-size)";
const TOO_SLOW: &str = "the remote server is too slow";
const NO_RESPONSE: &str = "the remote server does not respond";
/// How often a running import checks whether it was cancelled.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Parses the URL of an import; adds a violation and returns `None` if it is not allowed.
pub(crate) fn parse_url(url: &str, allow_local: bool, violations: &mut Violations) -> Option<Destination> {
    match Destination::for_import(url) {
        Err(error) => violations.add(FIELD, error.to_string()),
        Ok(destination) if destination.has_forbidden_host(allow_local) => {
            violations.add(FIELD, DestinationError::ForbiddenAddress.to_string());
        }
        Ok(destination) => return Some(destination),
    }
    None
}

/// Schedules the import of a repository.
pub(crate) fn schedule(tx: &mut WriteTx<'_>, project: ProjectId, source: &Destination) -> Result<()> {
    let encrypted = source.credentials().map(|credentials| {
        let shared = tx.shared();
        shared.instance_key.encrypt(project, credentials.as_bytes(), &*shared.secrets)
    });
    let requester = tx.actor().user().map(|user| user.id);
    store::imports::insert(tx.db(), project, requester, source.url(), encrypted.map(EncryptedCredentials).as_ref())?;
    let now = tx.now();
    tasks::enqueue(tx, &Task::Import(project), now)
}

/// Returns whether an import can be scheduled: the repository is empty and no import is in progress.
pub(crate) fn can_start(tx: &mut ReadTx<'_>, project: &Project) -> Result<bool> {
    let in_progress = project
        .import
        .as_ref()
        .is_some_and(|import| matches!(import.state, ImportState::Scheduled | ImportState::Started));
    Ok(!in_progress && tx.find_repository(project.id)?.is_none())
}

/// Runs an import; returns `false` if it has to run later. A failure is stored in the project and not retried: the user can
/// judge better whether that makes sense.
pub(crate) async fn run(forge: &Forge, project: ProjectId) -> Result<bool> {
    // Imports take long, so their number is limited.
    let requester = forge.read(Caller::system(), move |tx| Ok(store::imports::requester(tx.db(), project)?)).await?;
    let user = requester.map_or(UserId::ANONYMOUS, |requester| requester.user);
    let Some(_slot) = forge.shared().imports.try_acquire(user) else { return Ok(false) };
    let import = forge.write(Caller::system(), move |tx| mark_started(tx, project)).await?;
    let Some((destination, credentials)) = import else {
        forge.write(Caller::system(), move |tx| tasks::cancel(tx, &Task::Import(project))).await?;
        return Ok(true);
    };
    let allow_local = forge.shared().allow_local_network;
    let repositories = forge.shared().repositories.clone();
    let limits = FetchLimits { pack: forge.shared().max_push_size, ..FetchLimits::default() };
    let cancelled = Arc::new(AtomicBool::new(false));
    let cancel_flag = Arc::clone(&cancelled);
    let fetching = blocking::spawn(move || {
        let resolved = match destination.resolve(allow_local) {
            Ok(resolved) => resolved,
            Err(error) => return Ok(Err(ImportFailure::Destination(error))),
        };
        let source = git::FetchSource {
            url: resolved.url,
            host: resolved.host,
            address: resolved.address,
            authorization: credentials.as_deref().map(basic_authorization),
        };
        match repositories.fetch(&source, &limits, &cancel_flag) {
            // Retried when there is free disk space.
            Err(error) if error.is_full() => Err(error.into()),
            fetched => Ok(fetched.map_err(|error| ImportFailure::log(project, error))),
        }
    });
    let fetched = match fetch_until_cancelled(forge, project, &cancelled, fetching).await? {
        FetchOutcome::Fetched(fetched) => fetched,
        FetchOutcome::Stopped => return Ok(false),
        FetchOutcome::Removed => return Ok(true),
        FetchOutcome::Blocked => Err(ImportFailure::RequesterBlocked),
    };
    let fetched = match fetched {
        Ok(fetched) => store_fetched(forge, project, fetched).await?,
        Err(failure) => Err(failure),
    };
    let fetched = Arc::new(fetched);
    forge.write(Caller::system(), move |tx| finish(tx, project, &fetched)).await?;
    Ok(true)
}

/// The refs and packs of an import whose packs are stored, but not listed yet.
struct StoredImport {
    repository: FetchedRepository,
    packs: Vec<NewPack>,
}

/// Stores the packs of an import, durably.
async fn store_fetched(
    forge: &Forge,
    project: ProjectId,
    repository: FetchedRepository,
) -> Result<std::result::Result<StoredImport, ImportFailure>> {
    let handle = forge.clone();
    let storing = move || {
        let stored = repository.packs().map_err(Error::from).and_then(|packs| pushes::store_packs(&handle, &packs));
        match stored {
            Ok(packs) => Ok(Ok(StoredImport { repository, packs })),
            Err(Error::Git(error)) if !error.is_full() => Ok(Err(ImportFailure::log(project, error))),
            Err(error) => Err(error),
        }
    };
    blocking::spawn(storing).await
}

/// Gives a project the imported refs and packs, or records why the import failed.
fn finish(
    tx: &mut WriteTx<'_>,
    project: ProjectId,
    fetched: &std::result::Result<StoredImport, ImportFailure>,
) -> Result<()> {
    let now = tx.now();
    if store::projects::is_soft_deleted(tx.db(), project)? {
        // Deleted meanwhile; a task removes the packs.
        return Ok(());
    }
    let failure = match fetched {
        Ok(_) if tx.read().find_repository(project)?.is_some() => Some(ImportFailure::NotEmpty.to_string()),
        Ok(stored) if insert(tx, project, stored)? => None,
        Ok(_) => Some(ImportFailure::NotEmpty.to_string()),
        Err(failure) => Some(failure.to_string()),
    };
    info!(project.id = project.get(), problem = failure, "import ended");
    store::imports::finish(tx.db(), project, failure.as_deref(), now)?;
    tasks::enqueue(tx, &Task::Housekeeping(project), now + tasks::HOUSEKEEPING_DELAY)?;
    tasks::cancel(tx, &Task::Import(project))
}

/// Inserts the repository; returns `false` if a push has created one meanwhile.
fn insert(tx: &mut WriteTx<'_>, project: ProjectId, stored: &StoredImport) -> Result<bool> {
    let (now, refs) = (tx.now(), stored.repository.refs());
    if refs.iter().next().is_none() {
        return Ok(true);
    }
    let repository = store::repositories::begin_update(tx.db(), project, now)?;
    if repository.generation > 1 {
        return Ok(false);
    }
    for pack in &stored.packs {
        store::packs::add_pack(tx.db(), repository.id, pack, now)?;
    }
    let updates: Vec<RefUpdate<'_>> = refs
        .iter()
        .map(|found| RefUpdate { name: &found.name, old: None, new: Some(found.target), peeled: found.peeled })
        .collect();
    store::repositories::update_refs(tx.db(), repository.id, &updates)?;
    let branches = refs.branches.iter().map(|branch| &branch.name);
    let default_branch = pushes::choose_default_branch(refs.head.as_ref(), branches);
    store::projects::set_default_branch(tx.db(), project, default_branch.as_ref().map(RefName::short), now)?;
    Ok(true)
}

/// The outcome of a fetch.
enum FetchOutcome<T> {
    /// It ended by itself.
    Fetched(T),
    /// The server is shutting down; the import starts again after the next start.
    Stopped,
    /// The project was deleted.
    Removed,
    /// The user who requested it was blocked or deleted.
    Blocked,
}

/// Waits for a fetch, and cancels it when its result is no longer needed.
async fn fetch_until_cancelled<T>(
    forge: &Forge,
    project: ProjectId,
    cancelled: &AtomicBool,
    fetching: impl Future<Output = Result<T>>,
) -> Result<FetchOutcome<T>> {
    let mut fetching = std::pin::pin!(fetching);
    loop {
        if let Ok(fetched) = tokio::time::timeout(CANCEL_POLL_INTERVAL, &mut fetching).await {
            return fetched.map(FetchOutcome::Fetched);
        }
        let requester = forge.read(Caller::system(), move |tx| Ok(store::imports::requester(tx.db(), project)?)).await;
        let ended = match requester {
            _ if forge.shared().imports.is_stopping() => FetchOutcome::Stopped,
            Ok(None) => FetchOutcome::Removed,
            Ok(Some(requester)) if requester.is_blocked => FetchOutcome::Blocked,
            // A temporary database error does not cancel the import.
            Ok(Some(_)) | Err(_) => continue,
        };
        cancelled.store(true, Ordering::Relaxed);
        // Whatever the result: nothing may keep running when the slot is released.
        let _ = fetching.await;
        info!(project.id = project.get(), "import cancelled");
        return Ok(ended);
    }
}

/// Why an import failed; the text is stored in the project and shown to the user.
#[derive(Debug, thiserror::Error)]
enum ImportFailure {
    #[error("the URL {0}")]
    Destination(#[source] DestinationError),
    #[error("the user who requested the import is blocked")]
    RequesterBlocked,
    #[error("the repository is not empty")]
    NotEmpty,
    /// An object exceeds a limit; holds the message.
    #[error("the repository was rejected: {0}")]
    Rejected(String),
    #[error("cannot store the repository")]
    NotStored,
    /// Holds the reason.
    #[error("cannot fetch the repository: {0}")]
    NotFetched(&'static str),
}

impl ImportFailure {
    /// Logs an error and returns the failure to show. The output of git goes to the log only: it may contain parts of the URL
    /// that others must not see.
    fn log(project: ProjectId, error: git::Error) -> Self {
        warn!(
            project.id = project.get(),
            error = error.to_string(),
            "import failed; see the import_error of the project"
        );
        match error {
            git::Error::TooLarge(text) => Self::Rejected(text),
            git::Error::FetchTooLarge => Self::NotFetched(TOO_LARGE),
            git::Error::FetchTooSlow => Self::NotFetched(TOO_SLOW),
            git::Error::DeadlineExceeded | git::Error::TimedOut(_) => Self::NotFetched(NO_RESPONSE),
            git::Error::GitFailed(output) => Self::NotFetched(fetch_failure(&output)),
            _ => Self::NotStored,
        }
    }
}

/// Returns why a fetch failed, from the output of git, which reports the reason only as text.
fn fetch_failure(output: &str) -> &'static str {
    let mentions = |words: &[&str]| words.iter().any(|word| output.contains(word));
    if mentions(&["exceeds maximum allowed size", "signal 25", "signal: 25"]) {
        TOO_LARGE
    } else if mentions(&["ut of memory", "unable to mmap", "cannot allocate", "Cannot allocate"]) {
        "it needs more memory than this server allows for an import"
    } else if mentions(&["too slow"]) {
        TOO_SLOW
    } else if mentions(&["Authentication failed", "could not read Username", "could not read Password", " 403"]) {
        "the remote server rejected the credentials"
    } else if mentions(&["not found", " 404"]) {
        "the remote server has no such repository"
    } else if mentions(&["timed out", "Failed to connect", "Could not connect", "Connection refused"]) {
        NO_RESPONSE
    } else if mentions(&["redirect", "Redirect"]) {
        "the remote server redirects to another URL, which is not followed"
    } else if mentions(&["fsck error", "index-pack", "object", "pack"]) {
        "the remote server sent invalid data"
    } else {
        "the remote server does not respond like a Git server"
    }
}

/// Marks an import as started; returns its source and the decrypted credentials.
fn mark_started(tx: &mut WriteTx<'_>, project: ProjectId) -> Result<Option<(Destination, Option<String>)>> {
    let Some(import) = store::imports::find(tx.db(), project)? else { return Ok(None) };
    if !matches!(import.status.state, ImportState::Scheduled | ImportState::Started) {
        return Ok(None);
    }
    let now = tx.now();
    store::imports::start(tx.db(), project, now)?;
    let destination = Destination::for_import(&import.url).map_err(|error| Error::Internal(error.into()))?;
    let decrypted = import.credentials.map(|EncryptedCredentials(encrypted)| {
        let decrypted = tx.shared().instance_key.decrypt(project, &encrypted);
        decrypted.and_then(|bytes| String::from_utf8(bytes).ok())
    });
    match decrypted {
        Some(None) => Err(Error::Internal(
            "cannot decrypt the credentials of an import; is the instance-key the right one?".into(),
        )),
        Some(credentials) => Ok(Some((destination, credentials))),
        None => Ok(Some((destination, None))),
    }
}
