//! Statements of administration: background tasks, integrity checks, the instance record and dumps.

pub mod checks;
pub mod dump;
pub mod instance;
pub mod statistics;
pub mod tasks;
