//! SQL statements for users, e-mail addresses, identities, SSH keys and access tokens.

pub mod emails;
pub mod identities;
pub mod keys;
pub mod tokens;
pub mod users;
