//! Requests with a raw body, such as a part of a trace; their parameters are in the URL.

use std::{convert::Infallible, pin::Pin, sync::Arc};

use axum::{
    body::{Body, HttpBody as _},
    extract::{FromRequestParts, Request},
    handler::Handler,
    http::request::Parts,
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use forge::traces::JobCredentials;
use model::tokens::Digest;

use crate::{
    App,
    access_log::AccessLogContext,
    error::ApiError,
    params::RawParams,
    request_body::{self, LargeBodyAuth, ReadBody},
    request_params,
    routes::{ArgDoc, OperationDoc},
};

/// The maximum size of a raw body, in bytes.
const MAX_SIZE: usize = 8 << 20;

/// A handler of requests with a raw body, and how their tokens for the job are checked.
#[derive(Clone)]
pub(crate) struct WithRawBody<H>(pub(crate) fn(Vec<Digest>) -> JobCredentials, pub(crate) H);

impl<H: Handler<T, App>, T: 'static> Handler<T, App> for WithRawBody<H> {
    type Future = Pin<Box<dyn Future<Output = Response> + Send>>;

    fn call(self, request: Request, app: App) -> Self::Future {
        Box::pin(handle_request(self.1, request, app, self.0))
    }
}

/// The raw body of a request.
#[derive(Clone)]
pub(crate) struct RawBody(pub(crate) Bytes);

impl<S: Send + Sync> FromRequestParts<S> for RawBody {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(parts.extensions.remove().unwrap_or(Self(Bytes::new())))
    }
}

impl ArgDoc for RawBody {
    fn describe(_: &mut OperationDoc) {}
}

async fn handle_request<H: Handler<T, App>, T: 'static>(
    handler: H,
    request: Request,
    app: App,
    credentials: fn(Vec<Digest>) -> JobCredentials,
) -> Response {
    AccessLogContext::record_route(request.extensions());
    let (mut parts, body) = request.into_parts();
    let (params, ReadBody { bytes, permits, .. }) = match read(&app, &mut parts, body, credentials).await {
        Ok(read) => read,
        Err(error) => return error.into_response(),
    };
    parts.extensions.insert(Arc::new(params));
    parts.extensions.insert(RawBody(bytes));
    let response = handler.call(Request::from_parts(parts, Body::empty()), app).await;
    drop(permits);
    response
}

async fn read(
    app: &App,
    parts: &mut Parts,
    body: Body,
    credentials: fn(Vec<Digest>) -> JobCredentials,
) -> Result<(RawParams, ReadBody), ApiError> {
    let params = request_params::read_query(parts.uri.query())?;
    let size = body.size_hint();
    if size.exact().is_none_or(|size| (request_body::MAX_SMALL_BODY as u64 + 1..=MAX_SIZE as u64).contains(&size))
        && let Err(error) = request_body::check_job_token(app.forge(), parts, credentials).await
    {
        request_body::discard(body);
        return Err(error);
    }
    Ok((params, request_body::read(app, parts, body, MAX_SIZE, LargeBodyAuth::Job(credentials)).await?))
}
