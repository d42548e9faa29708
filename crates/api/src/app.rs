//! The assembled HTTP service: the router and what every request and response passes.

use std::{panic::AssertUnwindSafe, sync::Arc};

use axum::{
    Router,
    body::{Body, HttpBody as _},
    extract::{FromRef, FromRequestParts as _, Request},
    http::{HeaderValue, Method, StatusCode, Uri, header},
    middleware::from_fn,
    response::{IntoResponse, Response},
};
use forge::{
    Forge,
    caller::RequestOrigin,
    deliveries::{HookTarget, OutgoingDelivery},
    rate_limiter::NetworkRateLimiter,
};
use futures_util::{FutureExt as _, future::BoxFuture};
use model::{SshEndpoint, hooks::DeliveryAttempt};
use tower::ServiceExt as _;

use crate::{
    Dialect,
    access_log::{self, AccessLog, AccessLogContext},
    client_address::client_address,
    cors,
    error::plain_error,
    limits::{self, LimitOptions, Limits},
    openapi, path_normalization,
    proxies::{PublicEndpoint, TrustedProxies},
    public_files::{self, uploads::UploadPath},
    runner,
    security_headers::{self, StrictTransport},
    site::Site,
    v3,
};

/// The state that the handlers share.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    forge: Forge,
    dialect: Dialect,
    external_url: Option<String>,
    body_limit: usize,
    upload_limit: u64,
    artifact_limit: u64,
    sign_in_limiter: Arc<NetworkRateLimiter>,
    limits: Limits,
    trusted_proxies: TrustedProxies,
    strict_transport: StrictTransport,
    openapi: bytes::Bytes,
    ssh_port: Option<u16>,
    external_ssh: Option<SshEndpoint>,
    git: Option<GitHandler>,
    pages: Option<PageHandler>,
    webhook_sender: Option<WebhookSender>,
    access_log: AccessLog,
}

/// Handles requests of the git protocol and returns all others unhandled.
pub type GitHandler = Arc<dyn Fn(Request) -> Result<BoxFuture<'static, Response>, Box<Request>> + Send + Sync>;

/// Handles a request for a page.
pub type PageService = Arc<dyn Fn(Request, RequestOrigin) -> BoxFuture<'static, Response> + Send + Sync>;

/// Returns the page for an error outside the handler of a page; also takes the id of the request.
pub type ErrorPage = Arc<dyn Fn(StatusCode, &str) -> Response + Send + Sync>;

/// Serves the web interface: all paths that belong neither to the API, nor to git, nor to an upload.
#[derive(Clone)]
pub struct PageHandler {
    /// Handles a request.
    pub serve: PageService,
    /// Returns the page for an error.
    pub error_page: ErrorPage,
}

/// Sends a webhook delivery immediately and returns the attempt.
pub type WebhookSender = Arc<dyn Fn(HookTarget, OutgoingDelivery) -> BoxFuture<'static, DeliveryAttempt> + Send + Sync>;

/// The parts and settings of an [`App`].
pub struct AppOptions {
    /// The use cases.
    pub forge: Forge,
    /// Whether the contract or GitLab 8.14 decides where they differ.
    pub dialect: Dialect,
    /// The URL under which clients reach this server; `None` derives it from each request.
    pub external_url: Option<String>,
    /// The maximum size of a request body that is not an upload, in bytes.
    pub body_limit: usize,
    /// The maximum size of an uploaded file, in bytes.
    pub upload_limit: u64,
    /// The maximum size of a job artifact, in bytes.
    pub artifact_limit: u64,
    /// Limits sign-in attempts; shared with the web interface.
    pub sign_in_limiter: Arc<NetworkRateLimiter>,
    /// Rate and concurrency limits.
    pub limit_options: LimitOptions,
    /// The SSH port, for clone URLs in responses.
    pub ssh_port: Option<u16>,
    /// Where clients reach SSH, if that differs from the external URL and the SSH port.
    pub external_ssh: Option<SshEndpoint>,
    /// Serves git over HTTP.
    pub git: Option<GitHandler>,
    /// Serves the web interface.
    pub pages: Option<PageHandler>,
    /// Sends test deliveries of webhooks.
    pub webhook_sender: Option<WebhookSender>,
    /// Writes an entry for each request.
    pub access_log: AccessLog,
}

