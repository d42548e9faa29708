//! The web interface, as a browser without JavaScript uses it.

mod account_settings;
mod admin_pages;
mod code_pages;
mod error_pages;
mod help;
mod hostile_content;
mod issues;
pub(crate) mod jobs;
mod lint;
mod page_sizes;
mod pipelines;
mod project_lists;
mod references;
mod search;
mod sign_in;
mod tracker;
mod uploads;
mod user_pages;
