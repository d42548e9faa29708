//! Request ids, the access log and the request metrics.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use axum::{
    extract::{MatchedPath, Request},
    http::{Extensions, HeaderName, HeaderValue},
    middleware::Next,
    response::Response,
};
use tracing::{Instrument as _, info, info_span};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const RUNTIME: HeaderName = HeaderName::from_static("x-runtime");

/// What becomes known of a request on its way in: left by whoever finds out, read by the log.
#[derive(Clone, Default)]
pub(crate) struct Footprint {
    route: Arc<OnceLock<MatchedPath>>,
    user: Arc<OnceLock<i64>>,
}

impl Footprint {
    /// The footprint of this request.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// Where the number of the user is to be left.
    pub(crate) fn user(&self) -> Arc<OnceLock<i64>> {
        Arc::clone(&self.user)
    }

    /// Leaves the template of the matched route.
    pub(crate) fn leave_route(extensions: &Extensions) {
        if let (Some(footprint), Some(route)) = (extensions.get::<Self>(), extensions.get::<MatchedPath>()) {
            let _ = footprint.route.set(route.clone());
        }
    }
}

/// Leaves the template of the matched route, for routes beside the interface.
pub(crate) async fn remember_route(request: Request, next: Next) -> Response {
    Footprint::leave_route(request.extensions());
    next.run(request).await
}

/// Gives each request an id, and one line in the log when it is answered.
pub(crate) async fn log<F: Future<Output = Response>>(
    mut request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let start = Instant::now();
    let id = request.headers().get(REQUEST_ID).filter(|id| is_sane(id)).cloned().unwrap_or_else(fresh_id);
    let method = request.method().clone();
    let footprint = Footprint::default();
    request.extensions_mut().insert(footprint.clone());
    let span = info_span!("request", id = id.to_str().unwrap_or_default());
    async move {
        let mut response = next(request).await;
        let seconds = start.elapsed().as_secs_f64();
        let route = footprint.route.get().map_or("-", MatchedPath::as_str);
        let status = response.status().as_u16();
        let user = footprint.user.get();
        info!(method = method.as_str(), route, status, duration_ms = seconds * 1000.0, user.id = user, "answered");
        count(method.as_str(), route, status, seconds);
        let headers = response.headers_mut();
        headers.insert(REQUEST_ID, id);
        if let Ok(runtime) = HeaderValue::from_str(&format!("{seconds:.6}")) {
            headers.insert(RUNTIME, runtime);
        }
        response
    }
    .instrument(span)
    .await
}

fn count(method: &str, route: &str, status: u16, seconds: f64) {
    // A client can invent methods; a label must not grow with them.
    const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    let method = METHODS.into_iter().find(|known| *known == method).unwrap_or("other");
    let route = route.to_owned();
    metrics::counter!("gable_http_requests_total",
        "method" => method, "route" => route.clone(), "status" => status.to_string())
    .increment(1);
    metrics::histogram!("gable_http_request_duration_seconds", "method" => method, "route" => route).record(seconds);
}

/// Whether an id that came with the request may go into our log.
fn is_sane(id: &HeaderValue) -> bool {
    (1..=64).contains(&id.len()) && id.as_bytes().iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
}

/// An id that does not come twice: the start of the process and a running number.
fn fresh_id() -> HeaderValue {
    static START: OnceLock<u64> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let start = START.get_or_init(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or_default()
    });
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    HeaderValue::from_str(&format!("{start:x}-{number:x}")).expect("hex digits are fine in a header")
}
