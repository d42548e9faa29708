//! One round of queue processing, inside its transaction.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry},
    sync::Arc,
};

use jiff::SignedDuration;
use model::{
    DeliveryId, EventKind, HookId, ProjectId, Time, WebhookEventId,
    hooks::{AttemptOutcome, DeliveryState, delivery_uuid},
};
use store::deliveries::{AttemptRecord, DueQueueFilter, PendingEvent, QueueLease, QueueState, QueuedDelivery};
use tracing::{error, info, warn};

use super::{
    AttemptReport, Batch, BatchResults, Capacity, HookTarget, LEASE_DURATION, LeasedQueue, OutgoingDelivery,
    open_target,
    retry::{self, StateBefore},
};
use crate::{Result, WriteTx, bridge::Shared};

/// The maximum number of deliveries of a queue in one batch.
const MAX_DELIVERIES_PER_QUEUE: i64 = 32;
/// The maximum number of events that are fanned out in one transaction.
const MAX_EVENTS: usize = 256;
/// The maximum number of deliveries that the fan-out of several events creates in one transaction, so that other
/// writers do not wait for long.
const MAX_DELIVERIES: usize = 5000;
/// The maximum size of a stored response body.
const MAX_BODY_BYTES: usize = 64 << 10;
/// The maximum size of a stored response body of a successful delivery.
const MAX_SUCCESS_BODY_BYTES: usize = 4 << 10;
/// The maximum size of the stored response headers.
const MAX_HEADER_BYTES: usize = 16 << 10;
/// The maximum length of a stored error, in characters.
const MAX_ERROR_CHARS: usize = 1000;
/// The error of deliveries whose hook cannot be decrypted.
const UNREADABLE: &str = "the hook is encrypted with another instance key; set its URL and token again";

/// Metrics and log lines of a transaction, emitted after it is committed.
#[derive(Default)]
pub(super) struct PostCommitLog {
    attempts: Vec<(DeliveryState, i64)>,
    failed: Vec<(HookId, DeliveryId, String)>,
    paused: Vec<(HookId, String)>,
    recovered: Vec<HookId>,
    unreadable: Vec<HookId>,
}

impl PostCommitLog {
    pub(super) fn emit(self) {
        for (state, micros) in self.attempts {
            let outcome = match state {
                DeliveryState::Delivered => "delivered",
                DeliveryState::Waiting => "retried",
                DeliveryState::Failed => "failed",
            };
            metrics::counter!("gable_hook_attempts_total", "outcome" => outcome).increment(1);
            let duration = SignedDuration::from_micros(micros);
            metrics::histogram!("gable_hook_attempt_seconds").record(duration.as_secs_f64());
        }
        for (hook, delivery, reason) in self.failed {
            warn!(hook.id = hook.get(), delivery.id = delivery.get(), reason, "webhook delivery failed");
        }
        for (hook, reason) in self.paused {
            warn!(hook.id = hook.get(), reason, "webhook paused; its receiver is probed from time to time");
        }
        for hook in self.recovered {
            info!(hook.id = hook.get(), "webhook resumed");
        }
        for hook in self.unreadable {
            error!(hook.id = hook.get(), "webhook deliveries failed: {UNREADABLE}");
        }
    }
}

