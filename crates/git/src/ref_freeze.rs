//! A freeze of all refs, for a consistent backup.
//!
//! Two file locks form a turnstile, so it also works between processes. An update of refs passes the first lock and
//! holds the second one shared. A freeze holds the first lock, so that no new update begins, and waits for the second
//! one until the current updates have ended. So neither can starve the other.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
};

use crate::{Repositories, Result};

const TURNSTILE: &str = "refs.turnstile";
const GATE: &str = "refs.gate";

/// Allows updates of refs. Held until the update is also recorded in the database, so that a freeze sees both or
/// neither.
#[must_use = "it is released when it is dropped"]
pub struct RefUpdateGuard {
    _gate: File,
}

/// While it is held, no ref changes.
#[must_use = "it is released when it is dropped"]
pub struct RefFreeze {
    _turnstile: File,
    _gate: File,
}

impl Repositories {
    /// Begins an update of refs; `None` while a freeze is held or pending. It does not block, because the updates that
    /// the freeze waits for may need this thread. A caller that holds a guard must not take a second one: a freeze may
    /// become pending in between, which is a deadlock.
    pub fn try_begin_ref_update(&self) -> Result<Option<RefUpdateGuard>> {
        let turnstile = self.lock_file(TURNSTILE)?;
        if !try_lock_shared(&turnstile)? {
            return Ok(None);
        }
        let gate = self.lock_file(GATE)?;
        Ok(try_lock_shared(&gate)?.then_some(RefUpdateGuard { _gate: gate }))
    }

    /// Waits until all updates have ended; no ref changes while the result is held.
    pub fn freeze_refs(&self) -> Result<RefFreeze> {
        let turnstile = self.lock_file(TURNSTILE)?;
        turnstile.lock()?;
        let gate = self.lock_file(GATE)?;
        gate.lock()?;
        Ok(RefFreeze { _turnstile: turnstile, _gate: gate })
    }

    fn lock_file(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().write(true).create(true).truncate(false).open(self.root().join(name))
    }
}

fn try_lock_shared(file: &File) -> io::Result<bool> {
    match file.try_lock_shared() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, AtomicUsize, Ordering},
        thread,
    };

    use super::*;

    #[test]
    fn no_ref_is_updated_during_a_freeze_and_neither_side_starves() {
        let folder = tempfile::tempdir().expect("a folder");
        let repositories = Repositories::open(folder.path()).expect("repositories");
        let (active, done) = (AtomicUsize::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !done.load(Ordering::SeqCst) {
                        let Some(_guard) = repositories.try_begin_ref_update().expect("a lock") else { continue };
                        active.fetch_add(1, Ordering::SeqCst);
                        thread::yield_now();
                        active.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
            for _ in 0..50 {
                let _freeze = repositories.freeze_refs().expect("a lock");
                assert_eq!(active.load(Ordering::SeqCst), 0);
            }
            done.store(true, Ordering::SeqCst);
        });
    }
}
