//! What a monitor asks: is it alive, is it ready, how is it doing.

use std::net::SocketAddr;

use axum::{
    Router,
    extract::{ConnectInfo, Request, State},
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use forge::{Caller, Forge, deliveries, disk_space::Standing, tasks};
use metrics_exporter_prometheus::PrometheusHandle;

/// The routes under `/-/`.
pub(crate) fn routes(forge: Forge, metrics: PrometheusHandle) -> Router {
    Router::new()
        .route("/-/health", get(health))
        .route("/-/ready", get(ready))
        .route("/-/metrics", get(show_metrics))
        .with_state((forge, metrics))
}

type Shared = State<(Forge, PrometheusHandle)>;

/// Whether it is alive, and how well. Who is short of room still answers whoever reads, so that is no reason to end it.
async fn health(State((forge, _)): Shared) -> String {
    shortage(&forge).await.map_or_else(|| "ok\n".to_owned(), |trouble| format!("degraded: {trouble}\n"))
}

/// What is wrong with the room that there is, for the operator; `None` if nothing is.
async fn shortage(forge: &Forge) -> Option<String> {
    let asked = forge.clone();
    // It may try to write something.
    let standing = tokio::task::spawn_blocking(move || asked.standing()).await.ok()?;
    Some(match standing {
        Standing::Enough => return None,
        Standing::Low { free, least } => format!(
            "{} MiB are free on the disk of the data folder, and {} shall be; pushes and files are refused",
            free >> 20,
            least >> 20
        ),
        Standing::Full => "the disk of the data folder is full; nothing can be written".to_owned(),
        Standing::DatabaseFull => "the disk of the database server is full; nothing can be written".to_owned(),
    })
}

/// Whether requests can be served: the database answers.
async fn ready(State((forge, _)): Shared) -> Response {
    match forge.read(Caller::anonymous(), |tx| tx.ping()).await {
        Ok(()) => shortage(&forge)
            .await
            .map_or_else(|| "ready\n".to_owned(), |trouble| format!("ready, but degraded: {trouble}\n"))
            .into_response(),
        Err(error) => {
            tracing::warn!(%error, "not ready");
            (StatusCode::SERVICE_UNAVAILABLE, "the database does not answer\n").into_response()
        }
    }
}

/// Numbers for Prometheus: for this machine, and for administrators from anywhere.
async fn show_metrics(State((forge, metrics)): Shared, request: Request) -> Response {
    let caller = if is_local(&request) { Caller::system() } else { api::shown_by(request.headers()) };
    let look = |tx: &mut forge::ReadTx<'_>| Ok((tasks::count(tx)?, deliveries::standing(tx)?));
    let (counts, post) = match forge.read(caller, look).await {
        Ok(seen) => seen,
        Err(forge::Error::Unauthenticated | forge::Error::Forbidden(_)) => {
            return api::plain_error(StatusCode::NOT_FOUND);
        }
        Err(error) => {
            tracing::warn!(%error, "cannot count jobs and messages");
            return (StatusCode::SERVICE_UNAVAILABLE, "the database does not answer\n").into_response();
        }
    };
    metrics::gauge!("gable_jobs", "state" => "waiting").set(to_float(counts.0));
    metrics::gauge!("gable_jobs", "state" => "dead").set(to_float(counts.1));
    let oldest = post.oldest.map_or(0.0, |since| forge.now().duration_since(since).as_secs_f64().max(0.0));
    metrics::gauge!("gable_hook_deliveries_waiting").set(to_float(post.waiting));
    metrics::gauge!("gable_hook_oldest_waiting_seconds").set(oldest);
    metrics::gauge!("gable_hooks_paused").set(to_float(post.paused));
    metrics::gauge!("gable_degraded").set(if shortage(&forge).await.is_some() { 1.0 } else { 0.0 });
    if let Some(space) = forge.space() {
        metrics::gauge!("gable_disk_free_bytes").set(to_float(i64::try_from(space.free_bytes).unwrap_or(i64::MAX)));
    }
    for (queue, length) in forge.queue_lengths() {
        metrics::gauge!("gable_queue_length", "queue" => queue)
            .set(to_float(i64::try_from(length).unwrap_or(i64::MAX)));
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], metrics.render()).into_response()
}

/// Whether the request comes from this machine itself and not through a proxy on it.
fn is_local(request: &Request) -> bool {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let forwarded = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];
    peer.is_some_and(|peer| peer.0.ip().to_canonical().is_loopback())
        && !forwarded.iter().any(|name| request.headers().contains_key(*name))
}

#[expect(clippy::cast_precision_loss, reason = "a gauge needs no 53rd bit")]
fn to_float(count: i64) -> f64 {
    count as f64
}