/// Records the results of the last batch, fans out new events and leases the queues of the next batch.
pub(super) fn process(
    tx: &mut WriteTx<'_>,
    results: &BatchResults,
    capacity: &Capacity,
) -> Result<(Batch, PostCommitLog)> {
    let now = tx.now();
    let limit = i64::try_from(MAX_EVENTS).unwrap_or(i64::MAX);
    let mut events = store::deliveries::pending_events(tx.db(), limit)?;
    let mut subscribers = subscribers(tx, &events)?;
    let count = count_fitting_events(&subscribers);
    let is_complete = events.len() < MAX_EVENTS && count == subscribers.len();
    events.truncate(count);
    subscribers.truncate(count);
    // All queues that change are locked up front and in one order. Releasing a queue therefore sees deliveries that
    // were added before, and adding one sees that the queue was released: no delivery is left without a due time.
    let reported = results.attempts.iter().map(|report| report.hook);
    let mut hooks: BTreeSet<HookId> = reported.chain(results.released.iter().map(|released| released.hook)).collect();
    hooks.extend(subscribers.iter().flatten());
    let hooks: Vec<HookId> = hooks.into_iter().collect();
    let locked = if hooks.is_empty() { Vec::new() } else { store::deliveries::lock_queues(tx.db(), &hooks)? };
    let mut log = PostCommitLog::default();
    let queues = locked.into_iter().map(|queue| (queue.hook, queue)).collect();
    let queues = record_results(tx, results, queues, &mut log)?;
    fan_out(tx, &events, &subscribers, queues)?;
    let queues = lease_queues(tx, capacity, &mut log)?;
    let has_more = !is_complete || !log.unreadable.is_empty();
    let next_due_at = if has_more { Some(now) } else { store::deliveries::next_due_after(tx.db(), now)? };
    Ok((Batch { queues, next_due_at }, log))
}

/// Returns how many events can be fanned out within [`MAX_DELIVERIES`], at least one.
fn count_fitting_events(subscribers: &[Vec<HookId>]) -> usize {
    let mut deliveries = 0;
    let exceeds_limit = |hooks: &Vec<HookId>| {
        deliveries += hooks.len();
        deliveries > MAX_DELIVERIES
    };
    subscribers.iter().position(exceeds_limit).map_or(subscribers.len(), |at| at.max(1))
}

/// Returns the subscribed hooks of each event.
fn subscribers(tx: &mut WriteTx<'_>, events: &[PendingEvent]) -> Result<Vec<Vec<HookId>>> {
    let mut known: HashMap<(i32, Option<ProjectId>), Vec<HookId>> = HashMap::new();
    let mut subscribers = Vec::with_capacity(events.len());
    for event in events {
        let Some(kind) = event.kind else {
            subscribers.push(Vec::new());
            continue;
        };
        let key = (kind.code(), event.project);
        let hooks = match known.entry(key) {
            Entry::Occupied(hooks) => hooks.into_mut(),
            Entry::Vacant(entry) => entry.insert(store::deliveries::subscribed_hooks(tx.db(), kind, event.project)?),
        };
        subscribers.push(hooks.clone());
    }
    Ok(subscribers)
}

/// Creates the deliveries of events and makes their queues due.
fn fan_out(
    tx: &mut WriteTx<'_>,
    events: &[PendingEvent],
    subscribers: &[Vec<HookId>],
    mut queues: BTreeMap<HookId, QueueState>,
) -> Result<()> {
    if events.is_empty() {
        return Ok(());
    }
    let now = tx.now();
    for (event, hooks) in events.iter().zip(subscribers) {
        if !hooks.is_empty() {
            store::deliveries::fan_out(tx.db(), event, hooks, now)?;
        }
    }
    let hooks: BTreeSet<HookId> = subscribers.iter().flatten().copied().collect();
    let mut due_now = Vec::new();
    for queue in hooks.iter().filter_map(|hook| queues.remove(hook)) {
        let due_at = retry::due_with_new_delivery(queue.due_at, queue.failures, now);
        if due_at == now {
            due_now.push(queue.hook);
        } else if queue.due_at != Some(due_at) {
            store::deliveries::update_queue(tx.db(), &QueueState { due_at: Some(due_at), ..queue })?;
        }
    }
    if !due_now.is_empty() {
        store::deliveries::schedule(tx.db(), &due_now, now)?;
    }
    let events: Vec<WebhookEventId> = events.iter().map(|event| event.id).collect();
    Ok(store::deliveries::mark_fanned_out(tx.db(), &events)?)
}

