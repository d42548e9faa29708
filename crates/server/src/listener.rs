//! Takes connections, and lets them finish when it is time to go.

use std::{convert::Infallible, sync::Arc, time::Duration};

use api::Door;
use axum::{body::Body, extract::ConnectInfo};
use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{net::TcpListener, sync::Semaphore};
use tracing::{debug, info, warn};

/// How long a client may take to send its headers, also on a connection kept open.
const HEADER_TIME: Duration = Duration::from_secs(60);
/// How long a client may take nothing of what is sent to it, in milliseconds.
const STALL_TIME: u32 = 90_000;
/// How many connections are served at once; further ones wait to be accepted.
const CONNECTIONS: usize = 2048;
/// How long requests under way may take when the server stops.
const DRAIN_TIME: Duration = Duration::from_secs(30);

/// Serves until told to stop; then answers what is under way.
pub(crate) async fn serve(listener: TcpListener, door: Door, stop: impl Future<Output = ()>) {
    let graceful = GracefulShutdown::new();
    let mut http = hyper::server::conn::http1::Builder::new();
    // Answers are small: one copy into one buffer is cheaper than telling the kernel of two.
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIME).writev(false);
    let mut stop = std::pin::pin!(stop);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await;
            listener.accept().await.map(|accepted| (accepted, place))
        };
        let accepted = tokio::select! {
            accepted = accepted => accepted,
            () = &mut stop => break,
        };
        let ((stream, peer), place) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Most likely too many open files; the next moment may be better.
                warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        // Whoever takes nothing of an answer for so long does not keep the place for others.
        let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, STALL_TIME);
        let door = door.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let door = door.clone();
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(peer));
            async move { Ok::<_, Infallible>(door.answer(request).await) }
        });
        let connection = http.serve_connection(TokioIo::new(stream), service);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "a connection ended early");
            }
            drop(place);
        });
    }
    drop(listener);
    info!("stopping: answering what is under way");
    if tokio::time::timeout(DRAIN_TIME, graceful.shutdown()).await.is_err() {
        warn!("some requests were still under way after {} seconds", DRAIN_TIME.as_secs());
    }
}
