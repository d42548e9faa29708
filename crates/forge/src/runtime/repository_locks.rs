//! Locks on repositories, held by ref updates and by housekeeping.

use model::ProjectId;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::weak_map::WeakMap;

/// What is locked in a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LockKind {
    /// Its refs, while they are updated.
    Refs,
    /// Its packs, while it is repacked; refs may be updated meanwhile.
    Housekeeping,
}

/// The locks of all repositories, by project; a lock exists while it is held or awaited.
#[derive(Default)]
pub(crate) struct RepositoryLocks(WeakMap<(ProjectId, LockKind), Mutex<()>>);

impl RepositoryLocks {
    /// Waits for a lock; it is released when the guard is dropped.
    pub(crate) async fn acquire(&self, project: ProjectId, kind: LockKind) -> OwnedMutexGuard<()> {
        self.0.get_or_create((project, kind), Mutex::default).lock_owned().await
    }
}