impl App {
    /// Creates the shared state.
    pub fn new(options: AppOptions) -> Self {
        let AppOptions {
            forge,
            dialect,
            external_url,
            body_limit,
            upload_limit,
            artifact_limit,
            sign_in_limiter,
            limit_options,
            ssh_port,
            external_ssh,
            git,
            pages,
            webhook_sender,
            access_log,
        } = options;
        Self(Arc::new(Inner {
            forge,
            dialect,
            external_url: external_url.map(|url| url.trim_end_matches('/').to_owned()),
            body_limit,
            upload_limit,
            artifact_limit,
            sign_in_limiter,
            limits: Limits::new(&limit_options, body_limit),
            strict_transport: StrictTransport::new(limit_options.hsts_seconds),
            trusted_proxies: limit_options.trusted_proxies,
            openapi: openapi::document(&v3::routes()),
            ssh_port,
            external_ssh,
            git,
            pages,
            webhook_sender,
            access_log,
        }))
    }

    pub(crate) fn forge(&self) -> &Forge {
        &self.0.forge
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.0.dialect
    }

    pub(crate) fn external_url(&self) -> Option<&str> {
        self.0.external_url.as_deref()
    }

    pub(crate) fn ssh_port(&self) -> Option<u16> {
        self.0.ssh_port
    }

    pub(crate) fn external_ssh(&self) -> Option<&SshEndpoint> {
        self.0.external_ssh.as_ref()
    }

    pub(crate) fn body_limit(&self) -> usize {
        self.0.body_limit
    }

    pub(crate) fn upload_limit(&self) -> u64 {
        self.0.upload_limit
    }

    pub(crate) fn artifact_limit(&self) -> u64 {
        self.0.artifact_limit
    }

    pub(crate) fn webhook_sender(&self) -> Option<&WebhookSender> {
        self.0.webhook_sender.as_ref()
    }

    pub(crate) fn sign_in_limiter(&self) -> &NetworkRateLimiter {
        &self.0.sign_in_limiter
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.0.limits
    }

    pub(crate) fn openapi(&self) -> bytes::Bytes {
        self.0.openapi.clone()
    }
}

impl FromRef<App> for Forge {
    fn from_ref(app: &App) -> Self {
        app.0.forge.clone()
    }
}

/// The HTTP service: all APIs, git over HTTP, public files and extra routes.
#[derive(Clone)]
pub struct HttpService {
    router: Router,
    app: App,
}

/// The maximum length of a path with its query, in bytes.
const MAX_URI_LENGTH: usize = 16 << 10;

impl HttpService {
    /// Builds the service; `extra_routes` are served with the same middleware as the API.
    pub fn new(app: &App, extra_routes: Router) -> Self {
        let avatars = Router::new()
            .route("/uploads/-/system/{kind}/avatar/{id}/{name}", axum::routing::get(public_files::avatars::get))
            .with_state(app.clone());
        let extra_routes = extra_routes
            .route("/-/identicon/{seed}", axum::routing::get(public_files::identicon::get))
            .merge(avatars)
            .layer(from_fn(access_log::record_route_layer));
        let api = v3::routes()
            .into_router("/api/v3")
            .merge(runner::v4::routes().into_router(runner::v4::PREFIX))
            .merge(runner::ci_v1::routes().into_router(runner::ci_v1::PREFIX))
            .with_state(app.clone())
            .merge(extra_routes)
            .method_not_allowed_fallback(method_not_allowed);
        let (fallback_router, fallback_app) = (api.clone(), app.clone());
        let router = api.fallback(move |request| fallback(fallback_app, fallback_router, request));
        Self { router, app: app.clone() }
    }

