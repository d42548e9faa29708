//! The lock that lets only one of several servers on a database make a backup at a time.

use super::statement::query_integer;
use crate::{Conn, Database, OpenError};

/// The key of PostgreSQL's advisory lock.
const LOCK_KEY: i64 = 0x6761_626c_6501;

/// Held while a backup is made; a single-node database needs no lock.
#[must_use = "the lock is released when it is dropped"]
pub struct BackupLock {
    _db: Option<Conn>,
}

impl BackupLock {
    /// Acquires the lock; returns `None` if another server holds it.
    pub fn try_acquire(database: &Database) -> Result<Option<Self>, OpenError> {
        if database.is_single_node() {
            return Ok(Some(Self { _db: None }));
        }
        let mut db = database.connect_reader()?;
        let acquired = query_integer(&mut db, &format!("SELECT pg_try_advisory_lock({LOCK_KEY})"))?;
        Ok((acquired == 1).then_some(Self { _db: Some(db) }))
    }
}
