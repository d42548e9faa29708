//! How many repositories are fetched from elsewhere at the same time, and for whom.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::Forge;

/// How many imports run at once.
const MOST: usize = 4;
/// How many of them one user may have, so that others find a slot whatever the servers of that user do.
const MOST_OF_USER: usize = 2;

/// The slots for imports.
#[derive(Default)]
pub(crate) struct ImportSlots {
    /// How many each user has.
    taken: Mutex<HashMap<i64, usize>>,
    stopping: AtomicBool,
}

/// A slot, free again when this is dropped.
pub(crate) struct ImportSlot<'a> {
    slots: &'a ImportSlots,
    user: i64,
}

impl ImportSlots {
    /// A slot for an import of a user; `None` if there is none, or the user has enough.
    pub(crate) fn try_take(&self, user: i64) -> Option<ImportSlot<'_>> {
        let mut taken = self.taken();
        let own = taken.get(&user).copied().unwrap_or_default();
        if self.is_stopping() || own >= MOST_OF_USER || taken.values().sum::<usize>() >= MOST {
            return None;
        }
        taken.insert(user, own + 1);
        Some(ImportSlot { slots: self, user })
    }

    /// Whether the server is about to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<i64, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ImportSlot<'_> {
    fn drop(&mut self) {
        let mut taken = self.slots.taken();
        match taken.get_mut(&self.user) {
            Some(own @ 2..) => *own -= 1,
            _ => drop(taken.remove(&self.user)),
        }
    }
}

impl Forge {
    /// Ends the imports that are under way, and begins no more; the next start begins them anew.
    pub fn stop_imports(&self) {
        self.shared().imports.stopping.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_has_all_slots_and_what_is_given_back_can_be_taken_again() {
        let slots = ImportSlots::default();
        let mine: Vec<_> = (0..5).filter_map(|_| slots.try_take(1)).collect();
        assert_eq!(mine.len(), MOST_OF_USER);
        let theirs: Vec<_> = (2..9).filter_map(|user| slots.try_take(user)).collect();
        assert_eq!(mine.len() + theirs.len(), MOST);
        drop(mine);
        assert!(slots.try_take(1).is_some());
        drop(theirs);
        assert!(slots.taken().is_empty());
    }
}
