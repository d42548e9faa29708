//! Pages of other origins may call the interface, with a token but without cookies.
//!
//! Written by hand because a plain `OPTIONS` without an origin has to reach the route and tell its methods.

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};

const EXPOSED: HeaderValue = HeaderValue::from_static(
    "Link, X-Total, X-Total-Pages, X-Per-Page, X-Page, X-Next-Page, X-Prev-Page, X-Request-Id, Retry-After",
);
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");

pub(crate) async fn allow(request: Request, next: impl AsyncFnOnce(Request) -> Response) -> Response {
    let headers = request.headers();
    let from_elsewhere = headers.contains_key(header::ORIGIN) && request.uri().path().starts_with("/api/");
    if !from_elsewhere {
        return next(request).await;
    }
    let preflight = request.method() == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let asked = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let mut response = if preflight {
        let mut response = StatusCode::NO_CONTENT.into_response();
        let granted = response.headers_mut();
        granted.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        granted.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("1800"));
        if let Some(asked) = asked {
            granted.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked);
        }
        response
    } else {
        next(request).await
    };
    grant(response.headers_mut());
    response
}

fn grant(headers: &mut HeaderMap) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
}
