//! Opens a request: parameters from query, form, multipart and JSON end up in one bag.

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use axum::{
    body::{Body, HttpBody as _},
    extract::{FromRef as _, MatchedPath, Request},
    handler::Handler,
    http::{HeaderMap, Method, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use forge::Forge;
use http_body_util::{BodyExt as _, Limited};
use percent_encoding::percent_decode;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::{
    App,
    access_log::{Footprint, request_id},
    buffered::{place_for, wait_for_client},
    error::ApiError,
    params::{Bag, Item},
};

/// How long a body may take to arrive.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A handler whose request is opened first.
///
/// A handler around a handler and not a layer of the router: a layer would copy boxed services for every request.
#[derive(Clone)]
pub(crate) struct Opened<H>(pub(crate) H);

impl<H: Handler<T, App>, T: 'static> Handler<T, App> for Opened<H> {
    type Future = Pin<Box<dyn Future<Output = Response> + Send>>;

    fn call(self, request: Request, app: App) -> Self::Future {
        let limit = app.body_limit();
        Box::pin(open(self.0, request, app, limit))
    }
}

/// The same for a request that may be larger than others.
#[derive(Clone)]
pub(crate) struct OpenedUpTo<H>(pub(crate) usize, pub(crate) H);

impl<H: Handler<T, App>, T: 'static> Handler<T, App> for OpenedUpTo<H> {
    type Future = Pin<Box<dyn Future<Output = Response> + Send>>;

    fn call(self, request: Request, app: App) -> Self::Future {
        let limit = self.0.max(app.body_limit());
        Box::pin(open(self.1, request, app, limit))
    }
}

/// Reads the parameters, runs the handler, and answers 304 where the client has the answer already.
async fn open<H: Handler<T, App>, T: 'static>(handler: H, request: Request, app: App, limit: usize) -> Response {
    Footprint::leave_route(request.extensions());
    let (mut parts, body) = request.into_parts();
    let bag = match read(limit, parts.uri.query(), &parts.headers, body).await {
        Ok(bag) => bag,
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
    let making = match place_for(route, longest).await {
        Ok(making) => making,
        Err(error) => return error.into_response(),
    };
    parts.extensions.insert(Arc::new(bag));
    let forge = Forge::from_ref(&app);
    let answering = handler.call(Request::from_parts(parts, Body::empty()), app);
    let Ok(response) = tokio::time::timeout(longest, answering).await else {
        tracing::warn!(request = request_id(), "a request took too long and was given up");
        return ApiError::Forge(forge::Error::Busy).into_response();
    };
    let response = match known {
        Some(known) if response.headers().get(header::ETAG) == Some(&known) => unchanged(response),
        _ => wait_for_client(&forge, response).await,
    };
    drop((place, making));
    response
}

fn unchanged(response: Response) -> Response {
    let (mut parts, _) = response.into_parts();
    parts.status = StatusCode::NOT_MODIFIED;
    parts.headers.remove(header::CONTENT_TYPE);
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::empty())
}

/// Reads all parameters of a request.
pub(crate) async fn read(limit: usize, query: Option<&str>, headers: &HeaderMap, body: Body) -> Result<Bag, ApiError> {
    let mut bag = read_query(query)?;
    if !body.is_end_stream() {
        // Boxed, so that requests without a body do not carry the room that reading one takes.
        bag.overlay(Box::pin(read_body(limit, headers, body)).await?);
    }
    Ok(bag)
}

/// Reads the parameters that stand in the URL.
pub(crate) fn read_query(query: Option<&str>) -> Result<Bag, ApiError> {
    Ok(Bag::collect(pairs(query.unwrap_or_default().as_bytes()))?)
}

async fn read_body(limit: usize, headers: &HeaderMap, body: Body) -> Result<Bag, ApiError> {
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or("?")).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    // Told ahead, so that a client that asks first does not send it at all.
    if body.size_hint().lower() > limit as u64 {
        return Err(ApiError::TooLarge);
    }
    let bytes = collect(limit, body).await?;
    if bytes.is_empty() {
        return Ok(Bag::default());
    }
    match essence.as_str() {
        "" | "application/x-www-form-urlencoded" => Ok(Bag::collect(pairs(&bytes))?),
        "application/json" => read_json(&bytes),
        "multipart/form-data" => read_multipart(kind, bytes).await,
        "text/plain" => Ok(Bag::default()),
        _ => Err(ApiError::UnsupportedType(essence)),
    }
}

/// Reads a body that may have so many bytes.
pub(crate) async fn collect(limit: usize, body: Body) -> Result<Bytes, ApiError> {
    let collected = tokio::time::timeout(PATIENCE, Limited::new(body, limit).collect()).await;
    match collected {
        Err(_) => Err(ApiError::TooSlow),
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(ApiError::TooLarge),
        Ok(Err(error)) if is_too_slow(&*error) => Err(ApiError::TooSlow),
        Ok(Err(_)) => Err(ApiError::BadBody),
    }
}

/// Whether whoever reads the connection has lost patience.
fn is_too_slow(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::TimedOut)
    })
}

/// The pairs of a query or a form. Text that is not UTF-8 stays recognisable as garbled, never silently repaired.
fn pairs(text: &[u8]) -> impl Iterator<Item = (String, Item)> {
    text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        let mut halves = pair.splitn(2, |byte| *byte == b'=');
        let mut half = || {
            let spaced: Vec<u8> =
                halves.next().unwrap_or_default().iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
            String::from_utf8(percent_decode(&spaced).collect())
        };
        let name = half().unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        (name, half().map_or(Item::Garbled, Item::Text))
    })
}

/// The fields of an object; anything else holds no parameters.
fn read_json(bytes: &[u8]) -> Result<Bag, ApiError> {
    let Fields(fields) = serde_json::from_slice(bytes).map_err(|_| ApiError::BadBody)?;
    Ok(Bag::collect(fields.into_iter().map(|(name, value)| (name, Item::from(value))))?)
}

/// The fields of an object in their order, those that come twice included: a map would silently keep the last one.
struct Fields(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Fields(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Fields, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Fields(Vec::new()))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Fields, E> {
        Ok(Fields(Vec::new()))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Fields, E> {
        Ok(Fields(Vec::new()))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Fields, E> {
        Ok(Fields(Vec::new()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Fields, E> {
        Ok(Fields(Vec::new()))
    }

    fn visit_str<E>(self, _: &str) -> Result<Fields, E> {
        Ok(Fields(Vec::new()))
    }

    fn visit_unit<E>(self) -> Result<Fields, E> {
        Ok(Fields(Vec::new()))
    }
}

async fn read_multipart(kind: &str, bytes: Bytes) -> Result<Bag, ApiError> {
    let boundary = multer::parse_boundary(kind).map_err(|_| ApiError::BadBody)?;
    let stream = futures_util::stream::once(async { Ok::<_, std::convert::Infallible>(bytes) });
    let mut multipart = multer::Multipart::new(stream, boundary);
    let mut pairs = Vec::new();
    while let Some(field) = multipart.next_field().await.map_err(|_| ApiError::BadBody)? {
        let Some(name) = field.name().map(ToOwned::to_owned) else { continue };
        let is_file = field.file_name().is_some();
        let content = field.bytes().await.map_err(|_| ApiError::BadBody)?;
        let text = || String::from_utf8(content.to_vec()).map_or(Item::Garbled, Item::Text);
        pairs.push((name, if is_file { Item::Other } else { text() }));
    }
    Ok(Bag::collect(pairs.into_iter())?)
}
