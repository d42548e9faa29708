//! Users, email addresses, SSH keys, access tokens and sessions.

mod emails;
mod identity;
pub(crate) mod keys;
mod own_account;
mod sessions;
mod tokens;
mod users;
