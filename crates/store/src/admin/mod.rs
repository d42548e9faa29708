//! Statements of administration: background tasks, integrity checks, the instance record, nodes, shared secrets and dumps.

pub mod checks;
pub mod dump;
pub mod instance;
pub mod instance_secrets;
pub mod nodes;
pub mod statistics;
pub mod tasks;
