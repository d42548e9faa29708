//! The HTTP application: the REST API, the web interface, git over HTTP and test webhooks.

use std::sync::Arc;

use api::{AccessLog, App, AppOptions, GitHandler, LimitOptions, PageHandler, WebhookSender};
use axum::extract::Request;
use forge::{Forge, rate_limiter::NetworkRateLimiter};
use web::{Pages, PagesOptions};
use webhooks::Client;
use wire::{Transfers, http::GitHttp};

use crate::{byte_size::ByteSize, config::Config};

/// Creates the application.
pub(super) fn create(
    config: &Config,
    forge: &Forge,
    transfers: &Transfers,
    webhook_client: &Client,
    ssh_port: Option<u16>,
    access_log: AccessLog,
) -> App {
    let sign_in_limiter = Arc::new(NetworkRateLimiter::per_minute(config.sign_ins_per_minute));
    let pages = Pages::new(PagesOptions {
        forge: forge.clone(),
        sign_in_limiter: Arc::clone(&sign_in_limiter),
        settings: visible_settings(config),
        api_document: api::openapi_document,
        upload_limit: config.max_upload_size,
    });
    App::new(AppOptions {
        forge: forge.clone(),
        dialect: config.dialect,
        external_url: config.external_url.clone(),
        body_limit: config.max_body_size,
        upload_limit: config.max_upload_size,
        artifact_limit: config.max_artifact_size,
        sign_in_limiter,
        limit_options: limit_options(config),
        ssh_port,
        external_ssh: config.external_ssh.clone(),
        git: Some(git_handler(GitHttp::new(transfers.clone(), config.sign_ins_per_minute))),
        pages: Some(page_handler(pages)),
        webhook_sender: Some(webhook_sender(webhook_client.clone())),
        access_log,
    })
}

/// Returns the settings that administrators see in the web interface. None of them contains a secret; the URL of the database
/// may, and is left out.
fn visible_settings(config: &Config) -> Vec<(&'static str, String)> {
    let size = |bytes: u64| ByteSize(bytes).to_string();
    let limit = |count: Option<std::num::NonZeroU32>| count.map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
    let yes = |flag: bool| if flag { "yes" } else { "no" }.to_owned();
    vec![
        ("data", config.location.folder.display().to_string()),
        ("listen", config.listen.to_string()),
        ("ssh-listen", config.ssh_listen.map_or_else(|| "off".to_owned(), |address| address.to_string())),
        ("external-url", config.external_url.clone().unwrap_or_else(|| "that of each request".to_owned())),
        (
            "external-ssh-url",
            config
                .external_ssh
                .as_ref()
                .map_or_else(|| "host of external-url, port of ssh-listen".to_owned(), ToString::to_string),
        ),
        ("tls", yes(config.tls.is_some())),
        ("max-body-size", size(config.max_body_size as u64)),
        ("max-upload-size", size(config.max_upload_size)),
        ("max-artifact-size", size(config.max_artifact_size)),
        ("max-push-size", config.max_push_size.map_or_else(|| "unlimited".to_owned(), size)),
        ("min-free-disk", size(config.min_free_disk)),
        ("drain-timeout", format!("{} s", config.drain_timeout.as_secs())),
        ("sign-ins-per-minute", limit(config.sign_ins_per_minute)),
        ("requests-per-minute", limit(config.requests_per_minute)),
        ("anonymous-requests-per-minute", limit(config.anonymous_requests_per_minute)),
        ("default-projects-limit", config.default_projects_limit.to_string()),
        ("allow-local-network", yes(config.allow_local_network)),
        ("runner", config.runner.as_ref().map_or(0, |runner| runner.concurrency).to_string()),
        (
            "backup-folder",
            config.backups.as_ref().map_or_else(|| "none".to_owned(), |b| b.folder.display().to_string()),
        ),
    ]
}

/// Returns the rate limits and the proxies that they take into account.
fn limit_options(config: &Config) -> LimitOptions {
    LimitOptions {
        requests_per_minute: config.requests_per_minute,
        anonymous_requests_per_minute: config.anonymous_requests_per_minute,
        trusted_proxies: config.trusted_proxies.clone(),
        hsts_seconds: config.hsts_seconds,
        ..LimitOptions::default()
    }
}

/// Returns the handler of git requests.
fn git_handler(git: GitHttp) -> GitHandler {
    let git = Arc::new(git);
    Arc::new(move |request: Request| {
        if !git.serves(request.uri()) {
            return Err(Box::new(request));
        }
        let git = Arc::clone(&git);
        Ok(Box::pin(async move { git.handle(request).await }))
    })
}

/// Returns the handler of the web interface.
fn page_handler(pages: Pages) -> PageHandler {
    let error_pages = pages.clone();
    PageHandler {
        serve: Arc::new(move |request, origin| {
            let pages = pages.clone();
            Box::pin(async move { pages.serve(request, origin).await })
        }),
        error_page: Arc::new(move |status, request_id| error_pages.error_page(status, request_id)),
    }
}

/// Returns the function that sends a test webhook.
fn webhook_sender(client: Client) -> WebhookSender {
    Arc::new(move |target, delivery| {
        let client = client.clone();
        Box::pin(async move { client.send(&target, &delivery).await })
    })
}
