//! Request ids and the access log.

use std::{
    convert::Infallible,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use axum::{
    extract::{FromRequestParts, MatchedPath, Request},
    http::{Extensions, HeaderName, HeaderValue, Method, request::Parts},
    middleware::Next,
    response::Response,
};
use bytes::Bytes;
use forge::caller::LogIdentity;
use model::UserId;

use crate::{
    metrics,
    routes::{ArgDoc, OperationDoc},
};

const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("x-request-id");
const RUNTIME_HEADER: HeaderName = HeaderName::from_static("x-runtime");

/// Facts about a request that become known while it is handled, for its access log entry.
#[derive(Clone, Default)]
pub(crate) struct AccessLogContext(Arc<ContextFields>);

#[derive(Default)]
struct ContextFields {
    route: OnceLock<MatchedPath>,
    fixed_route: OnceLock<&'static str>,
    identity: Arc<LogIdentity>,
}

impl ContextFields {
    fn route(&self) -> &str {
        self.route.get().map(MatchedPath::as_str).or(self.fixed_route.get().copied()).unwrap_or("-")
    }
}

impl AccessLogContext {
    /// Returns the context of this request.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// Returns the slot in which authentication records the user.
    pub(crate) fn identity(&self) -> Arc<LogIdentity> {
        Arc::clone(&self.0.identity)
    }

    /// Returns whether the user has been authenticated.
    pub(crate) fn has_user(&self) -> bool {
        self.0.identity.user().is_some()
    }

    /// Returns the template of the matched route, or `-`.
    pub(crate) fn route(&self) -> &str {
        self.0.route()
    }

    /// Records the template of the matched route.
    pub(crate) fn record_route(extensions: &Extensions) {
        if let (Some(log_context), Some(route)) = (extensions.get::<Self>(), extensions.get::<MatchedPath>()) {
            let _ = log_context.0.route.set(route.clone());
        }
    }

    /// Records a fixed name for requests that the router does not match.
    pub(crate) fn record_fixed_route(extensions: &Extensions, fixed_route: &'static str) {
        if let Some(log_context) = extensions.get::<Self>() {
            let _ = log_context.0.fixed_route.set(fixed_route);
        }
    }
}

/// Middleware that records the template of the matched route, for routes outside the API.
pub(crate) async fn record_route_layer(request: Request, next: Next) -> Response {
    AccessLogContext::record_route(request.extensions());
    next.run(request).await
}

/// The access log entry of one request.
pub struct AccessLogEntry<'a> {
    /// The id of the request, also sent as `X-Request-Id`.
    pub id: &'a str,
    /// The method.
    pub method: &'a str,
    /// The template of the route, or `-`.
    pub route: &'a str,
    /// The status of the response.
    pub status: u16,
    /// The time from the request to its response.
    pub duration: Duration,
    /// The id of the authenticated user.
    pub user: Option<UserId>,
    /// The id of the user as whom an administrator acted (`sudo`).
    pub acting_as: Option<UserId>,
}

/// Writes an entry for each request.
///
/// Not a `tracing` event: building one for every request costs more than a database query.
pub type AccessLog = Arc<dyn Fn(&AccessLogEntry<'_>) + Send + Sync>;

tokio::task_local! {
    static REQUEST_ID: HeaderValue;
}

/// Returns the id of the current request, for log lines about its errors.
pub(crate) fn request_id() -> String {
    REQUEST_ID.try_with(|id| id.to_str().unwrap_or_default().to_owned()).unwrap_or_default()
}

/// Assigns an id to a request and writes its access log entry.
pub(crate) async fn log_request<F: Future<Output = Response>>(
    log: &AccessLog,
    mut request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let start = Instant::now();
    let id = request
        .headers()
        .get(REQUEST_ID_HEADER)
        .filter(|id| is_valid_request_id(id))
        .cloned()
        .unwrap_or_else(generate_request_id);
    let method = request.method().clone();
    let log_context = AccessLogContext::default();
    request.extensions_mut().insert(log_context.clone());
    let mut entry = PendingEntry { log, id, method, log_context, start, status: CLIENT_CLOSED_REQUEST };
    let mut response = REQUEST_ID.scope(entry.id.clone(), next(request)).await;
    entry.status = response.status().as_u16();
    let id = entry.id.clone();
    let micros = start.elapsed().as_micros();
    drop(entry);
    let runtime = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID_HEADER, id);
    if let Ok(runtime) = HeaderValue::from_maybe_shared(Bytes::from(runtime)) {
        headers.insert(RUNTIME_HEADER, runtime);
    }
    response
}

/// The status logged for a request whose client disconnected before the response.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// An access log entry that is written on drop: after the response, or when the request is cancelled.
struct PendingEntry<'a> {
    log: &'a AccessLog,
    id: HeaderValue,
    method: Method,
    log_context: AccessLogContext,
    start: Instant,
    status: u16,
}

impl Drop for PendingEntry<'_> {
    fn drop(&mut self) {
        let Self { log, id, method, log_context, start, status } = self;
        let entry = AccessLogEntry {
            id: id.to_str().unwrap_or_default(),
            method: method.as_str(),
            route: log_context.0.route(),
            status: *status,
            duration: start.elapsed(),
            user: log_context.0.identity.user(),
            acting_as: log_context.0.identity.acting_as(),
        };
        log(&entry);
        metrics::record(&entry);
    }
}

impl<S: Send + Sync> FromRequestParts<S> for AccessLogContext {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self::of(&parts.extensions))
    }
}

impl ArgDoc for AccessLogContext {
    fn describe(_: &mut OperationDoc) {}
}

/// Returns whether an id sent by the client may appear in the log.
fn is_valid_request_id(id: &HeaderValue) -> bool {
    (1..=64).contains(&id.len()) && id.as_bytes().iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
}

/// Returns a unique id: the start time of the process and a sequence number.
fn generate_request_id() -> HeaderValue {
    static START: OnceLock<u64> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let start = START.get_or_init(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or_default()
    });
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let id = Bytes::from(format!("{start:x}-{number:x}"));
    HeaderValue::from_maybe_shared(id).expect("hex digits are valid in a header")
}
