//! Limits the number of concurrent imports, in total and per user.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use model::UserId;

use crate::Forge;

/// The maximum number of concurrent imports.
const MAX_IMPORTS: usize = 4;
/// The maximum number of concurrent imports per user, so that slow imports of one user do not block others.
const MAX_IMPORTS_PER_USER: usize = 2;

/// The slots for imports.
#[derive(Default)]
pub(crate) struct ImportSlots {
    /// The number of slots in use, by user.
    in_use: Mutex<HashMap<UserId, usize>>,
    stopping: AtomicBool,
}

/// A slot, released on drop.
pub(crate) struct ImportSlot<'a> {
    slots: &'a ImportSlots,
    user: UserId,
}

impl ImportSlots {
    /// Acquires a slot for an import of a user; returns `None` if none is free or the user has reached their limit.
    pub(crate) fn try_acquire(&self, user: UserId) -> Option<ImportSlot<'_>> {
        let mut in_use = self.in_use();
        let count = in_use.get(&user).copied().unwrap_or_default();
        if self.is_stopping() || count >= MAX_IMPORTS_PER_USER || in_use.values().sum::<usize>() >= MAX_IMPORTS {
            return None;
        }
        in_use.insert(user, count + 1);
        Some(ImportSlot { slots: self, user })
    }

    /// Returns whether the server is shutting down.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn in_use(&self) -> MutexGuard<'_, HashMap<UserId, usize>> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ImportSlot<'_> {
    fn drop(&mut self) {
        let mut in_use = self.slots.in_use();
        match in_use.get_mut(&self.user) {
            Some(count @ 2..) => *count -= 1,
            _ => drop(in_use.remove(&self.user)),
        }
    }
}

impl Forge {
    /// Cancels running imports and starts no more; they run again after the next start.
    pub fn stop_imports(&self) {
        self.shared().imports.stopping.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_gets_all_slots_and_released_slots_can_be_acquired_again() {
        let slots = ImportSlots::default();
        let mine: Vec<_> = (0..5).filter_map(|_| slots.try_acquire(UserId::new(1))).collect();
        assert_eq!(mine.len(), MAX_IMPORTS_PER_USER);
        let theirs: Vec<_> = (2..9).filter_map(|user| slots.try_acquire(UserId::new(user))).collect();
        assert_eq!(mine.len() + theirs.len(), MAX_IMPORTS);
        drop(mine);
        assert!(slots.try_acquire(UserId::new(1)).is_some());
        drop(theirs);
        assert!(slots.in_use().is_empty());
    }
}
