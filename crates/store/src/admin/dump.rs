//! Dumps all rows of all tables from one database and loads them into another, of the same engine or the other one.
//!
//! No table is named here: tables, columns and keys are read from the database itself, so that a migration that adds one
//! needs no change.

mod backup_lock;
mod loader;
mod snapshot;
mod statement;
mod tables;

pub use crate::checks::StoredFileKind;
pub use backup_lock::BackupLock;
pub use loader::Loader;
pub use snapshot::{DumpedFile, DumpedPack, Snapshot};
pub use tables::Table;

/// One value of a row. Booleans are 1 or 0, as in SQLite.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// SQL `NULL`.
    Null,
    /// An integer or a boolean.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// A text.
    Text(String),
    /// A byte string.
    Bytes(Vec<u8>),
}

/// The values of a row, in the order of the columns of its table.
pub type Row = Vec<Value>;

#[cfg(test)]
mod tests;
