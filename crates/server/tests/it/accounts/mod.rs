//! Tests of accounts.

mod emails;
mod identity;
pub(crate) mod keys;
mod own_account;
mod sessions;
mod tokens;
mod users;
