//! The read connection of a thread, and how reads run on it.

use store::{Conn, Database, OpenError};
use tracing::warn;

use super::{ReadTx, Shared, catch_panic, with_read_tx};
use crate::{
    Caller, Error, Result,
    caller::{self, Authenticated},
    lookups::Lookups,
    read_cache::{ReadCache, ReadCacheEntry, ReadCacheKey},
};

/// The read connection of a thread, opened when it is first needed, with the thread's cache.
pub(super) struct ReadConnection {
    database: Database,
    conn: Option<Conn>,
    cache: ReadCache,
    lookups: Lookups,
}

impl ReadConnection {
    pub(super) fn new(database: &Database) -> Self {
        Self { database: database.clone(), conn: None, cache: ReadCache::default(), lookups: Lookups::default() }
    }

    pub(super) fn read<T>(
        &mut self,
        shared: &Shared,
        caller: &Caller,
        f: &mut impl FnMut(&mut ReadTx<'_>) -> Result<T>,
    ) -> Result<T> {
        self.with_reconnection(|connection| connection.read_once(shared, caller, true, f))
    }

    /// As [`Self::read`], for standbys: if the connection is lost, the read fails, because another server may replace it. Nothing
    /// is kept for later reads, because the version of the data on a standby does not change with each commit.
    pub(super) fn read_without_reconnection<T>(
        &mut self,
        shared: &Shared,
        caller: &Caller,
        f: &mut impl FnMut(&mut ReadTx<'_>) -> Result<T>,
    ) -> Result<T> {
        let result = self.read_once(shared, caller, false, f);
        self.disconnect_on_error(result)
    }

    /// Reads again on a new connection if the connection was lost.
    fn with_reconnection<T>(&mut self, mut read: impl FnMut(&mut Self) -> Result<T>) -> Result<T> {
        match read(self) {
            Err(Error::Store(error)) if error.is_disconnected() => {
                warn!(%error, "lost the database connection; opening a new one");
                self.conn = None;
                let result = read(self);
                self.disconnect_on_error(result)
            }
            result => self.disconnect_on_error(result),
        }
    }

    /// Drops the connection after a database error: whatever state it is in, it must not fail all later reads.
    fn disconnect_on_error<T>(&mut self, result: Result<T>) -> Result<T> {
        if matches!(result, Err(Error::Store(_) | Error::DiskFull(_))) {
            self.conn = None;
        }
        match result {
            Err(Error::Store(error)) if error.is_disconnected() => Err(Error::Unavailable(error.into())),
            result => result,
        }
    }

    /// Reads a few rows by key, without a transaction around the statements.
    pub(super) fn read_inline<T>(
        &mut self,
        shared: &Shared,
        caller: &Caller,
        f: &mut impl FnMut(&mut ReadTx<'_>) -> Result<T>,
    ) -> Result<T> {
        let (db, lookups) = self.connect_with_lookups()?;
        let result = catch_panic(|| {
            // The version is read first: a commit afterwards makes the lookups invalid, never stale.
            let lookups = lookups.current(db, caller, shared.clock.now())?;
            with_read_tx(shared, db, lookups, caller, |mut tx| f(&mut tx))
        });
        self.disconnect_on_error(result)
    }

    /// Returns the cached value if it is still valid; otherwise reads it, without a transaction around the statements, and
    /// caches it.
    pub(super) fn read_cached<T: Clone + 'static>(
        &mut self,
        shared: &Shared,
        caller: &Caller,
        key: &ReadCacheKey,
        f: &mut impl FnMut(&mut ReadTx<'_>) -> Result<T>,
    ) -> Result<T> {
        self.with_reconnection(|connection| connection.read_cached_once(shared, caller, key, f))
    }

    fn read_cached_once<T: Clone + 'static>(
        &mut self,
        shared: &Shared,
        caller: &Caller,
        key: &ReadCacheKey,
        f: &mut impl FnMut(&mut ReadTx<'_>) -> Result<T>,
    ) -> Result<T> {
        let now = shared.clock.now();
        // Read first: a commit during the read then makes the entry invalid, never stale.
        let data_version = self.connect()?.data_version()?;
        if let Some(entry) = self.cache.get(key, &data_version, now)
            && let Some(value) = entry.value.downcast_ref::<T>()
        {
            if let Some(token) = &entry.token {
                shared.token_uses.record(token, now);
            }
            caller.record_ids(entry.user, entry.acting_as);
            return Ok(value.clone());
        }
        let mut used_token = None;
        let db = self.connect()?;
        let result = catch_panic(|| {
            // Sessions of the web interface are not cached.
            let Authenticated { actor, token, .. } = caller::authenticate(db, None, caller, now)?;
            if let Some(token) = &token {
                shared.token_uses.record(token, now);
            }
            let token_id = token.as_ref().map(|token| token.id);
            used_token = token;
            f(&mut ReadTx {
                db,
                shared,
                actor,
                token: token_id,
                web_session: None,
                now,
                hook_depth: caller.hook_depth(),
                is_writing: false,
                lookups: None,
            })
        });
        let value = result?;
        let (user, acting_as) = caller.logged_ids();
        let entry = ReadCacheEntry {
            data_version,
            created_at: now,
            token: used_token,
            user,
            acting_as,
            value: Box::new(value.clone()),
        };
        self.cache.insert(key.clone(), entry);
        Ok(value)
    }

    pub(super) fn is_connected(&self) -> bool {
        self.conn.is_some()
    }

    /// Returns the connection if it is open.
    pub(super) fn open_connection(&mut self) -> Option<&mut Conn> {
        self.conn.as_mut()
    }

    /// Closes the connection.
    pub(super) fn disconnect(&mut self) {
        self.conn = None;
    }

    /// Returns the connection, which is opened if necessary.
    pub(super) fn connect(&mut self) -> Result<&mut Conn> {
        if self.conn.is_none() {
            let is_sqlite = self.database.is_sqlite();
            let failed = |error: OpenError| {
                if is_sqlite { Error::Internal(error.into()) } else { Error::Unavailable(error.into()) }
            };
            self.conn = Some(self.database.connect_reader().map_err(failed)?);
            // Data versions of different connections are not comparable.
            self.cache = ReadCache::default();
            self.lookups = Lookups::default();
        }
        Ok(self.conn.as_mut().expect("just connected"))
    }

    /// Returns the connection, which is opened if necessary, and what was looked up on it.
    fn connect_with_lookups(&mut self) -> Result<(&mut Conn, &mut Lookups)> {
        self.connect()?;
        let conn = self.conn.as_mut().expect("just connected");
        Ok((conn, &mut self.lookups))
    }

    fn read_once<T>(
        &mut self,
        shared: &Shared,
        caller: &Caller,
        keeps_lookups: bool,
        f: &mut impl FnMut(&mut ReadTx<'_>) -> Result<T>,
    ) -> Result<T> {
        let (db, lookups) = self.connect_with_lookups()?;
        db.begin_reading()?;
        // Panics are caught here too, so that no transaction stays open.
        let result = catch_panic(|| {
            let lookups = if keeps_lookups { lookups.current(db, caller, shared.clock.now())? } else { None };
            with_read_tx(shared, db, lookups, caller, |mut tx| f(&mut tx))
        });
        db.end_reading()?;
        result
    }
}
