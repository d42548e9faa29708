//! The web interface, as a browser without JavaScript uses it.

mod account_settings;
mod activity;
mod admin_pages;
mod avatars;
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
mod previews;
mod project_lists;
mod project_settings;
mod references;
mod releases;
mod repository_settings;
mod search;
mod sign_in;
mod tracker;
mod uploads;
mod user_pages;
mod webhooks;

use testkit::{
    TestResponse,
    browser::{Browser, form_token},
};

/// Opens a page and submits one of its forms.
async fn submit(browser: &Browser, page: &str, to: &str, fields: &[(&str, &str)]) -> TestResponse {
    let token = form_token(&browser.get(page).await.text);
    let fields: Vec<(&str, &str)> = fields.iter().copied().chain([("form_token", token.as_str())]).collect();
    browser.post(to, &[("sec-fetch-site", "same-origin")], &fields).await
}
