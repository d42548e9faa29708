//! Opens a request: parameters from query, form, multipart and JSON end up in one bag.

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
    access_log::{Footprint, request_id},
    bodies::{self, Prover, ReadBody},
    buffered::{Making, wait_for_client},
    error::ApiError,
    json_items::{self, JsonFields},
    limits::Place,
    params::{Bag, Item, MOST_PARAMETERS},
};

/// How many values of a JSON body nobody counts: what they take in memory is little.
const FEW_VALUES: usize = 1000;
/// What a value takes in memory beside its text.
const BYTES_PER_VALUE: usize = 64;

/// What is known of requests and answers by their route.
#[derive(Clone, Copy)]
struct Shape {
    /// How large the body may be.
    limit: usize,
    /// What proves that the client may send a large one.
    prover: Prover,
    /// Whether the answer is a page of a list.
    is_list: bool,
}

/// A handler whose request is opened first, and whether it answers with a page of a list.
///
/// A handler around a handler and not a layer of the router: a layer would copy boxed services for every request.
#[derive(Clone)]
pub(crate) struct Opened<H>(pub(crate) H, pub(crate) bool);

impl<H: Handler<T, App>, T: 'static> Handler<T, App> for Opened<H> {
    type Future = Pin<Box<dyn Future<Output = Response> + Send>>;

    fn call(self, request: Request, app: App) -> Self::Future {
        let shape = Shape { limit: app.body_limit(), prover: Prover::User, is_list: self.1 };
        Box::pin(open(self.0, request, app, shape))
    }
}

/// The same for a request that may be larger than others, and what proves that the client may send it.
#[derive(Clone)]
pub(crate) struct OpenedUpTo<H>(pub(crate) usize, pub(crate) Prover, pub(crate) H);

impl<H: Handler<T, App>, T: 'static> Handler<T, App> for OpenedUpTo<H> {
    type Future = Pin<Box<dyn Future<Output = Response> + Send>>;

    fn call(self, request: Request, app: App) -> Self::Future {
        let shape = Shape { limit: self.0.max(app.body_limit()), prover: self.1, is_list: false };
        Box::pin(open(self.2, request, app, shape))
    }
}

/// Reads the parameters, runs the handler, and answers 304 where the client has the answer already.
async fn open<H: Handler<T, App>, T: 'static>(handler: H, request: Request, app: App, shape: Shape) -> Response {
    Footprint::leave_route(request.extensions());
    let (mut parts, body) = request.into_parts();
    let ReadParams { bag, places } = match read(&app, &mut parts, body, shape.limit, shape.prover).await {
        Ok(read) => read,
        Err(error) => return error.into_response(),
    };
    let asks = matches!(parts.method, Method::GET | Method::HEAD);
    let known = parts.headers.get(header::IF_NONE_MATCH).filter(|_| asks).cloned();
    if let Err(error) = app.limits().settle(&parts.extensions, &bag) {
        return error.into_response();
    }
    let place = match app.limits().heavy_place(&parts.extensions).await {
        Ok(place) => place,
        Err(error) => return error.into_response(),
    };
    let longest = app.limits().request_time();
    let route = parts.extensions.get::<MatchedPath>().map(MatchedPath::as_str).filter(|_| asks);
    let making = match route.and_then(|route| Making::of(route, shape.is_list, &bag)) {
        Some(making) => match app.limits().answer_place(&parts.extensions, making).await {
            Ok(place) => Some(place),
            Err(error) => return error.into_response(),
        },
        None => None,
    };
    parts.extensions.insert(Arc::new(bag));
    let forge = app.forge().clone();
    let answering = handler.call(Request::from_parts(parts, Body::empty()), app);
    let Ok(response) = tokio::time::timeout(longest, answering).await else {
        tracing::warn!(request = request_id(), "a request took too long and was given up");
        return ApiError::Forge(forge::Error::Busy).into_response();
    };
    let response = match known {
        Some(known) if response.headers().get(header::ETAG) == Some(&known) => unchanged(response),
        _ => wait_for_client(&forge, response).await,
    };
    drop((places, place, making));
    response
}

fn unchanged(response: Response) -> Response {
    let (mut parts, _) = response.into_parts();
    parts.status = StatusCode::NOT_MODIFIED;
    parts.headers.remove(header::CONTENT_TYPE);
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::empty())
}

/// The parameters of a request.
pub(crate) struct ReadParams {
    pub(crate) bag: Bag,
    /// What was reserved for them; to be held for as long as they are.
    pub(crate) places: Vec<Place>,
}

