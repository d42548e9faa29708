//! SQL that Diesel's query builder cannot say: text with values in between, typed by whoever writes it.
//!
//! Diesel has `sql()` for this, but prepares such a statement anew each time. A fragment is prepared once.

use std::{borrow::Cow, marker::PhantomData};

use diesel::{
    AppearsOnTable, Expression, QueryResult, RunQueryDsl, SelectableExpression,
    expression::{TypedExpressionType, ValidGrouping, is_aggregate},
    pg::Pg,
    query_builder::{AstPass, Query, QueryFragment, QueryId},
    sql_types::{Array, BigInt, Bool, Text},
    sqlite::Sqlite,
};

/// A piece of SQL of a type.
#[derive(Clone)]
pub(crate) struct Fragment<ST> {
    pieces: Vec<Piece>,
    kind: PhantomData<ST>,
}

#[derive(Clone)]
enum Piece {
    Sql(Cow<'static, str>),
    Number(i64),
    Flag(bool),
    Words(String),
    /// ` IN (…)` for any number of numbers, with one statement for all of them.
    Among(Ids),
    /// A text that differs between the engines: first SQLite's, then PostgreSQL's.
    Either(&'static str, &'static str),
}

/// Numbers, as each engine takes many of them in one value.
#[derive(Clone)]
struct Ids {
    list: Vec<i64>,
    json: String,
}

impl<ST> Fragment<ST> {
    pub(crate) fn new(sql: impl Into<Cow<'static, str>>) -> Self {
        Self { pieces: vec![Piece::Sql(sql.into())], kind: PhantomData }
    }

    pub(crate) fn sql(mut self, sql: impl Into<Cow<'static, str>>) -> Self {
        self.pieces.push(Piece::Sql(sql.into()));
        self
    }

    pub(crate) fn number(mut self, number: i64) -> Self {
        self.pieces.push(Piece::Number(number));
        self
    }

    pub(crate) fn flag(mut self, flag: bool) -> Self {
        self.pieces.push(Piece::Flag(flag));
        self
    }

    pub(crate) fn words(mut self, text: impl Into<String>) -> Self {
        self.pieces.push(Piece::Words(text.into()));
        self
    }

    pub(crate) fn among(mut self, ids: &[i64]) -> Self {
        let json = format!("{ids:?}");
        self.pieces.push(Piece::Among(Ids { list: ids.to_vec(), json }));
        self
    }

    pub(crate) fn either(mut self, sqlite: &'static str, postgres: &'static str) -> Self {
        self.pieces.push(Piece::Either(sqlite, postgres));
        self
    }

    /// Goes on with the pieces of another fragment.
    pub(crate) fn then<T>(mut self, other: Fragment<T>) -> Self {
        self.pieces.extend(other.pieces);
        self
    }
}

impl<ST> QueryFragment<Sqlite> for Fragment<ST> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        for piece in &self.pieces {
            match piece {
                Piece::Sql(sql) => out.push_sql(sql),
                Piece::Number(number) => out.push_bind_param::<BigInt, _>(number)?,
                Piece::Flag(flag) => out.push_bind_param::<Bool, _>(flag)?,
                Piece::Words(text) => out.push_bind_param::<Text, _>(text)?,
                Piece::Among(ids) => {
                    out.push_sql(" IN (SELECT value FROM json_each(");
                    out.push_bind_param::<Text, _>(&ids.json)?;
                    out.push_sql("))");
                }
                Piece::Either(sql, _) => out.push_sql(sql),
            }
        }
        Ok(())
    }
}

impl<ST> QueryFragment<Pg> for Fragment<ST> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        for piece in &self.pieces {
            match piece {
                Piece::Sql(sql) => out.push_sql(sql),
                Piece::Number(number) => out.push_bind_param::<BigInt, _>(number)?,
                Piece::Flag(flag) => out.push_bind_param::<Bool, _>(flag)?,
                Piece::Words(text) => out.push_bind_param::<Text, _>(text)?,
                Piece::Among(ids) => {
                    out.push_sql(" = ANY(");
                    out.push_bind_param::<Array<BigInt>, _>(&ids.list)?;
                    out.push_sql(")");
                }
                Piece::Either(_, sql) => out.push_sql(sql),
            }
        }
        Ok(())
    }
}

impl<ST> QueryId for Fragment<ST> {
    type QueryId = ();
    // Known by its text.
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<ST: TypedExpressionType> Expression for Fragment<ST> {
    type SqlType = ST;
}

impl<ST, QS> AppearsOnTable<QS> for Fragment<ST> where Self: Expression {}

impl<ST, QS> SelectableExpression<QS> for Fragment<ST> where Self: AppearsOnTable<QS> {}

impl<ST, GB> ValidGrouping<GB> for Fragment<ST> {
    type IsAggregate = is_aggregate::Never;
}

impl<ST> Query for Fragment<ST> {
    type SqlType = ST;
}

impl<ST, C> RunQueryDsl<C> for Fragment<ST> {}
