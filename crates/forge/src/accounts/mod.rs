//! The use cases of accounts.

pub mod emails;
pub mod keys;
pub mod passwords;
pub mod sessions;
pub mod tokens;
pub mod users;
