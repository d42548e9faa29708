//! The web interface, as a browser without JavaScript uses it.

mod account_settings;
mod admin_pages;
mod ci_settings;
mod code_history;
mod code_pages;
mod differences;
mod editing;
mod error_pages;
mod help;
mod hostile_content;
mod issues;
pub(crate) mod jobs;
mod lint;
mod members;
mod page_sizes;
mod pipelines;
mod project_lists;
mod project_settings;
mod releases;
mod repository_settings;
mod search;
mod sign_in;
mod user_pages;
mod webhooks;
