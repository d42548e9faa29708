//! The statements of accounts.

pub mod emails;
pub mod identities;
pub mod keys;
pub mod tokens;
pub mod users;
