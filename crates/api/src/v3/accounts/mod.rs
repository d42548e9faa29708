//! Endpoints of users, email addresses, SSH keys, access tokens and sessions.

pub(crate) mod emails;
pub(crate) mod keys;
pub(crate) mod sessions;
pub(crate) mod tokens;
pub(crate) mod users;
