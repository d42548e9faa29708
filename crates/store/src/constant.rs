//! Queries whose SQL text never changes.

use std::{
    any::TypeId,
    collections::HashMap,
    marker::PhantomData,
    sync::{LazyLock, PoisonError, RwLock},
};

use diesel::{
    QueryResult, RunQueryDsl, SqliteConnection,
    backend::Backend,
    pg::Pg,
    query_builder::{AstPass, Query, QueryBuilder, QueryFragment, QueryId},
    sqlite::Sqlite,
};
use diesel_async::{AsyncConnectionCore as _, async_connection_wrapper::BlockOn as _};

use crate::postgres::{PgConnection, ThreadRuntime};

/// A query whose SQL text is the same each time it runs at one place of the code; only bound values differ.
///
/// Diesel writes the text of a query with parts of [`Fragment`](crate::fragment::Fragment) each time, to look up the prepared
/// statement by it. For a query with many columns this takes longer than running it. `Place` identifies the text instead.
/// An update is prepared each time, because its columns may depend on values; on PostgreSQL one of these is prepared once.
pub(crate) struct Constant<Q, Place> {
    query: Q,
    place: PhantomData<Place>,
}

impl<Q, Place> Constant<Q, Place> {
    /// Use [`constant!`](crate::constant::constant), which declares a type for its place.
    pub(crate) fn new(query: Q) -> Self {
        Self { query, place: PhantomData }
    }
}

/// Declares that the SQL text of a query does not depend on any value. Builds with debug assertions, such as tests, check it.
macro_rules! constant {
    ($query:expr) => {{
        struct Place;
        $crate::constant::Constant::<_, Place>::new($query)
    }};
}
pub(crate) use constant;

impl<Q, Place: 'static> QueryId for Constant<Q, Place> {
    type QueryId = Place;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl<Q: Query, Place> Query for Constant<Q, Place> {
    type SqlType = Q::SqlType;
}

impl<Q, Place, C> RunQueryDsl<C> for Constant<Q, Place> {}

impl<Q, Place> Constant<Q, Place> {
    /// Runs the query and returns the number of rows that it changed.
    ///
    /// It hides the method of the same name of Diesel, which hands a reference to the connection. The reference is asked whether
    /// the statement may be cached, and that forgets what this type says. For SQLite Diesel has no other method; there an update
    /// is prepared each time, which takes much less time than its commit.
    pub(crate) fn execute<C: ExecuteConstant<Q, Place>>(self, conn: &mut C) -> QueryResult<usize> {
        conn.execute_constant(self)
    }
}

/// A connection that runs a [`Constant`].
pub(crate) trait ExecuteConstant<Q, Place> {
    /// See [`Constant::execute`].
    fn execute_constant(&mut self, query: Constant<Q, Place>) -> QueryResult<usize>;
}

impl<Q: QueryFragment<Sqlite>, Place: 'static> ExecuteConstant<Q, Place> for SqliteConnection {
    fn execute_constant(&mut self, query: Constant<Q, Place>) -> QueryResult<usize> {
        RunQueryDsl::execute(query, self)
    }
}

impl<Q: QueryFragment<Pg>, Place: 'static> ExecuteConstant<Q, Place> for PgConnection {
    fn execute_constant(&mut self, query: Constant<Q, Place>) -> QueryResult<usize> {
        let mut conn = &**self;
        ThreadRuntime.block_on(conn.execute_returning_count(query))
    }
}

/// The texts, by backend and place.
static TEXTS: LazyLock<RwLock<HashMap<(TypeId, TypeId), &'static str>>> = LazyLock::new(RwLock::default);

impl<Q, Place: 'static> Constant<Q, Place> {
    /// Returns the SQL text, which is written once.
    fn text<DB>(&self, backend: &DB) -> QueryResult<&'static str>
    where
        DB: Backend + 'static,
        DB::QueryBuilder: Default,
        Q: QueryFragment<DB>,
    {
        let key = (TypeId::of::<DB>(), TypeId::of::<Place>());
        if let Some(text) = TEXTS.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(text);
        }
        let text = self.write(backend)?;
        // There are as many texts as places.
        let mut texts = TEXTS.write().unwrap_or_else(PoisonError::into_inner);
        Ok(texts.entry(key).or_insert_with(|| text.leak()))
    }

    fn write<DB>(&self, backend: &DB) -> QueryResult<String>
    where
        DB: Backend + 'static,
        DB::QueryBuilder: Default,
        Q: QueryFragment<DB>,
    {
        let mut builder = DB::QueryBuilder::default();
        self.query.to_sql(&mut builder, backend)?;
        Ok(builder.finish())
    }

    fn check<DB>(&self, backend: &DB) -> QueryResult<bool>
    where
        DB: Backend + 'static,
        DB::QueryBuilder: Default,
        Q: QueryFragment<DB>,
    {
        if cfg!(debug_assertions) {
            assert_eq!(self.text(backend)?, self.write(backend)?, "the text of a constant query has changed");
        }
        Ok(true)
    }
}

/// Implements the trait for one backend, because the functions to override need its concrete type.
macro_rules! impl_query_fragment {
    ($backend:ty) => {
        impl<Q: QueryFragment<$backend>, Place: 'static> QueryFragment<$backend> for Constant<Q, Place> {
            fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, $backend>) -> QueryResult<()> {
                self.query.walk_ast(out)
            }

            fn to_sql(&self, out: &mut <$backend as Backend>::QueryBuilder, backend: &$backend) -> QueryResult<()> {
                out.push_sql(self.text(backend)?);
                Ok(())
            }

            fn is_safe_to_cache_prepared(&self, backend: &$backend) -> QueryResult<bool> {
                self.check(backend)
            }
        }
    };
}
impl_query_fragment!(Sqlite);
impl_query_fragment!(Pg);

#[cfg(test)]
mod tests {
    use diesel::{Connection, sql_types::BigInt};

    use super::*;
    use crate::fragment::Fragment;

    fn plus_one(conn: &mut SqliteConnection, number: i64, sql: &'static str) -> QueryResult<i64> {
        constant!(Fragment::<BigInt>::new("SELECT ").number(number).sql(sql)).get_result(conn)
    }

    #[test]
    fn a_constant_query_binds_other_values_each_time() {
        let mut conn = SqliteConnection::establish(":memory:").expect("a database");
        let results: Vec<i64> =
            [1, 20, 300].into_iter().map(|number| plus_one(&mut conn, number, " + 1").expect("a number")).collect();
        assert_eq!(results, [2, 21, 301]);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "the text of a constant query has changed")]
    fn another_text_is_noticed() {
        let mut conn = SqliteConnection::establish(":memory:").expect("a database");
        for sql in [" + 10", " + 100"] {
            constant!(Fragment::<BigInt>::new("SELECT ").number(1_i64).sql(sql))
                .get_result::<i64>(&mut conn)
                .expect("run");
        }
    }
}
