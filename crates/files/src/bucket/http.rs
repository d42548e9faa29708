//! The HTTP client of a bucket, with time limits: a store that accepts a request and never answers is a failed one.

use std::{
    error::Error as StdError,
    fmt::{self, Debug, Formatter},
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector as ObjectStoreConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
        HttpResponse, HttpResponseBody, HttpService,
    },
};
use tls::Roots;
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::BucketError;

/// The maximum number of idle connections.
const MAX_IDLE_CONNECTIONS: usize = 16;
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// How long the client waits.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For a connection.
    pub connect: Duration,
    /// For a response, after the connection is established.
    pub response: Duration,
    /// For the next bytes of a response.
    pub read: Duration,
    /// For all attempts of a request that fails for a reason that may pass.
    pub retries: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            // Long enough for a part of an upload on a slow connection.
            response: Duration::from_secs(60),
            read: Duration::from_secs(20),
            retries: Duration::from_secs(15),
        }
    }
}

/// Creates the HTTP client.
pub(super) struct Connector {
    client: legacy::Client<HttpsConnector<HttpConnector>, HttpRequestBody>,
    timeouts: Timeouts,
}

impl Connector {
    pub(super) fn new(timeouts: Timeouts) -> Result<Self, BucketError> {
        let (roots, _) = Roots::system();
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_connect_timeout(Some(timeouts.connect));
        connector.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls::verified_client(roots)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
            .build(connector);
        Ok(Self { client, timeouts })
    }
}

impl Debug for Connector {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Connector")
    }
}

impl ObjectStoreConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Service { client: self.client.clone(), timeouts: self.timeouts }))
    }
}

struct Service {
    client: legacy::Client<HttpsConnector<HttpConnector>, HttpRequestBody>,
    timeouts: Timeouts,
}

impl Debug for Service {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Service")
    }
}

impl HttpService for Service {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let response = match timeout(self.timeouts.response, self.client.request(request)).await {
                Ok(response) => response.map_err(|error| HttpError::new(kind_of(&error), error))?,
                Err(elapsed) => return Err(HttpError::new(HttpErrorKind::Timeout, io::Error::from(elapsed))),
            };
            let body = |body: Incoming| HttpResponseBody::new(TimedBody::new(body, self.timeouts.read));
            Ok(response.map(body))
        })
    }
}

/// Returns whether a request can be sent again after an error.
fn kind_of(error: &legacy::Error) -> HttpErrorKind {
    if error.is_connect() {
        return HttpErrorKind::Connect;
    }
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    for cause in causes {
        if let Some(error) = cause.downcast_ref::<hyper::Error>() {
            if error.is_timeout() {
                return HttpErrorKind::Timeout;
            }
            if error.is_closed()
                || error.is_canceled()
                || error.is_incomplete_message()
                || error.is_body_write_aborted()
            {
                return HttpErrorKind::Interrupted;
            }
        }
        if cause.is::<io::Error>() {
            return HttpErrorKind::Interrupted;
        }
    }
    HttpErrorKind::Unknown
}

/// The body of a response; it fails if no bytes arrive for a while.
struct TimedBody {
    body: Incoming,
    timeout: Duration,
    deadline: Pin<Box<Sleep>>,
}

impl TimedBody {
    fn new(body: Incoming, timeout: Duration) -> Self {
        Self { body, timeout, deadline: Box::pin(sleep(timeout)) }
    }
}

impl Body for TimedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            let deadline = Instant::now() + self.timeout;
            self.deadline.as_mut().reset(deadline);
            let failed = |error| HttpError::new(HttpErrorKind::Interrupted, error);
            return Poll::Ready(frame.map(|frame| frame.map_err(failed)));
        }
        if self.deadline.as_mut().poll(cx).is_ready() {
            let error = io::Error::new(io::ErrorKind::TimedOut, "the store has stopped sending");
            return Poll::Ready(Some(Err(HttpError::new(HttpErrorKind::Timeout, error))));
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
