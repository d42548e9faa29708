//! Every line of SQL, written once and compiled for SQLite and PostgreSQL.

mod access;
mod conn;
mod database;
mod error;
mod fragment;
mod postgres;
mod schema;
mod search;
mod sight;
mod sqlite;
mod times;

pub mod boards;
pub mod deploy_keys;
pub mod emails;
pub mod events;
pub mod forks;
pub mod groups;
pub mod identities;
pub mod imports;
pub mod intents;
pub mod issue_lists;
pub mod issues;
pub mod jobs;
pub mod keys;
pub mod labels;
pub mod members;
pub mod mentions;
pub mod milestones;
pub mod namespaces;
pub mod notes;
pub mod project_lists;
pub mod projects;
pub mod protections;
pub mod releases;
pub mod statuses;
pub mod tokens;
pub mod uploads;
pub mod users;

pub use access::Viewer;
pub use conn::Conn;
pub use database::{Database, OpenError};
pub use error::{Error, Result};
pub use search::Term;
pub use sight::Sight;
