//! Counting the rows of a long list, up to a limit.

use diesel::{
    QueryResult, RunQueryDsl,
    backend::Backend,
    query_builder::{AstPass, Query, QueryFragment, QueryId},
    query_dsl::methods::LoadQuery,
    sql_types::{BigInt, HasSqlType},
};
use model::{Page, Total};

/// Counts the rows of a query with one column, but not more of them than a limit.
#[derive(QueryId)]
pub(crate) struct CountUpTo<Q> {
    query: Q,
    limit: i64,
}

impl<Q> CountUpTo<Q> {
    /// Counts up to a limit.
    pub(crate) fn new(query: Q, limit: i64) -> Self {
        Self { query, limit }
    }

    /// Counts the rows of all pages, as far as the requested page needs it.
    pub(crate) fn of_list(query: Q, page: Page) -> Self {
        Self::new(query, page.count_limit())
    }

    /// Returns the number of rows, or the limit if there are more.
    pub(crate) fn count<'query, C>(self, conn: &mut C) -> QueryResult<i64>
    where
        Self: LoadQuery<'query, C, i64>,
    {
        self.get_result(conn)
    }

    /// Returns the total of a list.
    pub(crate) fn total<'query, C>(self, conn: &mut C) -> QueryResult<Total>
    where
        Self: LoadQuery<'query, C, i64>,
    {
        let limit = self.limit;
        Ok(Total::counted(self.count(conn)?, limit))
    }
}

impl<Q: Query> Query for CountUpTo<Q> {
    type SqlType = BigInt;
}

impl<Q, C> RunQueryDsl<C> for CountUpTo<Q> {}

impl<Q, DB> QueryFragment<DB> for CountUpTo<Q>
where
    DB: Backend + HasSqlType<BigInt>,
    Q: QueryFragment<DB>,
    i64: diesel::serialize::ToSql<BigInt, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT count(*) FROM (");
        self.query.walk_ast(out.reborrow())?;
        out.push_sql(" LIMIT ");
        out.push_bind_param::<BigInt, _>(&self.limit)?;
        out.push_sql(") counted");
        Ok(())
    }
}
