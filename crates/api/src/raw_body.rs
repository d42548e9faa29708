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

use crate::{
    App,
    access_log::Footprint,
    error::ApiError,
    inbox,
    routes::{ArgDoc, OperationDoc},
};

/// The most bytes that are read.
const MOST: usize = 8 << 20;

/// A handler whose request carries bytes.
#[derive(Clone)]
pub(crate) struct WithRawBody<H>(pub(crate) H);

impl<H: Handler<T, App>, T: 'static> Handler<T, App> for WithRawBody<H> {
    type Future = Pin<Box<dyn Future<Output = Response> + Send>>;

    fn call(self, request: Request, app: App) -> Self::Future {
        Box::pin(open(self.0, request, app))
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

async fn open<H: Handler<T, App>, T: 'static>(handler: H, request: Request, app: App) -> Response {
    Footprint::leave_route(request.extensions());
    let (mut parts, body) = request.into_parts();
    let read = async {
        let bag = inbox::read_query(parts.uri.query())?;
        // Told ahead, so that a client that asks first does not send it at all.
        if body.size_hint().lower() > MOST as u64 {
            return Err(ApiError::TooLarge);
        }
        Ok((bag, inbox::collect(MOST, body).await?))
    };
    let (bag, bytes) = match read.await {
        Ok(read) => read,
        Err(error) => return error.into_response(),
    };
    parts.extensions.insert(Arc::new(bag));
    parts.extensions.insert(RawBody(bytes));
    handler.call(Request::from_parts(parts, Body::empty()), app).await
}
