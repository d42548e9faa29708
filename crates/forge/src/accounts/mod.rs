//! Use cases of users, e-mail addresses, SSH keys, access tokens and sessions.

pub mod emails;
pub mod keys;
pub mod passwords;
pub mod sessions;
pub mod tokens;
pub mod user_pages;
pub mod users;
pub mod web_sessions;
