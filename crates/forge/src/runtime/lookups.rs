//! Lookups that almost every read begins with, kept for as long as the database does not change: the user of a token, and a
//! project with the roles of the user.
//!
//! Each read connection has its own. On SQLite `PRAGMA data_version` costs a tenth of what one of them does. On PostgreSQL the
//! version costs a statement, about a tenth of both; so it is asked for rarely while the database changes all the time
//! ([`VersionChecks`]).

use std::{collections::HashMap, hash::Hash};

use jiff::civil::Date;
use model::{Project, Time, Token, User, UserId, members::utc_date, tokens::Digest};
use store::{Conn, DataVersion};

use crate::{Caller, ProjectRef, Result};

/// The maximum number of entries of each kind; above it, all of them are dropped.
const MAX_ENTRIES: usize = 256;

/// The number of changes in a row after which the version is asked for rarely.
const MAX_CHANGES: u32 = 4;
/// The number of reads from one rare check to the next.
const RARE_INTERVAL: u32 = 16;

/// What a project was looked up for: the user, whether they are an administrator, and the project.
type ProjectKey = (UserId, bool, ProjectRef);

/// The lookups of a connection.
#[derive(Default)]
pub(crate) struct Lookups {
    /// The version of the data, and the day on which it was read: memberships expire at midnight.
    valid_for: Option<(DataVersion, Date)>,
    tokens: HashMap<Digest, (Token, User)>,
    projects: HashMap<ProjectKey, Project>,
    checks: VersionChecks,
}

/// Decides whether a read on PostgreSQL asks for the version. Where writes are as frequent as reads, that rarely saves anything.
#[derive(Debug, Default)]
struct VersionChecks {
    /// How often in a row the version was another one.
    changes: u32,
    /// The number of reads since the last check.
    skipped: u32,
}

impl VersionChecks {
    fn is_due(&mut self) -> bool {
        if self.changes < MAX_CHANGES || self.skipped + 1 >= RARE_INTERVAL {
            self.skipped = 0;
            return true;
        }
        self.skipped += 1;
        false
    }

    fn record(&mut self, has_changed: bool) {
        self.changes = if has_changed { self.changes.saturating_add(1) } else { 0 };
    }
}

impl Lookups {
    /// Drops what is not valid for the data that a connection sees now. Returns `None` if the read has to look up everything.
    pub(crate) fn current(&mut self, db: &mut Conn, caller: &Caller, now: Time) -> Result<Option<&mut Self>> {
        // The server itself has no token, and its reads, such as those that look for work, rarely need a project.
        if caller.is_system() || (matches!(db, Conn::Pg(_)) && !self.checks.is_due()) {
            return Ok(None);
        }
        let current = Some((db.data_version()?, utc_date(now)));
        let has_changed = self.valid_for != current;
        if has_changed {
            self.tokens.clear();
            self.projects.clear();
            self.valid_for = current;
        }
        self.checks.record(has_changed);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_asked_for_rarely_while_the_data_changes_all_the_time() {
        let mut checks = VersionChecks::default();
        let mut read = |has_changed| {
            let is_due = checks.is_due();
            if is_due {
                checks.record(has_changed);
            }
            is_due
        };
        assert!((0..MAX_CHANGES).all(|_| read(true)));
        for _ in 0..3 {
            let asked = (0..RARE_INTERVAL).filter(|_| read(true)).count();
            assert_eq!(asked, 1);
        }
        // It has not changed since the last check.
        while !read(false) {}
        assert!((0..100).all(|_| read(false)));
    }
}
