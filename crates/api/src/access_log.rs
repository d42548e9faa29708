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
use forge::caller::Noted;

use crate::{
    metrics,
    routes::{ArgDoc, OperationDoc},
};

const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("x-request-id");
const RUNTIME: HeaderName = HeaderName::from_static("x-runtime");

/// What becomes known of a request on its way in: left by whoever finds out, read by the log.
#[derive(Clone, Default)]
pub(crate) struct Footprint(Arc<Found>);

#[derive(Default)]
struct Found {
    route: OnceLock<MatchedPath>,
    page: OnceLock<&'static str>,
    who: Arc<Noted>,
}

impl Found {
    fn route(&self) -> &str {
        self.route.get().map(MatchedPath::as_str).or(self.page.get().copied()).unwrap_or("-")
    }
}

impl Footprint {
    /// The footprint of this request.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// Where it is to be left who is asking.
    pub(crate) fn who(&self) -> Arc<Noted> {
        Arc::clone(&self.0.who)
    }

    /// Whether it is known by now which user is asking.
    pub(crate) fn knows_user(&self) -> bool {
        self.0.who.user().is_some()
    }

    /// What is known of the route by now.
    pub(crate) fn route(&self) -> &str {
        self.0.route()
    }

    /// Leaves the template of the matched route.
    pub(crate) fn leave_route(extensions: &Extensions) {
        if let (Some(footprint), Some(route)) = (extensions.get::<Self>(), extensions.get::<MatchedPath>()) {
            let _ = footprint.0.route.set(route.clone());
        }
    }

    /// Leaves what stands for a page that no template can tell from others.
    pub(crate) fn leave_page(extensions: &Extensions, page: &'static str) {
        if let Some(footprint) = extensions.get::<Self>() {
            let _ = footprint.0.page.set(page);
        }
    }
}

/// Leaves the template of the matched route, for routes beside the interface.
pub(crate) async fn remember_route(request: Request, next: Next) -> Response {
    Footprint::leave_route(request.extensions());
    next.run(request).await
}

/// One answered request, for the log.
pub struct Answered<'a> {
    /// The id of the request, also in the answer's `X-Request-Id`.
    pub id: &'a str,
    /// The method.
    pub method: &'a str,
    /// The template of the route, or `-`.
    pub route: &'a str,
    /// The status of the answer.
    pub status: u16,
    /// How long it took.
    pub duration: Duration,
    /// The number of the user, if one was known.
    pub user: Option<i64>,
    /// The number of the user as whom an administrator acted.
    pub acting_as: Option<i64>,
}

/// Writes a line for each answered request.
///
/// Not an event of `tracing`: putting together such an event for every request costs more than asking the database.
pub type AccessLog = Arc<dyn Fn(&Answered<'_>) + Send + Sync>;

tokio::task_local! {
    static REQUEST_ID: HeaderValue;
}

/// The id of the request under way, for lines that tell of its troubles.
pub(crate) fn request_id() -> String {
    REQUEST_ID.try_with(|id| id.to_str().unwrap_or_default().to_owned()).unwrap_or_default()
}

/// Gives each request an id, and one line in the log when it is answered.
pub(crate) async fn log<F: Future<Output = Response>>(
    log: &AccessLog,
    mut request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let start = Instant::now();
    let id = request.headers().get(REQUEST_ID_HEADER).filter(|id| is_sane(id)).cloned().unwrap_or_else(fresh_id);
    let method = request.method().clone();
    let footprint = Footprint::default();
    request.extensions_mut().insert(footprint.clone());
    let mut line = Line { log, id, method, footprint, start, status: CLIENT_GONE };
    let mut response = REQUEST_ID.scope(line.id.clone(), next(request)).await;
    line.status = response.status().as_u16();
    let id = line.id.clone();
    let micros = start.elapsed().as_micros();
    drop(line);
    let runtime = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID_HEADER, id);
    if let Ok(runtime) = HeaderValue::from_maybe_shared(Bytes::from(runtime)) {
        headers.insert(RUNTIME, runtime);
    }
    response
}

/// What the log shows for a request whose client went away before the answer.
const CLIENT_GONE: u16 = 499;

/// The line of a request, written when it is let go of: after the answer, or because nobody waits for it any more.
struct Line<'a> {
    log: &'a AccessLog,
    id: HeaderValue,
    method: Method,
    footprint: Footprint,
    start: Instant,
    status: u16,
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        let Self { log, id, method, footprint, start, status } = self;
        let answered = Answered {
            id: id.to_str().unwrap_or_default(),
            method: method.as_str(),
            route: footprint.0.route(),
            status: *status,
            duration: start.elapsed(),
            user: footprint.0.who.user(),
            acting_as: footprint.0.who.acting_as(),
        };
        log(&answered);
        metrics::count(&answered);
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Footprint {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self::of(&parts.extensions))
    }
}

impl ArgDoc for Footprint {
    fn describe(_: &mut OperationDoc) {}
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
    let id = Bytes::from(format!("{start:x}-{number:x}"));
    HeaderValue::from_maybe_shared(id).expect("hex digits are fine in a header")
}
