//! Opens a request: parameters from query, form, multipart and JSON end up in one bag.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, HttpBody as _},
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use percent_encoding::percent_decode;
use serde_json::{Map, Value};

use crate::{
    App,
    access_log::Footprint,
    error::ApiError,
    params::{Bag, Item},
};

/// How long a body may take to arrive.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reads the parameters, runs the handler, and answers 304 where the client has the answer already.
pub(crate) async fn open(State(app): State<App>, request: Request, next: Next) -> Response {
    Footprint::leave_route(request.extensions());
    let (mut parts, body) = request.into_parts();
    let bag = match read(&app, parts.uri.query(), &parts.headers, body).await {
        Ok(bag) => bag,
        Err(error) => return error.into_response(),
    };
    let asks = matches!(parts.method, Method::GET | Method::HEAD);
    let known = parts.headers.get(header::IF_NONE_MATCH).filter(|_| asks).cloned();
    parts.extensions.insert(Arc::new(bag));
    let response = next.run(Request::from_parts(parts, Body::empty())).await;
    match known {
        Some(known) if response.headers().get(header::ETAG) == Some(&known) => unchanged(response),
        _ => response,
    }
}

fn unchanged(response: Response) -> Response {
    let (mut parts, _) = response.into_parts();
    parts.status = StatusCode::NOT_MODIFIED;
    parts.headers.remove(header::CONTENT_TYPE);
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::empty())
}

async fn read(app: &App, query: Option<&str>, headers: &HeaderMap, body: Body) -> Result<Bag, ApiError> {
    let mut bag = Bag::collect(pairs(query.unwrap_or_default().as_bytes()))?;
    if body.is_end_stream() {
        return Ok(bag);
    }
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or("?")).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let known = matches!(
        essence.as_str(),
        "" | "application/x-www-form-urlencoded" | "application/json" | "multipart/form-data" | "text/plain"
    );
    let bytes = collect(app.body_limit(), body).await?;
    if bytes.is_empty() {
        return Ok(bag);
    }
    if !known {
        return Err(ApiError::UnsupportedType(essence));
    }
    bag.overlay(match essence.as_str() {
        "" | "application/x-www-form-urlencoded" => Bag::collect(pairs(&bytes))?,
        "application/json" => read_json(&bytes)?,
        "multipart/form-data" => read_multipart(kind, bytes).await?,
        _ => Bag::default(),
    });
    Ok(bag)
}

async fn collect(limit: usize, body: Body) -> Result<Bytes, ApiError> {
    let collected = tokio::time::timeout(PATIENCE, Limited::new(body, limit).collect()).await;
    match collected {
        Err(_) => Err(ApiError::TooSlow),
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(ApiError::TooLarge),
        Ok(Err(_)) => Err(ApiError::BadBody),
    }
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
    let value: Value = serde_json::from_slice(bytes).map_err(|_| ApiError::BadBody)?;
    let fields = if let Value::Object(fields) = value { fields } else { Map::new() };
    Ok(Bag::collect(fields.into_iter().map(|(name, value)| (name, Item::from(value))))?)
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
