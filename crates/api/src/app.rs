//! The application as a router: what requests pass on their way in and out.

use std::{num::NonZeroU32, panic::AssertUnwindSafe, sync::Arc};

use axum::{
    Router,
    body::HttpBody as _,
    extract::{FromRef, Request},
    http::{HeaderValue, Method, StatusCode, Uri, header},
    middleware::from_fn,
    response::{IntoResponse, Response},
};
use forge::{
    Forge,
    deliveries::{Address, Letter},
};
use futures_util::{FutureExt as _, future::BoxFuture};
use model::hooks::Attempt;
use tower::ServiceExt as _;

use crate::{
    Dialect,
    access_log::{self, AccessLog, Footprint},
    cors,
    error::plain_error,
    headers::{self, StrictTransport},
    identicon,
    limits::{Guards, Limits},
    names,
    neighbourhood::address_in,
    openapi, pages,
    proxies::{Reached, TrustedProxies},
    routes::Routes,
    runner,
    sign_in::SignInThrottle,
    v3,
};

/// What the handlers share.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    forge: Forge,
    dialect: Dialect,
    external_url: Option<String>,
    body_limit: usize,
    upload_limit: u64,
    artifact_limit: u64,
    throttle: SignInThrottle,
    limits: Limits,
    trusted_proxies: TrustedProxies,
    strict_transport: StrictTransport,
    openapi: bytes::Bytes,
    ssh_port: Option<u16>,
    git: Option<GitDoor>,
    courier: Option<CourierDoor>,
    access_log: AccessLog,
}

/// Takes the requests of git itself, and gives back what is none of its own.
pub type GitDoor = Arc<dyn Fn(Request) -> Result<BoxFuture<'static, Response>, Box<Request>> + Send + Sync>;

/// Brings a message to a hook at once, and tells how that went.
pub type CourierDoor = Arc<dyn Fn(Address, Letter) -> BoxFuture<'static, Attempt> + Send + Sync>;

/// What an application is made of.
pub struct AppOptions {
    /// Where everything is decided.
    pub forge: Forge,
    /// Whose word counts where the contract and the original differ.
    pub dialect: Dialect,
    /// The URL under which clients reach this server; without it, what the request says.
    pub external_url: Option<String>,
    /// The largest request body that is not an upload.
    pub body_limit: usize,
    /// The largest file that is taken.
    pub upload_limit: u64,
    /// The largest file that a job may leave behind.
    pub artifact_limit: u64,
    /// How often a minute one address may try to sign in; `None` is without limit.
    pub sign_ins_per_minute: Option<NonZeroU32>,
    /// How the interface is kept usable for everybody.
    pub guards: Guards,
    /// The port on which SSH listens, for links in answers.
    pub ssh_port: Option<u16>,
    /// Who speaks the protocol of git.
    pub git: Option<GitDoor>,
    /// Who brings messages to hooks that are tried out.
    pub courier: Option<CourierDoor>,
    /// Writes a line for each answered request.
    pub access_log: AccessLog,
}

