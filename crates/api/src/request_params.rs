//! Reads the parameters of a request from query, form, multipart and JSON into one [`RawParams`].

use std::{borrow::Cow, pin::Pin, sync::Arc};

use axum::{
    body::{Body, HttpBody as _},
    extract::{MatchedPath, Request},
    handler::Handler,
    http::{Method, StatusCode, header, request::Parts},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use percent_encoding::percent_decode;

use crate::{
    App,
    access_log::{AccessLogContext, request_id},
    error::ApiError,
    json_params::{self, JsonFields},
    limits::Permit,
    params::{MAX_PARAMS, ParamValue, RawParams},
    request_body::{self, LargeBodyAuth, ReadBody},
    response_buffer::{ResponseCost, buffer_response},
};

/// The number of JSON values for which no extra memory is reserved.
const UNCOUNTED_VALUES: usize = 1000;
/// The memory of a JSON value besides its text, in bytes.
const BYTES_PER_VALUE: usize = 64;

/// How requests of a route are handled.
#[derive(Clone, Copy)]
struct RouteOptions {
    /// The maximum size of the body in bytes.
    limit: usize,
    /// How the client is authenticated before a large body is read.
    auth: LargeBodyAuth,
    /// Whether the response is a page of a list.
    is_list: bool,
}

/// A handler whose parameters are read first, and whether its response is a page of a list.
///
/// A wrapper of the handler and not a router layer, which would clone boxed services for every request.
#[derive(Clone)]
pub(crate) struct WithParams<H>(pub(crate) H, pub(crate) bool);

impl<H: Handler<T, App>, T: 'static> Handler<T, App> for WithParams<H> {
    type Future = ResponseFuture;

    fn call(self, request: Request, app: App) -> Self::Future {
        let options = RouteOptions { limit: app.body_limit(), auth: LargeBodyAuth::User, is_list: self.1 };
        Box::pin(handle_request(erase(self.0), request, app, options))
    }
}

/// The same for a larger maximum body size, with the authentication that large bodies need.
#[derive(Clone)]
pub(crate) struct WithLargeParams<H>(pub(crate) usize, pub(crate) LargeBodyAuth, pub(crate) H);

impl<H: Handler<T, App>, T: 'static> Handler<T, App> for WithLargeParams<H> {
    type Future = ResponseFuture;

    fn call(self, request: Request, app: App) -> Self::Future {
        let options = RouteOptions { limit: self.0.max(app.body_limit()), auth: self.1, is_list: false };
        Box::pin(handle_request(erase(self.2), request, app, options))
    }
}

/// A handler without its type, so that [`handle_request`] is compiled once and not for each of them. Handlers are
/// functions without state, so this allocates nothing.
type ErasedHandler = Box<dyn FnOnce(Request, App) -> ResponseFuture + Send>;
type ResponseFuture = Pin<Box<dyn Future<Output = Response> + Send>>;

fn erase<H: Handler<T, App>, T: 'static>(handler: H) -> ErasedHandler {
    Box::new(|request, app| Box::pin(handler.call(request, app)))
}

/// Reads the parameters, runs the handler, and responds with 304 if the client has the response already.
async fn handle_request(handler: ErasedHandler, request: Request, app: App, options: RouteOptions) -> Response {
    AccessLogContext::record_route(request.extensions());
    let (mut parts, body) = request.into_parts();
    let ParsedParams { params, permits } = match read(&app, &mut parts, body, options.limit, options.auth).await {
        Ok(read) => read,
        Err(error) => return error.into_response(),
    };
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    let client_etag = parts.headers.get(header::IF_NONE_MATCH).filter(|_| is_read).cloned();
    if let Err(error) = app.limits().count_body_tokens(&parts.extensions, &params) {
        return error.into_response();
    }
    let expensive_permit = match app.limits().acquire_expensive(&parts.extensions).await {
        Ok(permit) => permit,
        Err(error) => return error.into_response(),
    };
    let request_timeout = app.limits().request_timeout();
    let route = parts.extensions.get::<MatchedPath>().map(MatchedPath::as_str).filter(|_| is_read);
    let response_permit = match route.and_then(|route| ResponseCost::of(route, options.is_list, &params)) {
        Some(cost) => match app.limits().acquire_response(&parts.extensions, cost).await {
            Ok(permit) => Some(permit),
            Err(error) => return error.into_response(),
        },
        None => None,
    };
    parts.extensions.insert(Arc::new(params));
    let forge = app.forge().clone();
    let response_future = handler(Request::from_parts(parts, Body::empty()), app);
    let Ok(response) = tokio::time::timeout(request_timeout, response_future).await else {
        tracing::warn!(request = request_id(), "request timed out");
        return ApiError::Forge(forge::Error::Busy).into_response();
    };
    let response = match client_etag {
        Some(etag) if response.headers().get(header::ETAG) == Some(&etag) => not_modified(response),
        _ => buffer_response(&forge, response).await,
    };
    drop((permits, expensive_permit, response_permit));
    response
}

