//! The nouns of accounts.

pub mod emails;
pub mod keys;
pub mod tokens;
pub mod users;
