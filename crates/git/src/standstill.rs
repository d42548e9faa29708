//! The instant at which all refs stand still.
//!
//! Two locks on files make a turnstile, so that it also works between processes. Whoever moves refs goes through the first
//! one and holds the second one together with others. Whoever wants a standstill holds the first one, so that nobody new
//! comes in, and waits at the second one until those who were in have left. So neither can keep the other out for long.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
};

use crate::{Repositories, Result};

const TURNSTILE: &str = "refs.turnstile";
const GATE: &str = "refs.gate";

/// Held by somebody who moves refs and writes down that they have moved: nobody sees the one without the other.
#[must_use = "it ends when it is dropped"]
pub struct Moving {
    _gate: File,
}

/// Held by somebody for whom no ref moves.
#[must_use = "it ends when it is dropped"]
pub struct Standstill {
    _turnstile: File,
    _gate: File,
}

impl Repositories {
    /// Lets refs move; `None` while somebody wants a standstill. It does not wait: a thread that waits here could be the one
    /// that those need who have to end before the standstill begins. Nobody may take a second one while holding one: between
    /// the two somebody may have asked for a standstill, and both would wait for ever.
    pub fn try_begin_moving(&self) -> Result<Option<Moving>> {
        let turnstile = self.lock_file(TURNSTILE)?;
        if !try_lock_shared(&turnstile)? {
            return Ok(None);
        }
        let gate = self.lock_file(GATE)?;
        Ok(try_lock_shared(&gate)?.then_some(Moving { _gate: gate }))
    }

    /// Waits until whatever moves has ended; from then on nothing does.
    pub fn stand_still(&self) -> Result<Standstill> {
        let turnstile = self.lock_file(TURNSTILE)?;
        turnstile.lock()?;
        let gate = self.lock_file(GATE)?;
        gate.lock()?;
        Ok(Standstill { _turnstile: turnstile, _gate: gate })
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
    fn nobody_moves_while_somebody_wants_a_standstill_and_neither_waits_for_ever() {
        let folder = tempfile::tempdir().expect("a folder");
        let repositories = Repositories::in_folder(folder.path()).expect("a place");
        let (moving, done) = (AtomicUsize::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !done.load(Ordering::SeqCst) {
                        let Some(_moving) = repositories.try_begin_moving().expect("a lock") else { continue };
                        moving.fetch_add(1, Ordering::SeqCst);
                        thread::yield_now();
                        moving.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
            for _ in 0..50 {
                let _still = repositories.stand_still().expect("a lock");
                assert_eq!(moving.load(Ordering::SeqCst), 0);
            }
            done.store(true, Ordering::SeqCst);
        });
    }
}
