//! Statements and rows whose columns are only known at run time.

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

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnKind {
    Integer,
    Flag,
    Real,
    Text,
    Bytes,
}

impl ColumnKind {
    /// Returns the kind of a column by the type name of either engine.
    pub(super) fn from_type_name(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "integer" | "int" | "bigint" | "smallint" => Self::Integer,
            "boolean" => Self::Flag,
            "real" | "double precision" => Self::Real,
            "text" => Self::Text,
            "blob" | "bytea" => Self::Bytes,
            _ => return None,
        })
    }
}

/// An SQL text with bound values.
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
    pub(super) fn bind(&mut self, kind: ColumnKind, value: Value) -> bool {
        self.0.push(match (kind, value) {
            (ColumnKind::Integer, Value::Null) => Piece::Integer(None),
            (ColumnKind::Integer, Value::Integer(number)) => Piece::Integer(Some(number)),
            (ColumnKind::Flag, Value::Null) => Piece::Flag(None),
            (ColumnKind::Flag, Value::Integer(number @ (0 | 1))) => Piece::Flag(Some(number == 1)),
            (ColumnKind::Real, Value::Null) => Piece::Real(None),
            (ColumnKind::Real, Value::Real(number)) => Piece::Real(Some(number)),
            (ColumnKind::Text, Value::Null) => Piece::Text(None),
            (ColumnKind::Text, Value::Text(text)) => Piece::Text(Some(text)),
            (ColumnKind::Bytes, Value::Null) => Piece::Bytes(None),
            (ColumnKind::Bytes, Value::Bytes(bytes)) => Piece::Bytes(Some(bytes)),
            _ => return false,
        });
        true
    }

    /// Runs the statement and returns all rows.
    pub(super) fn load(self, db: &mut Conn) -> Result<Vec<Row>, OpenError> {
        let rows: Vec<DynamicRow> = on!(db, conn => self.get_results(conn)).map_err(failed)?;
        Ok(rows.into_iter().map(|DynamicRow(row)| row).collect())
    }

    /// Runs the statement and ignores its rows.
    pub(super) fn run(self, db: &mut Conn) -> Result<(), OpenError> {
        on!(db, conn => self.execute(conn)).map(drop).map_err(failed)
    }
}

/// Returns the texts in the first column of all rows.
pub(super) fn query_texts(db: &mut Conn, sql: &str) -> Result<Vec<String>, OpenError> {
    let rows = Statement::new(sql).load(db)?;
    let first = |row: Row| match row.into_iter().next() {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    };
    Ok(rows.into_iter().filter_map(first).collect())
}

/// Returns the integer in the first column of the first row.
pub(super) fn query_integer(db: &mut Conn, sql: &str) -> Result<i64, OpenError> {
    match Statement::new(sql).load(db)?.first().and_then(|row| row.first()) {
        Some(Value::Integer(number)) => Ok(*number),
        _ => Err(OpenError::new("the database did not return a number")),
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
    // The statement cache identifies it by its text.
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl Query for Statement {
    type SqlType = Untyped;
}

impl<C> RunQueryDsl<C> for Statement {}

/// A row whose values are decoded by their run-time types.
struct DynamicRow(Row);

impl QueryableByName<Sqlite> for DynamicRow {
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

impl QueryableByName<Pg> for DynamicRow {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> deserialize::Result<Self> {
        let mut values = Vec::with_capacity(row.field_count());
        for index in 0..row.field_count() {
            let field = DieselRow::get(row, index).ok_or("a row is too short")?;
            let Some(value) = field.value() else {
                values.push(Value::Null);
                continue;
            };
            let bytes = value.as_bytes();
            // The object ids of built-in types never change.
            values.push(match value.get_oid().get() {
                16 => Value::Integer(i64::from(bytes.first().is_some_and(|byte| *byte != 0))),
                17 => Value::Bytes(bytes.to_owned()),
                20 => Value::Integer(i64::from_be_bytes(bytes.try_into()?)),
                21 => Value::Integer(i16::from_be_bytes(bytes.try_into()?).into()),
                23 => Value::Integer(i32::from_be_bytes(bytes.try_into()?).into()),
                25 | 1043 => Value::Text(std::str::from_utf8(bytes)?.to_owned()),
                701 => Value::Real(f64::from_be_bytes(bytes.try_into()?)),
                other => return Err(format!("a column has the type {other}, which cannot be dumped").into()),
            });
        }
        Ok(Self(values))
    }
}