/// Reads all parameters of a request.
pub(crate) async fn read(
    app: &App,
    parts: &mut Parts,
    body: Body,
    limit: usize,
    prover: Prover,
) -> Result<ReadParams, ApiError> {
    let bag = read_query(parts.uri.query())?;
    let mut read = ReadParams { bag, places: Vec::new() };
    if !body.is_end_stream() {
        // Boxed, so that requests without a body do not carry the room that reading one takes.
        Box::pin(read_body(app, parts, body, limit, prover, &mut read)).await?;
    }
    Ok(read)
}

/// Reads the parameters that stand in the URL.
pub(crate) fn read_query(query: Option<&str>) -> Result<Bag, ApiError> {
    Ok(Bag::collect(pairs(query.unwrap_or_default().as_bytes()))?)
}

async fn read_body(
    app: &App,
    parts: &mut Parts,
    body: Body,
    limit: usize,
    prover: Prover,
    into: &mut ReadParams,
) -> Result<(), ApiError> {
    let kind = parts.headers.get(header::CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or("?")).unwrap_or_default();
    let (kind, essence) = (kind.to_owned(), kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase());
    let ReadBody { bytes, places, mut is_proved } = bodies::read(app, parts, body, limit, prover).await?;
    if bytes.is_empty() {
        return Ok(());
    }
    let ((bag, values), places) = bodies::parse(bytes.len(), places, move || parse(kind, essence, bytes)).await?;
    into.places = places;
    if values > FEW_VALUES {
        if into.places.is_empty() {
            // A small body is read without asking who sends it.
            is_proved = bodies::is_proved(app, parts, prover).await?;
        }
        let more = app.limits().more_body_place(&parts.extensions, values * BYTES_PER_VALUE, is_proved)?;
        into.places.push(more);
    }
    into.bag.overlay(bag);
    Ok(())
}

/// The parameters in a body, and of how many values they consist if it is JSON.
async fn parse(kind: String, essence: String, bytes: Bytes) -> Result<(Bag, usize), ApiError> {
    match essence.as_str() {
        "" | "application/x-www-form-urlencoded" => Ok((Bag::collect(pairs(&bytes))?, 0)),
        "application/json" => {
            let JsonFields { fields, values } = json_items::read(&bytes)?;
            Ok((Bag::collect(fields.into_iter())?, values))
        }
        "multipart/form-data" => Ok((read_multipart(&kind, bytes).await?, 0)),
        "text/plain" => Ok((Bag::default(), 0)),
        _ => Err(ApiError::UnsupportedType(essence)),
    }
}

/// The pairs of a query or a form. Text that is not UTF-8 stays recognisable as garbled, never silently repaired.
fn pairs(text: &[u8]) -> impl Iterator<Item = (String, Item)> {
    text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        let mut halves = pair.splitn(2, |byte| *byte == b'=');
        let mut half = || {
            let half = halves.next().unwrap_or_default();
            // Most have no spaces, and some are large.
            let spaced: Cow<'_, [u8]> = if half.contains(&b'+') {
                half.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect()
            } else {
                half.into()
            };
            let decoded: Cow<'_, [u8]> = percent_decode(&spaced).into();
            String::from_utf8(decoded.into_owned())
        };
        let name = half().unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        (name, half().map_or(Item::Garbled, Item::Text))
    })
}

async fn read_multipart(kind: &str, bytes: Bytes) -> Result<Bag, ApiError> {
    let boundary = multer::parse_boundary(kind).map_err(|_| ApiError::BadBody)?;
    let stream = futures_util::stream::once(async { Ok::<_, std::convert::Infallible>(bytes) });
    let mut multipart = multer::Multipart::new(stream, boundary);
    let (mut pairs, mut count) = (Vec::new(), 0);
    while let Some(field) = multipart.next_field().await.map_err(|_| ApiError::BadBody)? {
        count += 1;
        if count > MOST_PARAMETERS {
            return Err(ApiError::TooMany);
        }
        let Some(name) = field.name().map(ToOwned::to_owned) else { continue };
        let is_file = field.file_name().is_some();
        let content = field.bytes().await.map_err(|_| ApiError::BadBody)?;
        let text = || String::from_utf8(content.to_vec()).map_or(Item::Garbled, Item::Text);
        pairs.push((name, if is_file { Item::Other } else { text() }));
    }
    Ok(Bag::collect(pairs.into_iter())?)
}
