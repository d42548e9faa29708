//! Statements whose columns are known only when they run, and rows of the same kind.

use diesel::{
    QueryResult, QueryableByName, RunQueryDsl, deserialize,
    pg::Pg,
    query_builder::{AstPass, Query, QueryFragment, QueryId},
    row::{Field as _, NamedRow, Row as DieselRow},
    sql_types::{BigInt, Binary, Bool, Double, Nullable, Text, Untyped},
    sqlite::{Sqlite, SqliteType},
};

use super::{Row, Value};
use crate::{Conn, OpenError, conn::on};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Integer,
    Flag,
    Real,
    Text,
    Bytes,
}

impl Kind {
    /// By the word that an engine has for it.
    pub(super) fn named(word: &str) -> Option<Self> {
        Some(match word.to_ascii_lowercase().as_str() {
            "integer" | "int" | "bigint" | "smallint" => Self::Integer,
            "boolean" => Self::Flag,
            "real" | "double precision" => Self::Real,
            "text" => Self::Text,
            "blob" | "bytea" => Self::Bytes,
            _ => return None,
        })
    }
}

/// A text with values in between.
#[derive(Default)]
pub(super) struct Statement(Vec<Piece>);

enum Piece {
    Sql(String),
    Integer(Option<i64>),
    Flag(Option<bool>),
    Real(Option<f64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
}

impl Statement {
    pub(super) fn new(sql: impl Into<String>) -> Self {
        Self(vec![Piece::Sql(sql.into())])
    }

    pub(super) fn sql(&mut self, sql: impl Into<String>) {
        self.0.push(Piece::Sql(sql.into()));
    }

    /// Binds a value; `false` if a column of this kind cannot hold it.
    #[must_use]
    pub(super) fn bind(&mut self, kind: Kind, value: Value) -> bool {
        self.0.push(match (kind, value) {
            (Kind::Integer, Value::Null) => Piece::Integer(None),
            (Kind::Integer, Value::Integer(number)) => Piece::Integer(Some(number)),
            (Kind::Flag, Value::Null) => Piece::Flag(None),
            (Kind::Flag, Value::Integer(number @ (0 | 1))) => Piece::Flag(Some(number == 1)),
            (Kind::Real, Value::Null) => Piece::Real(None),
            (Kind::Real, Value::Real(number)) => Piece::Real(Some(number)),
            (Kind::Text, Value::Null) => Piece::Text(None),
            (Kind::Text, Value::Text(text)) => Piece::Text(Some(text)),
            (Kind::Bytes, Value::Null) => Piece::Bytes(None),
            (Kind::Bytes, Value::Bytes(bytes)) => Piece::Bytes(Some(bytes)),
            _ => return false,
        });
        true
    }

    /// All rows that it answers with.
    pub(super) fn load(self, db: &mut Conn) -> Result<Vec<Row>, OpenError> {
        let rows: Vec<Dynamic> = on!(db, conn => self.get_results(conn)).map_err(failed)?;
        Ok(rows.into_iter().map(|Dynamic(row)| row).collect())
    }

    /// Does it.
    pub(super) fn run(self, db: &mut Conn) -> Result<(), OpenError> {
        on!(db, conn => self.execute(conn)).map(drop).map_err(failed)
    }
}

/// The first column of all rows, where it is words.
pub(super) fn words(db: &mut Conn, sql: &str) -> Result<Vec<String>, OpenError> {
    let rows = Statement::new(sql).load(db)?;
    let first = |row: Row| match row.into_iter().next() {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    };
    Ok(rows.into_iter().filter_map(first).collect())
}

/// The number that a statement answers with.
pub(super) fn number(db: &mut Conn, sql: &str) -> Result<i64, OpenError> {
    match Statement::new(sql).load(db)?.first().and_then(|row| row.first()) {
        Some(Value::Integer(number)) => Ok(*number),
        _ => Err(OpenError::new("the database does not answer with a number")),
    }
}

fn failed(error: diesel::result::Error) -> OpenError {
    OpenError::new(error.to_string())
}

macro_rules! walk {
    ($backend:ty) => {
        impl QueryFragment<$backend> for Statement {
            fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, $backend>) -> QueryResult<()> {
                for piece in &self.0 {
                    match piece {
                        Piece::Sql(sql) => out.push_sql(sql),
                        Piece::Integer(value) => out.push_bind_param::<Nullable<BigInt>, _>(value)?,
                        Piece::Flag(value) => out.push_bind_param::<Nullable<Bool>, _>(value)?,
                        Piece::Real(value) => out.push_bind_param::<Nullable<Double>, _>(value)?,
                        Piece::Text(value) => out.push_bind_param::<Nullable<Text>, _>(value)?,
                        Piece::Bytes(value) => out.push_bind_param::<Nullable<Binary>, _>(value)?,
                    }
                }
                Ok(())
            }
        }
    };
}
walk!(Sqlite);
walk!(Pg);

impl QueryId for Statement {
    type QueryId = ();
    // Known by its text.
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl Query for Statement {
    type SqlType = Untyped;
}

impl<C> RunQueryDsl<C> for Statement {}

/// A row whose columns say themselves what they are.
struct Dynamic(Row);

impl QueryableByName<Sqlite> for Dynamic {
    fn build<'a>(row: &impl NamedRow<'a, Sqlite>) -> deserialize::Result<Self> {
        let mut values = Vec::with_capacity(row.field_count());
        for index in 0..row.field_count() {
            let field = DieselRow::get(row, index).ok_or("a row is too short")?;
            values.push(match field.value() {
                None => Value::Null,
                Some(mut value) => match value.value_type() {
                    Some(SqliteType::Text) => Value::Text(value.read_text().to_owned()),
                    Some(SqliteType::Binary) => Value::Bytes(value.read_blob().to_owned()),
                    Some(SqliteType::Float | SqliteType::Double) => Value::Real(value.read_double()),
                    Some(_) => Value::Integer(value.read_long()),
                    None => Value::Null,
                },
            });
        }
        Ok(Self(values))
    }
}

impl QueryableByName<Pg> for Dynamic {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> deserialize::Result<Self> {
        let mut values = Vec::with_capacity(row.field_count());
        for index in 0..row.field_count() {
            let field = DieselRow::get(row, index).ok_or("a row is too short")?;
            let Some(value) = field.value() else {
                values.push(Value::Null);
                continue;
            };
            let bytes = value.as_bytes();
            // The numbers of the built-in types never change.
            values.push(match value.get_oid().get() {
                16 => Value::Integer(i64::from(bytes.first().is_some_and(|byte| *byte != 0))),
                17 => Value::Bytes(bytes.to_owned()),
                20 => Value::Integer(i64::from_be_bytes(bytes.try_into()?)),
                21 => Value::Integer(i16::from_be_bytes(bytes.try_into()?).into()),
                23 => Value::Integer(i32::from_be_bytes(bytes.try_into()?).into()),
                25 | 1043 => Value::Text(std::str::from_utf8(bytes)?.to_owned()),
                701 => Value::Real(f64::from_be_bytes(bytes.try_into()?)),
                other => return Err(format!("a column is of the type {other}, which cannot be copied").into()),
            });
        }
        Ok(Self(values))
    }
}
