//! All rows of all tables, out of one database and into another, of the same engine or the other one.
//!
//! Nothing here knows a table by name: which tables there are, and their columns and keys, is asked of the database
//! itself, so that a migration that adds one need not think of copies.

mod alone;
mod loading;
mod reading;
mod statement;
mod tables;

pub use alone::Alone;
pub use loading::Loading;
pub use reading::{Kept, KeptFile, Snapshot, WithRepository};
pub use tables::Table;

/// One value of a row. What is true or false is 1 or 0, as SQLite has it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// A whole number.
    Integer(i64),
    /// A number with a fraction.
    Real(f64),
    /// Words.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

/// The values of a row, in the order of the columns of its table.
pub type Row = Vec<Value>;

#[cfg(test)]
mod tests;
