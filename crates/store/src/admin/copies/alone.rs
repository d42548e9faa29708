//! Of several servers on one database, one at a time makes a copy of it.

use super::statement::number;
use crate::{Conn, Database, OpenError};

/// A key for PostgreSQL's advisory lock.
const LOCK: i64 = 0x6761_626c_6501;

/// Held by the one who makes a copy; an embedded database has only one server anyway.
#[must_use = "it ends when it is dropped"]
pub struct Alone {
    _db: Option<Conn>,
}

impl Alone {
    /// `None` if somebody else is at it.
    pub fn try_take(database: &Database) -> Result<Option<Self>, OpenError> {
        if database.is_embedded() {
            return Ok(Some(Self { _db: None }));
        }
        let mut db = database.connect_reader()?;
        let taken = number(&mut db, &format!("SELECT pg_try_advisory_lock({LOCK})"))?;
        Ok((taken == 1).then_some(Self { _db: Some(db) }))
    }
}
