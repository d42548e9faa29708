//! Lookups that almost every read begins with, kept for as long as the database does not change: the user of a token, and a
//! project with the roles of the user.
//!
//! Each read connection to SQLite has its own. `PRAGMA data_version` costs a tenth of what one of them does. On PostgreSQL the
//! version costs as much as a lookup, so nothing is kept.

use std::{collections::HashMap, hash::Hash};

use jiff::civil::Date;
use model::{Project, Time, Token, User, UserId, members::utc_date, tokens::Digest};
use store::{Conn, DataVersion};

use crate::{ProjectRef, Result};

/// The maximum number of entries of each kind; above it, all of them are dropped.
const MAX_ENTRIES: usize = 256;

/// What a project was looked up for: the user, whether they are an administrator, and the project.
type ProjectKey = (UserId, bool, ProjectRef);

/// The lookups of a connection.
#[derive(Default)]
pub(crate) struct Lookups {
    /// The version of the data, and the day on which it was read: memberships expire at midnight.
    valid_for: Option<(DataVersion, Date)>,
    tokens: HashMap<Digest, (Token, User)>,
    projects: HashMap<ProjectKey, Project>,
}

impl Lookups {
    /// Drops what is not valid for the data that a connection sees now. Returns `None` on PostgreSQL.
    pub(crate) fn current(&mut self, db: &mut Conn, now: Time) -> Result<Option<&mut Self>> {
        if !matches!(db, Conn::Sqlite(_)) {
            return Ok(None);
        }
        let current = Some((db.data_version()?, utc_date(now)));
        if self.valid_for != current {
            *self = Self { valid_for: current, ..Self::default() };
        }
        Ok(Some(self))
    }

    /// Returns a token, which may have expired, and its user.
    pub(crate) fn token(
        &mut self,
        digest: &Digest,
        find: impl FnOnce() -> Result<Option<(Token, User)>>,
    ) -> Result<Option<(Token, User)>> {
        find_or_insert(&mut self.tokens, digest, find)
    }

    /// Returns a project with the roles of a user.
    pub(crate) fn project(
        &mut self,
        key: &ProjectKey,
        find: impl FnOnce() -> Result<Option<Project>>,
    ) -> Result<Option<Project>> {
        find_or_insert(&mut self.projects, key, find)
    }
}

/// Returns a known value, or looks it up. That there is none is not kept: it may be asked for anything.
fn find_or_insert<K: Clone + Eq + Hash, V: Clone>(
    known: &mut HashMap<K, V>,
    key: &K,
    find: impl FnOnce() -> Result<Option<V>>,
) -> Result<Option<V>> {
    if let Some(value) = known.get(key) {
        return Ok(Some(value.clone()));
    }
    let found = find()?;
    if let Some(value) = &found {
        if known.len() >= MAX_ENTRIES {
            known.clear();
        }
        known.insert(key.clone(), value.clone());
    }
    Ok(found)
}
