//! Text columns that hold object ids and ref names.

use std::str;

use diesel::{
    deserialize::{self, FromSql, FromSqlRow},
    pg::{Pg, PgValue},
    sql_types::Text,
    sqlite::{Sqlite, SqliteValue},
};
use model::{Oid, RefName};

/// A value that is stored as text.
pub(super) trait TextValue: Sized {
    fn parse(text: &str) -> Option<Self>;
}

impl TextValue for Oid {
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl TextValue for RefName {
    fn parse(text: &str) -> Option<Self> {
        Self::new(text)
    }
}

/// A column that is parsed where the engine has it, without a `String` in between; a repository may have many refs.
#[derive(FromSqlRow)]
pub(super) struct Parsed<T>(pub(super) T);

impl<T: TextValue> Parsed<T> {
    fn new(text: &str) -> deserialize::Result<Self> {
        T::parse(text).map(Self).ok_or_else(|| format!("{text:?} is not a valid value of its column").into())
    }
}

impl<T: TextValue> FromSql<Text, Sqlite> for Parsed<T> {
    fn from_sql(mut value: SqliteValue<'_, '_, '_>) -> deserialize::Result<Self> {
        Self::new(value.read_text())
    }
}

impl<T: TextValue> FromSql<Text, Pg> for Parsed<T> {
    fn from_sql(value: PgValue<'_>) -> deserialize::Result<Self> {
        Self::new(str::from_utf8(value.as_bytes())?)
    }
}
