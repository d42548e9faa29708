//! Locks on repositories, held by maintenance.

use model::ProjectId;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::weak_map::WeakMap;

/// The locks of all repositories, by project; a lock exists while it is held or awaited. Pushes need none.
#[derive(Default)]
pub(crate) struct RepositoryLocks(WeakMap<ProjectId, Mutex<()>>);

impl RepositoryLocks {
    /// Waits for a lock; it is released when the guard is dropped.
    pub(crate) async fn acquire(&self, project: ProjectId) -> OwnedMutexGuard<()> {
        self.0.get_or_create(project, Mutex::default).lock_owned().await
    }
}
