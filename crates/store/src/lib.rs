//! Every line of SQL, written once and compiled for SQLite and PostgreSQL.

mod conn;
mod database;
mod error;
mod postgres;
mod schema;
mod sqlite;
mod times;

pub mod emails;
pub mod identities;
pub mod jobs;
pub mod keys;
pub mod namespaces;
pub mod tokens;
pub mod users;

pub use conn::Conn;
pub use database::{Database, OpenError};
pub use error::{Error, Result};