/// Records attempts and ends leases. Results for hooks and deliveries that no longer exist are ignored. Returns the new
/// states of the queues.
fn record_results(
    tx: &mut WriteTx<'_>,
    results: &BatchResults,
    mut queues: BTreeMap<HookId, QueueState>,
    log: &mut PostCommitLog,
) -> Result<BTreeMap<HookId, QueueState>> {
    let (before, now) = (queues.clone(), tx.now());
    let ids: Vec<DeliveryId> = results.attempts.iter().map(|report| report.delivery).collect();
    let pending = if ids.is_empty() { Vec::new() } else { store::deliveries::pending_deliveries(tx.db(), &ids)? };
    let mut pending: HashMap<DeliveryId, _> = pending.into_iter().map(|delivery| (delivery.id, delivery)).collect();
    for report in &results.attempts {
        let delivery = pending.remove(&report.delivery).filter(|delivery| delivery.hook == report.hook);
        let (Some(delivery), Some(queue)) = (delivery, queues.get_mut(&report.hook)) else { continue };
        let before = StateBefore {
            attempts: delivery.attempts,
            first_tried_at: delivery.first_tried_at,
            failures: queue.failures,
        };
        record_attempt(tx, report, before, queue, log)?;
    }
    for released in &results.released {
        let queue = queues.get_mut(&released.hook).filter(|queue| queue.leased_until == Some(released.leased_until));
        let Some(queue) = queue else { continue };
        let first = store::deliveries::next_due_in_queue(tx.db(), queue.hook, retry::queue_order(queue.failures))?;
        queue.due_at = retry::queue_due_at(first, queue.failures, queue.due_at, now);
        queue.leased_until = None;
    }
    for (hook, queue) in &queues {
        if before.get(hook) != Some(queue) {
            store::deliveries::update_queue(tx.db(), queue)?;
        }
    }
    Ok(queues)
}

fn record_attempt(
    tx: &mut WriteTx<'_>,
    report: &AttemptReport,
    before: StateBefore,
    queue: &mut QueueState,
    log: &mut PostCommitLog,
) -> Result<()> {
    let (now, attempt) = (tx.now(), &report.attempt);
    let mut after = retry::after_attempt(before, &attempt.outcome, now, random_jitter(tx.shared()));
    after.error = after.error.map(|error| error.replace('\0', "\u{fffd}").chars().take(MAX_ERROR_CHARS).collect());
    let response = match &attempt.outcome {
        AttemptOutcome::Responded(response) => Some(response),
        AttemptOutcome::Unreachable(_) | AttemptOutcome::Refused(_) => None,
    };
    let headers = response.map(|response| truncate(&response.headers, MAX_HEADER_BYTES));
    let limit = if after.state == DeliveryState::Delivered { MAX_SUCCESS_BODY_BYTES } else { MAX_BODY_BYTES };
    let body = response.map(|response| truncate(&response.body, limit));
    let encrypted = {
        let shared = tx.shared();
        shared.instance_key.encrypt(
            queue.project.unwrap_or(ProjectId::new(0)),
            attempt.url.as_bytes(),
            &*shared.secrets,
        )
    };
    let record = AttemptRecord {
        delivery: report.delivery,
        state: after.state,
        attempts: before.attempts.saturating_add(1),
        due_at: after.due_at,
        first_tried_at: before.first_tried_at.unwrap_or(now),
        tried_at: attempt.started_at,
        duration: attempt.duration,
        status: response.map(|response| i32::from(response.status)),
        error: after.error.as_deref(),
        sent_to: (!attempt.url.is_empty()).then_some(&*encrypted),
        signed: attempt.signed,
        response_headers: headers.as_deref(),
        response_body: body.as_deref(),
        now,
    };
    store::deliveries::record_attempt(tx.db(), &record)?;
    log.attempts.push((after.state, attempt.duration));
    if after.state == DeliveryState::Failed {
        log.failed.push((report.hook, report.delivery, after.error.clone().unwrap_or_default()));
    }
    if after.failures > 0 {
        queue.due_at = Some(after.queue_blocked_until);
    } else if retry::queue_order(before.failures) != retry::queue_order(0) {
        // The receiver has recovered: the backlog is delivered in its original order.
        store::deliveries::retry_now(tx.db(), queue.hook, now)?;
    }
    queue.failures = after.failures;
    if after.is_paused() {
        let reason = after.pause_reason();
        if queue.paused_at.is_none() {
            log.paused.push((queue.hook, reason.clone()));
        }
        queue.paused_at = queue.paused_at.or(Some(now));
        queue.pause_reason = Some(reason);
    } else if queue.paused_at.take().is_some() {
        queue.pause_reason = None;
        log.recovered.push(queue.hook);
    }
    Ok(())
}

