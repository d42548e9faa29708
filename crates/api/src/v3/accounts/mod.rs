//! The endpoints of accounts.

pub(crate) mod emails;
pub(crate) mod keys;
pub(crate) mod sessions;
pub(crate) mod tokens;
pub(crate) mod users;
