//! The web interface: pages rendered on the server, over the same use cases as the API. Every page works without JavaScript; a small script makes some of them more convenient.

mod accounts;
mod admin;
mod assets;
mod avatars;
mod ci;
mod context;
mod error;
mod fields;
mod file_forms;
mod form_errors;
mod form_tokens;
mod forms;
mod help;
mod layout;
mod page_permits;
mod paging;
mod preview;
mod projects;
mod repository;
mod response;
pub mod routes;
mod search;
mod text;
mod times;
mod tracker;
mod webhooks;

use std::sync::{Arc, OnceLock};

use axum::{
    extract::Request,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use forge::{Forge, caller::RequestOrigin, rate_limiter::NetworkRateLimiter};
use model::Time;

use context::PageCx;
use error::PageError;
use help::ApiDocument;
use markup::links;
use page_permits::PagePermits;
use text::highlight::HighlightCache;

/// Serves the pages; cheap to clone.
#[derive(Clone)]
pub struct Pages(Arc<Shared>);

/// The state that all pages share.
struct Shared {
    forge: Forge,
    sign_in_limiter: Arc<NetworkRateLimiter>,
    highlight_cache: HighlightCache,
    page_permits: PagePermits,
    /// Limits the forms with files that one network sends at once.
    upload_permits: PagePermits,
    /// The maximum size of an uploaded file, in bytes.
    upload_limit: u64,
    started_at: Time,
    settings: Vec<(&'static str, String)>,
    api_document: fn() -> Vec<u8>,
    api_reference: OnceLock<ApiDocument>,
}

/// The parts and settings of [`Pages`].
pub struct PagesOptions {
    /// The use cases.
    pub forge: Forge,
    /// Limits sign-in attempts; shared with the API.
    pub sign_in_limiter: Arc<NetworkRateLimiter>,
    /// Settings of the server without secrets, which administrators can see: names and values.
    pub settings: Vec<(&'static str, String)>,
    /// Returns the OpenAPI document of the API; called once, on the first visit of its reference.
    pub api_document: fn() -> Vec<u8>,
    /// The maximum size of an uploaded file, in bytes.
    pub upload_limit: u64,
}

impl Pages {
    /// Creates the pages.
    pub fn new(options: PagesOptions) -> Self {
        let PagesOptions { forge, sign_in_limiter, settings, api_document, upload_limit } = options;
        Self(Arc::new(Shared {
            started_at: forge.now(),
            settings,
            api_document,
            api_reference: OnceLock::new(),
            forge,
            sign_in_limiter,
            highlight_cache: HighlightCache::default(),
            page_permits: PagePermits::default(),
            upload_permits: PagePermits::default(),
            upload_limit,
        }))
    }

    /// Handles a request.
    pub async fn serve(&self, request: Request, origin: RequestOrigin) -> Response {
        let (parts, body) = request.into_parts();
        let compression = response::Compression::accepted_by(&parts.headers);
        let response = match routes::find(&parts.method, parts.uri.path()) {
            Ok(found) => {
                (origin.record_route)(found.route.pattern);
                let cx = PageCx::new(self.clone(), origin, parts, found.params);
                match (found.route.handler)(cx.clone(), body).await {
                    Ok(response) => response,
                    Err(error) => error.into_page(&cx).await,
                }
            }
            Err(error) => {
                (origin.record_route)("page");
                let cx = PageCx::new(self.clone(), origin, parts, routes::PathParams::default());
                PageError::from(error).into_page(&cx).await
            }
        };
        compression.apply(response).await
    }

    /// Returns the page for an error outside the handler of a page.
    pub fn error_page(&self, status: StatusCode, request_id: &str) -> Response {
        error::render(status, None, request_id, None).into_response()
    }
}