impl App {
    /// Puts an application together.
    pub fn new(options: AppOptions) -> Self {
        let AppOptions {
            forge,
            dialect,
            external_url,
            body_limit,
            upload_limit,
            artifact_limit,
            sign_ins_per_minute,
            guards,
            ssh_port,
            git,
            courier,
            access_log,
        } = options;
        Self(Arc::new(Inner {
            forge,
            dialect,
            external_url: external_url.map(|url| url.trim_end_matches('/').to_owned()),
            body_limit,
            upload_limit,
            artifact_limit,
            throttle: SignInThrottle::new(sign_ins_per_minute),
            limits: Limits::new(&guards, body_limit),
            strict_transport: StrictTransport::new(guards.hsts_seconds),
            trusted_proxies: guards.trusted_proxies,
            openapi: openapi::document(&v3::routes()),
            ssh_port,
            git,
            courier,
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

    pub(crate) fn body_limit(&self) -> usize {
        self.0.body_limit
    }

    pub(crate) fn upload_limit(&self) -> u64 {
        self.0.upload_limit
    }

    pub(crate) fn artifact_limit(&self) -> u64 {
        self.0.artifact_limit
    }

    pub(crate) fn courier(&self) -> Option<&CourierDoor> {
        self.0.courier.as_ref()
    }

    pub(crate) fn throttle(&self) -> &SignInThrottle {
        &self.0.throttle
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

/// The way in: everything under `/api`, the pictures it points to, and what stands beside it.
#[derive(Clone)]
pub struct Door {
    router: Router,
    app: App,
}

/// The longest path with its query that is looked at.
const LONGEST_URI: usize = 16 << 10;

impl Door {
    /// Builds the way in. `beside` joins the interface and passes the same log.
    pub fn new(app: &App, beside: Router) -> Self {
        let beside = beside
            .route("/-/identicon/{seed}", axum::routing::get(identicon::show))
            .layer(from_fn(access_log::remember_route));
        let api = Routes::into_router(v3::routes(), "/api/v3")
            .merge(Routes::into_router(runner::v4(), runner::V4))
            .merge(Routes::into_router(runner::ci_v1(), runner::CI_V1))
            .with_state(app.clone())
            .merge(beside)
            .method_not_allowed_fallback(wrong_method);
        let (tidied, app_of_pages) = (api.clone(), app.clone());
        let router = api.fallback(move |request| elsewhere(app_of_pages, tidied, request));
        Self { router, app: app.clone() }
    }

    /// Answers a request. Around every route stand the access log, other origins, limits, and the net under a panic;
    /// they are plain calls here and not layers of the router, which would cost each request several allocations.
    pub async fn answer(&self, mut request: Request) -> Response {
        let app = &self.app.0;
        app.trusted_proxies.look_behind(&mut request);
        let secure = request.extensions().get::<Reached>().is_some_and(|reached| reached.secure);
        let for_pages = !request.uri().path().starts_with("/api/");
        let answering = access_log::log(&app.access_log, request, |request| {
            cors::allow(request, async |request| self.admit(with_plain_path(request)).await)
        });
        let mut response = answering.await;
        headers::guard(&mut response, secure, &app.strict_transport, for_pages);
        response
    }

    /// Answers a request that is within its limits.
    async fn admit(&self, mut request: Request) -> Response {
        if request.uri().path_and_query().is_some_and(|uri| uri.as_str().len() > LONGEST_URI) {
            return plain_error(StatusCode::URI_TOO_LONG);
        }
        let limits = self.app.limits();
        let ticket = match limits.admit(&mut request) {
            Ok(ticket) => ticket,
            Err(refusal) => return without_body(&request, refusal.into_response()),
        };
        let (address, footprint) = (address_in(request.extensions()), Footprint::of(request.extensions()));
        let answer = AssertUnwindSafe(route(self.router.clone(), request)).catch_unwind().await;
        let answer = answer.unwrap_or_else(|panic| {
            let request = access_log::request_id();
            tracing::error!(request, panic = forge::panic_text(&*panic), "a handler panicked");
            crate::error::internal()
        });
        limits.conclude(ticket, address, &footprint, answer.status());
        answer
    }
}

/// An answer to a request of whose body nothing was read: if there is one, the connection ends with it, and the client is
/// told so, lest it sends the next request into nothing.
fn without_body(request: &Request, mut answer: Response) -> Response {
    if !request.body().is_end_stream() {
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

async fn route(router: Router, request: Request) -> Response {
    match router.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Clients may write the same path in several ways.
fn with_plain_path(mut request: Request) -> Request {
    let path = request.uri().path();
    let plain = match names::in_one_piece(request.method(), path) {
        Some(whole) => Some(whole).filter(|whole| whole != path),
        None => without_suffix(request.method(), path).map(ToOwned::to_owned),
    };
    if let Some(mut plain) = plain {
        if let Some(query) = request.uri().query() {
            plain.push('?');
            plain.push_str(query);
        }
        if let Ok(plain) = plain.parse() {
            *request.uri_mut() = plain;
        }
    }
    request
}

/// Clients of the original may name the format at the end of a path. Not where it may belong to a name: in an encoded path
/// of a project, outside the interface, and in the one name that is ours.
fn without_suffix<'a>(method: &Method, path: &'a str) -> Option<&'a str> {
    let changes = matches!(*method, Method::PUT | Method::DELETE);
    let named = |path: &str| {
        let (above, last) = path.rsplit_once('/').unwrap_or_default();
        // Two groups may differ by the suffix alone, and the wrong one must not be changed.
        let may_be_group = changes && above.ends_with("/groups") && !last.starts_with(|c: char| c.is_ascii_digit());
        last.contains('%') || last == "openapi.json" || may_be_group
    };
    let short = path.strip_suffix(".json").filter(|_| !named(path))?;
    let of_interface = short.starts_with("/api/") || short.starts_with(runner::CI_V1);
    (of_interface && !short.ends_with('/')).then_some(short)
}

/// A path that fits no route may be a repository or a page below a project, whose path has any number of segments.
async fn elsewhere(app: App, router: Router, request: Request) -> Response {
    let request = match &app.0.git {
        None => request,
        Some(git) => {
            let extensions = request.extensions().clone();
            match git(request) {
                Ok(answer) => {
                    Footprint::leave_page(&extensions, "git");
                    return answer.await;
                }
                Err(request) => *request,
            }
        }
    };
    match pages::uploads::Place::find(request.uri().path()) {
        Some(place) => pages::uploads::show(app, place, request).await,
        None => tidy(router, request).await,
    }
}

/// A path that fits no route may fit one once double and trailing slashes and a `.json` at its end are gone.
async fn tidy(router: Router, mut request: Request) -> Response {
    let path = request.uri().path();
    let mut tidied = String::with_capacity(path.len());
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        tidied.push('/');
        tidied.push_str(segment);
    }
    if let Some(whole) = names::in_one_piece(request.method(), &tidied) {
        tidied = whole;
    } else if let Some(short) = tidied.strip_suffix(".json") {
        tidied.truncate(short.len());
    }
    if tidied == path || tidied.is_empty() {
        return plain_error(StatusCode::NOT_FOUND);
    }
    if let Some(query) = request.uri().query() {
        tidied.push('?');
        tidied.push_str(query);
    }
    let Ok(uri) = tidied.parse::<Uri>() else { return plain_error(StatusCode::NOT_FOUND) };
    *request.uri_mut() = uri;
    route(router.fallback(|| async { plain_error(StatusCode::NOT_FOUND) }), request).await
}

/// A known path, but not with this method.
pub(crate) async fn wrong_method(request: Request) -> Response {
    Footprint::leave_route(request.extensions());
    match *request.method() {
        Method::OPTIONS => StatusCode::NO_CONTENT.into_response(),
        _ => plain_error(StatusCode::METHOD_NOT_ALLOWED),
    }
}
