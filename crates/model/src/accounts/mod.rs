//! Users, their e-mail addresses, SSH keys and access tokens.

pub mod emails;
pub mod keys;
pub mod tokens;
pub mod users;
