//! The delivery queues of hooks: what the dispatcher sends next, and the consequences of each attempt.
//!
//! Each hook has a queue whose deliveries are sent one after the other, in the order of their events. The dispatcher
//! (in the crate `webhooks`) calls [`next_batch`] in a loop: it reports finished attempts and leases the next queues.

mod queue;
mod retry;

use std::{collections::HashMap, sync::Arc};

use jiff::SignedDuration;
use model::{
    DeliveryId, EventKind, HookId, ProjectId, Time, WebhookEventId,
    hooks::{AttemptOutcome, DeliveryAttempt},
    tokens::Secret,
};
use retry::Disposition;
use store::deliveries::QueueStats;
use tracing::warn;

use crate::{Ability, Caller, Forge, ReadTx, Result, WriteTx, bridge::Shared};

/// How long a queue is leased to a dispatcher.
pub const LEASE_DURATION: SignedDuration = SignedDuration::from_mins(1);
/// How long a delivery may be pending, and how long it is kept after it has finished.
const RETENTION: SignedDuration = SignedDuration::from_hours(7 * 24);
/// The error of deliveries that were pending for longer than [`RETENTION`].
const EXPIRED: &str = "was not delivered within 7 days";
/// The maximum number of rows that are swept in one transaction.
const SWEEP_BATCH: i64 = 1000;

/// The receiver of a hook, with decrypted secrets.
#[derive(Clone)]
pub struct HookTarget {
    /// The URL, with credentials.
    pub url: Secret,
    /// The secret token.
    pub token: Option<Secret>,
    /// Whether the TLS certificate of the receiver is verified.
    pub verify_tls: bool,
    /// Whether the URL may lead into the server's own network.
    pub allow_local: bool,
}

/// A delivery to send.
#[derive(Clone)]
pub struct OutgoingDelivery {
    /// The ID of the delivery; 0 for one that is not logged.
    pub id: DeliveryId,
    /// Identifies the delivery to the receiver.
    pub uuid: String,
    /// The kind of event.
    pub kind: EventKind,
    /// The recursion depth: the number of webhooks in the chain of requests that caused the event.
    pub depth: i32,
    /// The payload.
    pub body: Arc<str>,
}

/// A leased queue with its next deliveries, to be sent in this order until one has to be retried.
pub struct LeasedQueue {
    /// The hook.
    pub hook: HookId,
    /// The project of the hook; `None` for a system hook.
    pub project: Option<ProjectId>,
    /// Host and port of the receiver.
    pub receiver: String,
    /// Whether the last attempt failed.
    pub failing: bool,
    /// The receiver.
    pub target: HookTarget,
    /// The deliveries to send.
    pub deliveries: Vec<OutgoingDelivery>,
    /// When the lease ends.
    pub leased_until: Time,
}

/// A finished attempt.
pub struct AttemptReport {
    /// The hook.
    pub hook: HookId,
    /// The delivery.
    pub delivery: DeliveryId,
    /// The attempt.
    pub attempt: DeliveryAttempt,
}

/// A queue that the dispatcher has finished processing.
#[derive(Clone, Copy, Debug)]
pub struct ReleasedQueue {
    /// The hook.
    pub hook: HookId,
    /// The end of its lease, which identifies the lease; a later one is left alone.
    pub leased_until: Time,
}

/// What the dispatcher reports with [`next_batch`].
#[derive(Default)]
pub struct BatchResults {
    /// Finished attempts; those of a queue in their order.
    pub attempts: Vec<AttemptReport>,
    /// Queues whose leases end.
    pub released: Vec<ReleasedQueue>,
}

impl BatchResults {
    /// Returns whether there is nothing to report.
    pub fn is_empty(&self) -> bool {
        self.attempts.is_empty() && self.released.is_empty()
    }
}

/// The free capacity of a dispatcher.
pub struct Capacity {
    /// The maximum number of queues to lease.
    pub queues: usize,
    /// The maximum number of those whose last attempt failed.
    pub failing: usize,
    /// The maximum size of all payloads in bytes.
    pub bytes: usize,
    /// The number of active queues by receiver (host and port).
    pub busy_receivers: HashMap<String, usize>,
    /// The maximum number of active queues per receiver.
    pub max_per_receiver: usize,
    /// The number of active queues by project.
    pub busy_projects: HashMap<ProjectId, usize>,
    /// The maximum number of active queues per project.
    pub max_per_project: usize,
}