/// Leases due queues within the capacity, and returns them with their next deliveries.
fn lease_queues(tx: &mut WriteTx<'_>, capacity: &Capacity, log: &mut PostCommitLog) -> Result<Vec<LeasedQueue>> {
    let now = tx.now();
    let selected = select_due_queues(tx, capacity)?;
    if selected.is_empty() {
        return Ok(Vec::new());
    }
    let leased_until = now + LEASE_DURATION;
    let mut bytes = capacity.bytes;
    let mut leased = Vec::new();
    for queue in store::deliveries::lease(tx.db(), &selected, now, leased_until)? {
        if bytes == 0 {
            store::deliveries::release_queue(tx.db(), queue.hook, queue.due_at)?;
            continue;
        }
        let order = retry::queue_order(queue.failures);
        let limit = if queue.failures > 0 { 1 } else { MAX_DELIVERIES_PER_QUEUE };
        let mut deliveries = store::deliveries::queued_deliveries(tx.db(), queue.hook, order, limit, now)?;
        let target = open_target(tx.shared(), queue.project, &queue.url, queue.token.as_deref(), queue.verify_tls);
        match target {
            Some(target) if !deliveries.is_empty() => {
                bytes -= truncate_to_fit(&mut deliveries, bytes);
                leased.push((queue, target, deliveries));
            }
            target => {
                if target.is_none() && !deliveries.is_empty() {
                    let ids: Vec<DeliveryId> = deliveries.iter().map(|delivery| delivery.id).collect();
                    store::deliveries::mark_failed(tx.db(), &ids, UNREADABLE, now)?;
                    log.unreadable.push(queue.hook);
                }
                let due_at = store::deliveries::next_due_in_queue(tx.db(), queue.hook, order)?;
                store::deliveries::release_queue(tx.db(), queue.hook, due_at)?;
            }
        }
    }
    with_payloads(tx, leased, leased_until)
}

