//! A per-thread cache of reads, valid for as long as the database does not change.
//!
//! Both engines identify the committed data at little cost: `PRAGMA data_version` of SQLite counts the commits of all other
//! connections, including those of other processes, and `pg_current_snapshot()` of PostgreSQL determines the transactions
//! that have ended. While it is unchanged, reading again would return the same. Expiry of tokens and memberships also
//! depends on the time and is checked for each entry.

use std::{any::Any, collections::HashMap};

use model::{Time, Token, UserId, members::utc_date};
use store::DataVersion;

use crate::caller::CallerKey;

/// The maximum number of entries; above it, the older half is dropped.
const MAX_ENTRIES: usize = 512;

/// The caller and the subject of a read.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct ReadCacheKey {
    pub(crate) caller: CallerKey,
    pub(crate) subject: String,
}

/// A cached value, and what its validity depends on.
pub(crate) struct ReadCacheEntry {
    /// The version of the database before the read.
    pub(crate) data_version: DataVersion,
    pub(crate) created_at: Time,
    /// The token that authenticated the caller.
    pub(crate) token: Option<Token>,
    /// The ids of the caller for the log.
    pub(crate) user: Option<UserId>,
    pub(crate) acting_as: Option<UserId>,
    pub(crate) value: Box<dyn Any>,
}

impl ReadCacheEntry {
    /// Returns whether reading again would return the same value.
    fn is_valid(&self, data_version: &DataVersion, now: Time) -> bool {
        let token_valid = self.token.as_ref().and_then(|token| token.expires_at).is_none_or(|end| now < end);
        // Memberships expire at midnight.
        self.data_version == *data_version && token_valid && utc_date(self.created_at) == utc_date(now)
    }
}

/// The entries of one thread, in two generations of which the older is dropped as a whole.
#[derive(Default)]
pub(crate) struct ReadCache {
    recent: HashMap<ReadCacheKey, ReadCacheEntry>,
    old: HashMap<ReadCacheKey, ReadCacheEntry>,
}

impl ReadCache {
    /// Returns the entry of a key, if it is still valid.
    pub(crate) fn get(&mut self, key: &ReadCacheKey, data_version: &DataVersion, now: Time) -> Option<&ReadCacheEntry> {
        if let Some(entry) = self.old.remove(key) {
            self.insert(key.clone(), entry);
        }
        self.recent.get(key).filter(|entry| entry.is_valid(data_version, now))
    }

    pub(crate) fn insert(&mut self, key: ReadCacheKey, entry: ReadCacheEntry) {
        if self.recent.len() >= MAX_ENTRIES / 2 {
            self.old = std::mem::take(&mut self.recent);
        }
        self.recent.insert(key, entry);
    }
}