fn not_modified(response: Response) -> Response {
    let (mut parts, _) = response.into_parts();
    parts.status = StatusCode::NOT_MODIFIED;
    parts.headers.remove(header::CONTENT_TYPE);
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::empty())
}

/// The parameters of a request.
pub(crate) struct ParsedParams {
    pub(crate) params: RawParams,
    /// The memory reserved for them; held as long as the parameters.
    pub(crate) permits: Vec<Permit>,
}

/// Reads all parameters of a request.
pub(crate) async fn read(
    app: &App,
    parts: &mut Parts,
    body: Body,
    limit: usize,
    auth: LargeBodyAuth,
) -> Result<ParsedParams, ApiError> {
    let params = read_query(parts.uri.query())?;
    let mut read = ParsedParams { params, permits: Vec::new() };
    if !body.is_end_stream() {
        // Boxed, so that the future is small for requests without a body.
        Box::pin(read_body(app, parts, body, limit, auth, &mut read)).await?;
    }
    Ok(read)
}

/// Reads the parameters in the query of a URL.
pub(crate) fn read_query(query: Option<&str>) -> Result<RawParams, ApiError> {
    Ok(RawParams::from_pairs(pairs(query.unwrap_or_default().as_bytes()))?)
}

async fn read_body(
    app: &App,
    parts: &mut Parts,
    body: Body,
    limit: usize,
    auth: LargeBodyAuth,
    result: &mut ParsedParams,
) -> Result<(), ApiError> {
    let content_type =
        parts.headers.get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap_or("?")).unwrap_or_default();
    let (content_type, media_type) =
        (content_type.to_owned(), content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase());
    let ReadBody { bytes, permits, mut is_authenticated } = request_body::read(app, parts, body, limit, auth).await?;
    if bytes.is_empty() {
        return Ok(());
    }
    let ((params, values), permits) =
        request_body::parse(bytes.len(), permits, move || parse(content_type, media_type, bytes)).await?;
    result.permits = permits;
    if values > UNCOUNTED_VALUES {
        if result.permits.is_empty() {
            // For a small body this is not known yet.
            is_authenticated = request_body::is_authenticated(app, parts, auth).await?;
        }
        let extra_permit =
            app.limits().try_acquire_body(&parts.extensions, values * BYTES_PER_VALUE, is_authenticated)?;
        result.permits.push(extra_permit);
    }
    result.params.overlay(params);
    Ok(())
}

/// Parses the parameters in a body, and counts their values if it is JSON.
async fn parse(content_type: String, media_type: String, bytes: Bytes) -> Result<(RawParams, usize), ApiError> {
    match media_type.as_str() {
        "" | "application/x-www-form-urlencoded" => Ok((RawParams::from_pairs(pairs(&bytes))?, 0)),
        "application/json" => {
            let JsonFields { fields, values } = json_params::read(&bytes)?;
            Ok((RawParams::from_pairs(fields.into_iter())?, values))
        }
        "multipart/form-data" => Ok((read_multipart(&content_type, bytes).await?, 0)),
        "text/plain" => Ok((RawParams::default(), 0)),
        _ => Err(ApiError::UnsupportedContentType(media_type)),
    }
}

/// Returns the pairs of a query or a form. Invalid UTF-8 is marked as such and never silently replaced.
fn pairs(text: &[u8]) -> impl Iterator<Item = (String, ParamValue)> {
    text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        let mut halves = pair.splitn(2, |byte| *byte == b'=');
        let mut half = || {
            let half = halves.next().unwrap_or_default();
            // Most values have no spaces, and some are large.
            let spaced: Cow<'_, [u8]> = if half.contains(&b'+') {
                half.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect()
            } else {
                half.into()
            };
            let decoded: Cow<'_, [u8]> = percent_decode(&spaced).into();
            String::from_utf8(decoded.into_owned())
        };
        let name = half().unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        (name, half().map_or(ParamValue::InvalidUtf8, ParamValue::Text))
    })
}

async fn read_multipart(content_type: &str, bytes: Bytes) -> Result<RawParams, ApiError> {
    let boundary = multer::parse_boundary(content_type).map_err(|_| ApiError::MalformedBody)?;
    let stream = futures_util::stream::once(async { Ok::<_, std::convert::Infallible>(bytes) });
    let mut multipart = multer::Multipart::new(stream, boundary);
    let (mut pairs, mut count) = (Vec::new(), 0);
    while let Some(field) = multipart.next_field().await.map_err(|_| ApiError::MalformedBody)? {
        count += 1;
        if count > MAX_PARAMS {
            return Err(ApiError::TooManyParams);
        }
        let Some(name) = field.name().map(ToOwned::to_owned) else { continue };
        let is_file = field.file_name().is_some();
        let content = field.bytes().await.map_err(|_| ApiError::MalformedBody)?;
        let text = || String::from_utf8(content.to_vec()).map_or(ParamValue::InvalidUtf8, ParamValue::Text);
        pairs.push((name, if is_file { ParamValue::File } else { text() }));
    }
    Ok(RawParams::from_pairs(pairs.into_iter())?)
}
