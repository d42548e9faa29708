//! SQL statements for users, e-mail addresses, identities, SSH keys, access tokens and sessions of the web
//! interface.

pub mod emails;
pub mod identities;
pub mod keys;
pub mod tokens;
pub mod users;
pub mod web_sessions;
