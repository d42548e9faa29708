//! Request ids, the access log and the request metrics.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use axum::{
    extract::{MatchedPath, Request},
    http::{HeaderName, HeaderValue},
    middleware::Next,
    response::Response,
};
use tracing::{Instrument as _, field::Empty, info, info_span};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const RUNTIME: HeaderName = HeaderName::from_static("x-runtime");

/// Carries the template of the matched route out to the log, from wherever in the routers it matched.
pub(crate) async fn remember_route(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let mut response = next.run(request).await;
    if let Some(route) = route {
        response.extensions_mut().insert(route);
    }
    response
}

/// Gives each request an id, and one line in the log when it is answered.
pub(crate) async fn log(request: Request, next: Next) -> Response {
    let start = Instant::now();
    let id = request.headers().get(REQUEST_ID).filter(|id| is_sane(id)).cloned().unwrap_or_else(fresh_id);
    let method = request.method().clone();
    let span = info_span!("request", id = id.to_str().unwrap_or_default(), user.id = Empty);
    async move {
        let mut response = next.run(request).await;
        let duration = start.elapsed();
        let route = response.extensions().get::<MatchedPath>().cloned();
        let route = route.as_ref().map_or("-", MatchedPath::as_str);
        let status = response.status().as_u16();
        info!(method = method.as_str(), route, status, duration_ms = duration.as_secs_f64() * 1000.0, "answered");
        count(method.as_str(), route, status, duration.as_secs_f64());
        let headers = response.headers_mut();
        headers.insert(REQUEST_ID, id);
        if let Ok(runtime) = HeaderValue::from_str(&format!("{:.6}", duration.as_secs_f64())) {
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
    static START: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let start = START.get_or_init(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or_default()
    });
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    HeaderValue::from_str(&format!("{start:x}-{number:x}")).expect("hex digits are fine in a header")
}
