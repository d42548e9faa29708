//! CORS: web pages of any origin may call the API, with a token but without cookies.
//!
//! Not a library layer, because a plain `OPTIONS` without an origin has to reach the route and list its methods.

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};

const EXPOSED_HEADERS: HeaderValue = HeaderValue::from_static(
    "Link, X-Total, X-Total-Pages, X-Per-Page, X-Page, X-Next-Page, X-Prev-Page, X-Request-Id, Retry-After",
);
const ALLOWED_METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");

/// Responds to preflight requests and adds CORS headers to responses of the API.
pub(crate) async fn with_cors(request: Request, next: impl AsyncFnOnce(Request) -> Response) -> Response {
    let headers = request.headers();
    let is_cross_origin = headers.contains_key(header::ORIGIN) && request.uri().path().starts_with("/api/");
    if !is_cross_origin {
        return next(request).await;
    }
    let is_preflight =
        request.method() == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let requested_headers = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let mut response = if is_preflight {
        let mut response = StatusCode::NO_CONTENT.into_response();
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, ALLOWED_METHODS);
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("1800"));
        if let Some(requested_headers) = requested_headers {
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, requested_headers);
        }
        response
    } else {
        next(request).await
    };
    add_cors_headers(response.headers_mut());
    response
}

fn add_cors_headers(headers: &mut HeaderMap) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS);
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
}
