//! Requests whose body is no set of parameters but bytes, such as a piece of a trace; parameters stand in the URL.

use std::{convert::Infallible, pin::Pin, sync::Arc};

use axum::{
    body::{Body, HttpBody as _},
    extract::{FromRequestParts, Request},
    handler::Handler,
    http::request::Parts,
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use forge::traces::JobProof;
use model::tokens::Digest;

use crate::{
    App,
    access_log::Footprint,
    bodies::{self, Prover, ReadBody},
    error::ApiError,
    inbox,
    params::Bag,
    routes::{ArgDoc, OperationDoc},
};

/// The most bytes that are read.
const MOST: usize = 8 << 20;

/// A handler whose request carries bytes, and what proves that the client may send them.
#[derive(Clone)]
pub(crate) struct WithRawBody<H>(pub(crate) fn(Vec<Digest>) -> JobProof, pub(crate) H);

impl<H: Handler<T, App>, T: 'static> Handler<T, App> for WithRawBody<H> {
    type Future = Pin<Box<dyn Future<Output = Response> + Send>>;

    fn call(self, request: Request, app: App) -> Self::Future {
        Box::pin(open(self.1, request, app, self.0))
    }
}

/// The bytes of a request.
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

async fn open<H: Handler<T, App>, T: 'static>(
    handler: H,
    request: Request,
    app: App,
    proof: fn(Vec<Digest>) -> JobProof,
) -> Response {
    Footprint::leave_route(request.extensions());
    let (mut parts, body) = request.into_parts();
    let (bag, ReadBody { bytes, places, .. }) = match read(&app, &mut parts, body, proof).await {
        Ok(read) => read,
        Err(error) => return error.into_response(),
    };
    parts.extensions.insert(Arc::new(bag));
    parts.extensions.insert(RawBody(bytes));
    let response = handler.call(Request::from_parts(parts, Body::empty()), app).await;
    drop(places);
    response
}

async fn read(
    app: &App,
    parts: &mut Parts,
    body: Body,
    proof: fn(Vec<Digest>) -> JobProof,
) -> Result<(Bag, ReadBody), ApiError> {
    let bag = inbox::read_query(parts.uri.query())?;
    let size = body.size_hint();
    if size.exact().is_none_or(|size| (bodies::SMALL as u64 + 1..=MOST as u64).contains(&size))
        && let Err(error) = bodies::check_job(app.forge(), parts, proof).await
    {
        bodies::discard(body);
        return Err(error);
    }
    Ok((bag, bodies::read(app, parts, body, MOST, Prover::Job(proof)).await?))
}
