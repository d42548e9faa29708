//! SQL that Diesel's query builder cannot express: text with bound values, whose type is declared by the caller.
//!
//! Diesel has `sql()` for this, but prepares such a statement each time. A fragment is prepared once and cached.

use std::{borrow::Cow, marker::PhantomData};

use diesel::{
    AppearsOnTable, Expression, QueryResult, RunQueryDsl, SelectableExpression,
    expression::{TypedExpressionType, ValidGrouping, is_aggregate},
    pg::Pg,
    query_builder::{AstPass, Query, QueryFragment, QueryId},
    sql_types::{Array, BigInt, Bool, Text},
    sqlite::Sqlite,
};

/// A piece of SQL with the type `ST`.
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
    Text(String),
    /// ` IN (…)` for any number of ids, bound as one value so that the statement does not depend on their number.
    InIds(Ids),
    /// As `InIds`, for texts.
    InTexts(Texts),
    /// SQL that differs between the engines: first SQLite's, then PostgreSQL's.
    PerEngine(Cow<'static, str>, Cow<'static, str>),
}

/// A list of ids in the form in which each engine binds it as one value.
#[derive(Clone)]
struct Ids {
    list: Vec<i64>,
    json: String,
}

/// As [`Ids`], for texts.
#[derive(Clone)]
struct Texts {
    list: Vec<String>,
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

    pub(crate) fn number(mut self, number: impl Into<i64>) -> Self {
        self.pieces.push(Piece::Number(number.into()));
        self
    }

    pub(crate) fn flag(mut self, flag: bool) -> Self {
        self.pieces.push(Piece::Flag(flag));
        self
    }

    pub(crate) fn text(mut self, text: impl Into<String>) -> Self {
        self.pieces.push(Piece::Text(text.into()));
        self
    }

    pub(crate) fn in_ids<I: Copy + Into<i64>>(mut self, ids: &[I]) -> Self {
        let list: Vec<i64> = ids.iter().map(|id| (*id).into()).collect();
        let json = format!("{list:?}");
        self.pieces.push(Piece::InIds(Ids { list, json }));
        self
    }

    pub(crate) fn in_texts<T: AsRef<str>>(mut self, texts: &[T]) -> Self {
        let list: Vec<String> = texts.iter().map(|text| text.as_ref().to_owned()).collect();
        let json = json_array(&list);
        self.pieces.push(Piece::InTexts(Texts { list, json }));
        self
    }

    /// ` IN (…)` for the ids that a query returns. PostgreSQL runs it first and expects few ids, whatever its `LIMIT` is.
    pub(crate) fn in_query(self, query: Fragment<BigInt>) -> Self {
        self.per_engine(" IN (", " = ANY(ARRAY(").append(query).per_engine(")", "))")
    }

    pub(crate) fn per_engine(
        mut self,
        sqlite: impl Into<Cow<'static, str>>,
        postgres: impl Into<Cow<'static, str>>,
    ) -> Self {
        self.pieces.push(Piece::PerEngine(sqlite.into(), postgres.into()));
        self
    }

    /// Appends the pieces of another fragment.
    pub(crate) fn append<T>(mut self, other: Fragment<T>) -> Self {
        self.pieces.extend(other.pieces);
        self
    }
}

/// Returns a JSON array of texts.
fn json_array(texts: &[String]) -> String {
    let mut json = String::from("[");
    for (number, text) in texts.iter().enumerate() {
        json.push_str(if number == 0 { "\"" } else { ",\"" });
        for c in text.chars() {
            match c {
                '"' | '\\' => json.extend(['\\', c]),
                '\0'..=' ' => json.push_str(&format!("\\u{:04x}", u32::from(c))),
                _ => json.push(c),
            }
        }
        json.push('"');
    }
    json.push(']');
    json
}

impl<ST> QueryFragment<Sqlite> for Fragment<ST> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        for piece in &self.pieces {
            match piece {
                Piece::Sql(sql) | Piece::PerEngine(sql, _) => out.push_sql(sql),
                Piece::Number(number) => out.push_bind_param::<BigInt, _>(number)?,
                Piece::Flag(flag) => out.push_bind_param::<Bool, _>(flag)?,
                Piece::Text(text) => out.push_bind_param::<Text, _>(text)?,
                Piece::InIds(Ids { json, .. }) | Piece::InTexts(Texts { json, .. }) => {
                    out.push_sql(" IN (SELECT value FROM json_each(");
                    out.push_bind_param::<Text, _>(json)?;
                    out.push_sql("))");
                }
            }
        }
        Ok(())
    }
}

impl<ST> QueryFragment<Pg> for Fragment<ST> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        for piece in &self.pieces {
            match piece {
                Piece::Sql(sql) | Piece::PerEngine(_, sql) => out.push_sql(sql),
                Piece::Number(number) => out.push_bind_param::<BigInt, _>(number)?,
                Piece::Flag(flag) => out.push_bind_param::<Bool, _>(flag)?,
                Piece::Text(text) => out.push_bind_param::<Text, _>(text)?,
                Piece::InIds(ids) => {
                    out.push_sql(" = ANY(");
                    out.push_bind_param::<Array<BigInt>, _>(&ids.list)?;
                    out.push_sql(")");
                }
                Piece::InTexts(texts) => {
                    out.push_sql(" = ANY(");
                    out.push_bind_param::<Array<Text>, _>(&texts.list)?;
                    out.push_sql(")");
                }
            }
        }
        Ok(())
    }
}

impl<ST> QueryId for Fragment<ST> {
    type QueryId = ();
    // The statement cache identifies it by its text.
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

#[cfg(test)]
mod tests {
    use diesel::{Connection, SqliteConnection};

    use super::*;

    #[test]
    fn texts_are_found_in_a_list_whatever_they_contain() {
        let mut conn = SqliteConnection::establish(":memory:").expect("a database");
        let texts = ["plain", "two words", "\"quoted\" \\ back", "tab\tnew\nline", "漢字 🦀", ""];
        let mut is_in = |text: &str, list: &[&str]| -> bool {
            let query = Fragment::<Bool>::new("SELECT ").text(text).in_texts(list);
            query.get_result(&mut conn).expect("a result")
        };
        for text in texts {
            let others: Vec<&str> = texts.into_iter().filter(|other| *other != text).collect();
            assert!(is_in(text, &texts), "{text:?}");
            assert!(!is_in(text, &others), "{text:?}");
        }
    }
}