    /// Handles a request: access log, CORS, limits, routing and a catch for panics.
    ///
    /// These are plain calls and not router layers, which would cost each request several allocations.
    pub async fn handle(&self, mut request: Request) -> Response {
        let app = &self.app.0;
        app.trusted_proxies.apply_forwarded_headers(&mut request);
        let secure = request.extensions().get::<PublicEndpoint>().is_some_and(|endpoint| endpoint.secure);
        let is_outside_api = !request.uri().path().starts_with("/api/");
        let response_future = access_log::log_request(&app.access_log, request, |request| {
            cors::with_cors(request, async |request| self.admit(normalize_path(request)).await)
        });
        let mut response = response_future.await;
        security_headers::add(&mut response, secure, &app.strict_transport, is_outside_api);
        response
    }

    /// Handles a request if it is within the limits.
    async fn admit(&self, mut request: Request) -> Response {
        let pages = self.app.0.pages.clone().filter(|_| is_page_path(request.uri().path()));
        let refuse = |response: Response| match &pages {
            Some(pages) => to_error_page(pages, response),
            None => response,
        };
        if request.uri().path_and_query().is_some_and(|uri| uri.as_str().len() > MAX_URI_LENGTH) {
            return refuse(plain_error(StatusCode::URI_TOO_LONG));
        }
        let limits = self.app.limits();
        let admission = match limits.admit(&mut request) {
            Ok(admission) => admission,
            Err(error) => return close_if_body_unread(&request, refuse(error.into_response())),
        };
        let (address, log_context) = (client_address(request.extensions()), AccessLogContext::of(request.extensions()));
        let response = AssertUnwindSafe(route(self.router.clone(), request)).catch_unwind().await;
        let response = response.unwrap_or_else(|panic| {
            let request = access_log::request_id();
            tracing::error!(request, panic = forge::panic_text(&*panic), "request handler panicked");
            refuse(crate::error::internal())
        });
        limits.record_outcome(admission, address, &log_context, response.status());
        response
    }
}

/// Returns whether a path belongs to the web interface if it is no route, git request or upload.
pub(crate) fn is_page_path(path: &str) -> bool {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    let is_for_machines = match segments.next() {
        Some("api") => true,
        Some("-") => !matches!(segments.next(), Some("profile" | "user_settings")),
        Some("ci") => segments.next() == Some("api"),
        _ => false,
    };
    !is_for_machines && !limits::is_git_path(path)
}

/// Replaces the body of an error by a page, and keeps the time after which the client may retry.
fn to_error_page(pages: &PageHandler, error: Response) -> Response {
    let mut response = (pages.error_page)(error.status(), &access_log::request_id());
    if let Some(wait) = error.headers().get(header::RETRY_AFTER) {
        response.headers_mut().insert(header::RETRY_AFTER, wait.clone());
    }
    response
}

/// Announces that the connection closes if the request has a body, none of which was read: the client must not send its
/// next request on it.
fn close_if_body_unread(request: &Request, mut response: Response) -> Response {
    if !request.body().is_end_stream() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn route(router: Router, request: Request) -> Response {
    match router.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Rewrites the path to the form that the router expects.
fn normalize_path(mut request: Request) -> Request {
    let path = request.uri().path();
    let normalized = match path_normalization::encode_slashes_in_name(request.method(), path) {
        Some(encoded) => Some(encoded).filter(|encoded| encoded != path),
        None => strip_format_suffix(request.method(), path).map(ToOwned::to_owned),
    };
    if let Some(mut normalized) = normalized {
        if let Some(query) = request.uri().query() {
            normalized.push('?');
            normalized.push_str(query);
        }
        if let Ok(uri) = normalized.parse() {
            *request.uri_mut() = uri;
        }
    }
    request
}

/// Removes a `.json` suffix, which clients of GitLab 8.14 may append, unless it may be part of a name: in an encoded
/// project path, outside the API, and in `openapi.json`.
fn strip_format_suffix<'a>(method: &Method, path: &'a str) -> Option<&'a str> {
    let is_write = matches!(*method, Method::PUT | Method::DELETE);
    let is_part_of_name = |path: &str| {
        let (above, last) = path.rsplit_once('/').unwrap_or_default();
        // Two groups may differ by the suffix alone, and the wrong one must not be changed.
        let may_name_group = is_write && above.ends_with("/groups") && !last.starts_with(|c: char| c.is_ascii_digit());
        last.contains('%') || last == "openapi.json" || may_name_group
    };
    let stripped = path.strip_suffix(".json").filter(|_| !is_part_of_name(path))?;
    let is_api_path = stripped.starts_with("/api/") || stripped.starts_with(runner::ci_v1::PREFIX);
    (is_api_path && !stripped.ends_with('/')).then_some(stripped)
}