/// Selects due queues within the capacity, longest due first. Failing queues have a share of their own, so that neither
/// they nor healthy queues starve the other.
fn select_due_queues(tx: &mut WriteTx<'_>, capacity: &Capacity) -> Result<Vec<HookId>> {
    let now = tx.now();
    let (mut busy_receivers, mut busy_projects) = (capacity.busy_receivers.clone(), capacity.busy_projects.clone());
    let mut selected = Vec::new();
    for failing in [true, false] {
        let free = capacity.queues - selected.len();
        let free = if failing { free.min(capacity.failing) } else { free };
        if free == 0 || capacity.bytes == 0 {
            continue;
        }
        let is_full = |count: usize| count >= capacity.max_per_receiver;
        let full_receivers: Vec<String> =
            busy_receivers.iter().filter(|(_, count)| is_full(**count)).map(|(name, _)| name.clone()).collect();
        let full_receivers: Vec<&str> = full_receivers.iter().map(String::as_str).collect();
        let full_projects: Vec<ProjectId> =
            busy_projects.iter().filter(|(_, count)| **count >= capacity.max_per_project).map(|(id, _)| *id).collect();
        // The query does not know how many queues of a receiver are busy, so it is asked for that many more.
        let busy: usize = busy_receivers.values().filter(|count| !is_full(**count)).sum();
        let to_i64 = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let filter = DueQueueFilter {
            failing,
            full_receivers: &full_receivers,
            max_per_receiver: to_i64(capacity.max_per_receiver),
            full_projects: &full_projects,
            max_per_project: to_i64(capacity.max_per_project),
            limit: to_i64(free.saturating_add(busy)),
        };
        let mut left = free;
        for (hook, receiver, project) in store::deliveries::due_queues(tx.db(), filter, now)? {
            let count = busy_receivers.entry(receiver).or_default();
            // System hooks are not subject to the limit per project.
            let of_project = project.map_or(0, |project| busy_projects.get(&project).copied().unwrap_or(0));
            if left > 0 && *count < capacity.max_per_receiver && of_project < capacity.max_per_project {
                *count += 1;
                if let Some(project) = project {
                    busy_projects.insert(project, of_project + 1);
                }
                left -= 1;
                selected.push(hook);
            }
        }
    }
    Ok(selected)
}

/// Keeps the first deliveries that fit into `bytes`, at least one; returns how many of those bytes they use.
fn truncate_to_fit(deliveries: &mut Vec<QueuedDelivery>, bytes: usize) -> usize {
    let mut used = 0_usize;
    let mut kept = 0;
    for delivery in deliveries.iter() {
        let total = used.saturating_add(usize::try_from(delivery.size).unwrap_or(0));
        if kept > 0 && total > bytes {
            break;
        }
        used = total;
        kept += 1;
    }
    deliveries.truncate(kept);
    used.min(bytes)
}

/// Loads the payloads of deliveries; a payload that goes to several hooks is shared.
fn with_payloads(
    tx: &mut WriteTx<'_>,
    leased: Vec<(QueueLease, HookTarget, Vec<QueuedDelivery>)>,
    leased_until: Time,
) -> Result<Vec<LeasedQueue>> {
    let events: BTreeSet<WebhookEventId> =
        leased.iter().flat_map(|(.., deliveries)| deliveries).map(|delivery| delivery.event).collect();
    let events: Vec<WebhookEventId> = events.into_iter().collect();
    let payloads = if events.is_empty() { Vec::new() } else { store::deliveries::payloads(tx.db(), &events)? };
    let payloads: HashMap<WebhookEventId, Arc<str>> =
        payloads.into_iter().map(|(id, payload)| (id, payload.into())).collect();
    let queues = leased.into_iter().map(|(queue, target, deliveries)| {
        let deliveries = deliveries.into_iter().filter_map(|delivery| {
            Some(OutgoingDelivery {
                id: delivery.id,
                uuid: delivery_uuid(&delivery.seed, queue.hook),
                kind: delivery.kind.unwrap_or(EventKind::System),
                depth: delivery.depth,
                body: payloads.get(&delivery.event)?.clone(),
            })
        });
        let deliveries = deliveries.collect();
        LeasedQueue {
            hook: queue.hook,
            project: queue.project,
            receiver: queue.receiver,
            failing: queue.failures > 0,
            target,
            deliveries,
            leased_until,
        }
    });
    Ok(queues.collect())
}

/// Returns a random number between 0 and 1.
fn random_jitter(shared: &Shared) -> f64 {
    let mut bytes = [0; 4];
    shared.secrets.fill(&mut bytes);
    f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX)
}

/// Truncates a text at a character boundary and replaces NUL, which PostgreSQL cannot store.
fn truncate(text: &str, limit: usize) -> Cow<'_, str> {
    let end = (0..=limit.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let text = &text[..end];
    if text.contains('\0') { Cow::Owned(text.replace('\0', " ")) } else { Cow::Borrowed(text) }
}
