//! Routes for monitoring: liveness, readiness and metrics.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use axum::{
    Router,
    extract::{ConnectInfo, Request, State},
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use forge::{Caller, Forge, deliveries, disk_space::DiskStatus, nodes, tasks};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::time::timeout;

use crate::readiness_log::{Dependency, NotReady, ReadinessLog};

/// The upper bounds of histogram buckets, in seconds.
const SECONDS: [f64; 13] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// The upper bounds of buckets for the number of writes that are committed together.
const WRITE_GROUP_SIZES: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// How long the database and the store may each take to respond to the readiness check.
const READY_TIMEOUT: Duration = Duration::from_secs(3);

/// Starts collecting the metrics of this process.
pub(crate) fn install_recorder() -> Result<PrometheusHandle> {
    let write_group_size = Matcher::Full("gable_write_group_size".into());
    PrometheusBuilder::new()
        .set_buckets(&SECONDS)
        .and_then(|builder| builder.set_buckets_for_metric(write_group_size, &WRITE_GROUP_SIZES))
        .and_then(PrometheusBuilder::install_recorder)
        .context("cannot collect metrics")
}

/// The routes under `/-/`.
pub(crate) fn routes(forge: Forge, metrics: PrometheusHandle) -> Router {
    Router::new()
        .route("/-/health", get(health))
        .route("/-/ready", get(ready))
        .route("/-/metrics", get(serve_metrics))
        .with_state(Monitoring { forge, metrics, readiness_log: Arc::default() })
}

/// The state of the routes.
#[derive(Clone)]
struct Monitoring {
    forge: Forge,
    metrics: PrometheusHandle,
    readiness_log: Arc<ReadinessLog>,
}

/// Liveness. A full disk is reported but not an error, because reads still work.
async fn health(State(Monitoring { forge, .. }): State<Monitoring>) -> String {
    describe_disk_problem(&forge).await.map_or_else(|| "ok\n".to_owned(), |problem| format!("degraded: {problem}\n"))
}

/// Describes a lack of disk space; `None` if there is enough.
async fn describe_disk_problem(forge: &Forge) -> Option<String> {
    describe_disk_status(disk_status(forge).await?)
}

async fn disk_status(forge: &Forge) -> Option<DiskStatus> {
    let forge = forge.clone();
    // Blocking: it may write a file to find out.
    tokio::task::spawn_blocking(move || forge.disk_status()).await.ok()
}

fn describe_disk_status(status: DiskStatus) -> Option<String> {
    Some(match status {
        DiskStatus::Enough => return None,
        DiskStatus::Low { free, min_free } => format!(
            "{} MiB are free on the disk of the data folder, less than min-free-disk ({} MiB); pushes and uploads are refused",
            free >> 20,
            min_free >> 20
        ),
        DiskStatus::Full => "the disk of the data folder is full; nothing can be written".to_owned(),
        DiskStatus::DatabaseFull => "the disk of the database server is full; nothing can be written".to_owned(),
    })
}

/// Readiness: whether the database and the store respond, and the server is not about to stop.
async fn ready(State(Monitoring { forge, readiness_log, .. }): State<Monitoring>) -> Response {
    if forge.is_draining() {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response();
    }
    let readiness = check_readiness(&forge).await;
    readiness_log.record(readiness.as_ref().err());
    match readiness {
        Ok(None) => "ready\n".into_response(),
        Ok(Some(problem)) => format!("ready, but degraded: {problem}\n").into_response(),
        Err(NotReady { message, .. }) => (StatusCode::SERVICE_UNAVAILABLE, message + "\n").into_response(),
    }
}

/// Returns what is degraded, if anything, or why the server is not ready.
async fn check_readiness(forge: &Forge) -> Result<Option<String>, NotReady> {
    let ping = forge.read(Caller::anonymous(), |tx| tx.ping());
    expect_response(Dependency::Database, ping).await?;
    // A folder always responds.
    expect_response(Dependency::Store, forge.ping_store()).await?;
    let status = disk_status(forge).await.unwrap_or(DiskStatus::Enough);
    let is_local = matches!(status, DiskStatus::Low { .. } | DiskStatus::Full);
    match describe_disk_status(status) {
        // Other nodes have disks of their own.
        Some(problem) if is_local && forge.has_shared_files() => {
            Err(NotReady { dependency: Dependency::Disk, message: format!("not ready: {problem}"), reason: problem })
        }
        problem => Ok(problem),
    }
}

/// Waits until the database or the store responds.
async fn expect_response(
    dependency: Dependency,
    response: impl Future<Output = forge::Result<()>>,
) -> Result<(), NotReady> {
    let reason = match timeout(READY_TIMEOUT, response).await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no response within {} s", READY_TIMEOUT.as_secs()),
    };
    Err(NotReady { dependency, message: format!("the {dependency} does not respond"), reason })
}

/// Prometheus metrics, for clients on this machine and for administrators.
async fn serve_metrics(State(Monitoring { forge, metrics, .. }): State<Monitoring>, request: Request) -> Response {
    let caller = if is_local(&request) { Caller::system() } else { api::caller_from_headers(request.headers()) };
    let count = |tx: &mut forge::ReadTx<'_>| Ok((tasks::count(tx)?, deliveries::queue_stats(tx)?, nodes::count(tx)?));
    let (task_counts, deliveries, nodes) = match forge.read(caller, count).await {
        Ok(counts) => counts,
        Err(forge::Error::Unauthenticated | forge::Error::Forbidden(_)) => {
            return api::plain_error(StatusCode::NOT_FOUND);
        }
        Err(error) => {
            tracing::warn!(%error, "cannot count background tasks and webhook deliveries");
            return (StatusCode::SERVICE_UNAVAILABLE, "the database does not respond\n").into_response();
        }
    };
    metrics::gauge!("gable_tasks", "state" => "waiting").set(to_float(task_counts.0));
    metrics::gauge!("gable_tasks", "state" => "dead").set(to_float(task_counts.1));
    metrics::gauge!("gable_nodes", "state" => "serving").set(f64::from(nodes.serving));
    metrics::gauge!("gable_nodes", "state" => "draining").set(f64::from(nodes.draining));
    metrics::gauge!("gable_nodes", "state" => "silent").set(f64::from(nodes.silent));
    let oldest = deliveries.oldest.map_or(0.0, |since| forge.now().duration_since(since).as_secs_f64().max(0.0));
    metrics::gauge!("gable_hook_deliveries_waiting").set(to_float(deliveries.waiting));
    metrics::gauge!("gable_hook_oldest_waiting_seconds").set(oldest);
    metrics::gauge!("gable_hooks_paused").set(to_float(deliveries.paused));
    metrics::gauge!("gable_degraded").set(if describe_disk_problem(&forge).await.is_some() { 1.0 } else { 0.0 });
    if let Some(space) = forge.disk_usage() {
        metrics::gauge!("gable_disk_free_bytes").set(to_float(i64::try_from(space.free_bytes).unwrap_or(i64::MAX)));
    }
    for (queue, length) in forge.queue_lengths() {
        metrics::gauge!("gable_queue_length", "queue" => queue)
            .set(to_float(i64::try_from(length).unwrap_or(i64::MAX)));
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], metrics.render()).into_response()
}

/// Returns whether the request comes from this machine and not through a proxy on it.
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