impl Capacity {
    /// No capacity, for a dispatcher that only reports results.
    pub fn none() -> Self {
        Self {
            queues: 0,
            failing: 0,
            bytes: 0,
            busy_receivers: HashMap::new(),
            max_per_receiver: 0,
            busy_projects: HashMap::new(),
            max_per_project: 0,
        }
    }
}

/// The next work of a dispatcher.
pub struct Batch {
    /// Queues to process; each stays leased until it is reported as released.
    pub queues: Vec<LeasedQueue>,
    /// When more work is due, unless a new event arrives earlier.
    pub next_due_at: Option<Time>,
}

/// Records the results of the last batch, fans out new events and leases the queues of the next batch, in one
/// transaction.
pub async fn next_batch(forge: &Forge, results: Arc<BatchResults>, capacity: Capacity) -> Result<Batch> {
    if results.is_empty() {
        // An idle server should not write.
        let pending = forge
            .read_inline(Caller::system(), |tx| {
                let now = tx.now();
                Ok(store::deliveries::pending_work(tx.db(), now)?)
            })
            .await?;
        let can_lease = pending.has_due_queues && capacity.queues > 0;
        if !pending.has_events && !can_lease {
            return Ok(Batch { queues: Vec::new(), next_due_at: pending.next_due_at });
        }
    }
    let (batch, log) = forge.write(Caller::system(), move |tx| queue::process(tx, &results, &capacity)).await?;
    log.emit();
    Ok(batch)
}

/// Waits until a transaction has added deliveries or events.
pub async fn wait_for_wakeup(forge: &Forge) {
    forge.shared().dispatcher_notify.notified().await;
}

/// Returns whether the next delivery of a queue may be sent after an attempt with this outcome.
pub fn continues_after(outcome: &AttemptOutcome) -> bool {
    retry::classify(outcome) != Disposition::Retry
}

/// Ends the leases of a dispatcher that has stopped unexpectedly. Does nothing if other nodes may share the database.
pub async fn release_stale_leases(forge: &Forge) -> Result<()> {
    if !forge.shared().database.is_single_node() {
        return Ok(());
    }
    forge.write(Caller::system(), |tx| Ok(store::deliveries::release_all(tx.db())?)).await
}

/// Returns statistics over all queues; for operators.
pub fn queue_stats(tx: &mut ReadTx<'_>) -> Result<QueueStats> {
    tx.authorize(Ability::ManageServer)?;
    Ok(store::deliveries::queue_stats(tx.db())?)
}

/// Marks deliveries that are pending for too long as failed, and deletes old deliveries and events. Works in batches,
/// so that other writers do not wait for long.
pub(crate) async fn sweep(forge: &Forge) -> Result<()> {
    let delete_finished = |tx: &mut WriteTx<'_>| {
        let before = tx.now() - RETENTION;
        Ok(store::deliveries::delete_finished(tx.db(), before, SWEEP_BATCH)?)
    };
    while forge.write(Caller::system(), delete_finished).await? > 0 {}
    let (mut after, mut given_up) = (Some(DeliveryId::new(0)), 0);
    while let Some(last) = after {
        let fail = move |tx: &mut WriteTx<'_>| {
            let now = tx.now();
            Ok(store::deliveries::fail_expired(tx.db(), last, now - RETENTION, EXPIRED, now, SWEEP_BATCH)?)
        };
        let (next, failed) = forge.write(Caller::system(), fail).await?;
        (after, given_up) = (next, given_up + failed);
    }
    if given_up > 0 {
        warn!(given_up, reason = EXPIRED, "expired webhook deliveries marked as failed");
    }
    let mut after = Some(WebhookEventId::new(0));
    while let Some(last) = after {
        let delete = move |tx: &mut WriteTx<'_>| {
            let before = tx.now() - RETENTION;
            Ok(store::deliveries::delete_dispatched_events(tx.db(), last, before, SWEEP_BATCH)?)
        };
        after = forge.write(Caller::system(), delete).await?;
    }
    Ok(())
}

/// Decrypts the URL and token of a hook; `None` if they were encrypted with another key.
pub(crate) fn open_target(
    shared: &Shared,
    project: Option<ProjectId>,
    url: &[u8],
    token: Option<&[u8]>,
    verify_tls: bool,
) -> Option<HookTarget> {
    let open = |encrypted: &[u8]| {
        let plain = shared.instance_key.decrypt(project.unwrap_or(ProjectId::new(0)), encrypted)?;
        String::from_utf8(plain).ok().map(Secret::new)
    };
    let token = match token {
        Some(token) => Some(open(token)?),
        None => None,
    };
    let allow_local = project.is_none() || shared.allow_local_network;
    Some(HookTarget { url: open(url)?, token, verify_tls, allow_local })
}