/// Handles a path that matches no route: git requests and uploads lie below a project path of any number of segments.
async fn fallback(app: App, router: Router, request: Request) -> Response {
    let request = match &app.0.git {
        None => request,
        Some(git) => {
            let extensions = request.extensions().clone();
            match git(request) {
                Ok(response) => {
                    AccessLogContext::record_fixed_route(&extensions, "git");
                    return response.await;
                }
                Err(request) => *request,
            }
        }
    };
    if let Some(path) = UploadPath::parse(request.uri().path()) {
        return serve_upload(app, path, request).await;
    }
    match &app.0.pages {
        Some(pages) if is_page_path(request.uri().path()) => serve_page(&app, pages, request).await,
        _ => retry_with_normalized_path(router, request).await,
    }
}

/// Serves an uploaded file; a browser gets the error page of the web interface if there is none.
async fn serve_upload(app: App, path: UploadPath, request: Request) -> Response {
    let pages = app.0.pages.clone().filter(|_| public_files::uploads::is_from_browser(&request));
    let (parts, body) = request.into_parts();
    let for_page = Request::from_parts(parts.clone(), Body::empty());
    let response = public_files::uploads::get(app.clone(), path, Request::from_parts(parts, body)).await;
    match pages {
        Some(pages) if response.status() == StatusCode::NOT_FOUND => serve_page(&app, &pages, for_page).await,
        _ => response,
    }
}

async fn serve_page(app: &App, pages: &PageHandler, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let Ok(site) = Site::from_request_parts(&mut parts, app).await;
    let extensions = parts.extensions.clone();
    let origin = RequestOrigin {
        site,
        is_secure: extensions.get::<PublicEndpoint>().is_some_and(|endpoint| endpoint.secure),
        address: client_address(&extensions),
        request_id: access_log::request_id(),
        log_identity: AccessLogContext::of(&extensions).identity(),
        record_route: Arc::new(move |route| AccessLogContext::record_fixed_route(&extensions, route)),
    };
    (pages.serve)(Request::from_parts(parts, body), origin).await
}

/// Routes again without double and trailing slashes and a `.json` suffix.
async fn retry_with_normalized_path(router: Router, mut request: Request) -> Response {
    let path = request.uri().path();
    let mut normalized = String::with_capacity(path.len());
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        normalized.push('/');
        normalized.push_str(segment);
    }
    if let Some(encoded) = path_normalization::encode_slashes_in_name(request.method(), &normalized) {
        normalized = encoded;
    } else if let Some(stripped) = normalized.strip_suffix(".json") {
        normalized.truncate(stripped.len());
    }
    if normalized == path || normalized.is_empty() {
        return plain_error(StatusCode::NOT_FOUND);
    }
    if let Some(query) = request.uri().query() {
        normalized.push('?');
        normalized.push_str(query);
    }
    let Ok(uri) = normalized.parse::<Uri>() else { return plain_error(StatusCode::NOT_FOUND) };
    *request.uri_mut() = uri;
    route(router.fallback(|| async { plain_error(StatusCode::NOT_FOUND) }), request).await
}

/// Handles a known path with a method that it does not support.
pub(crate) async fn method_not_allowed(request: Request) -> Response {
    AccessLogContext::record_route(request.extensions());
    match *request.method() {
        Method::OPTIONS => StatusCode::NO_CONTENT.into_response(),
        _ => plain_error(StatusCode::METHOD_NOT_ALLOWED),
    }
}
