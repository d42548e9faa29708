//! The delivery queues of hooks: fan-out of events, leases, attempts and retention.
//!
//! Each hook has one queue. `hooks.due_at` is the time at which it is next processed, null while nothing is pending.
//! Code that adds a delivery or checks whether any is pending locks the row of the hook, so that no delivery is missed.

use diesel::{
    dsl::min,
    prelude::*,
    sql_types::{BigInt, Bool, Nullable, Text},
};
use model::{DeliveryId, EventKind, HookId, ProjectId, Time, WebhookEventId, hooks::DeliveryState};

use crate::{
    Conn, Result,
    conn::on,
    constant::constant,
    fragment::Fragment,
    schema::{hook_deliveries, hook_events, hooks},
    times::{from_micros, from_micros_opt, to_micros},
    webhook_events::subscribed,
};

/// The key of a PostgreSQL advisory lock: only one node fans out at a time, which preserves the order of events.
const FAN_OUT_LOCK: i64 = 0x6761_626c_6501;
/// The maximum number of pending rows that are counted or scanned.
const MAX_COUNTED: i64 = 100_000;

/// Matches pending deliveries with a literal, so that the partial index applies. SQLite uses that index only for
/// statements that read no other columns.
fn is_pending() -> Fragment<Bool> {
    Fragment::new("hook_deliveries.state = 0")
}

/// Matches events to fan out with a literal, so that the partial index applies.
fn is_undispatched() -> Fragment<Bool> {
    Fragment::new("hook_events.waiting AND hook_events.intent_id IS NULL")
}

/// Matches hooks whose queue is due and not leased.
fn is_due(now: Time) -> Fragment<Bool> {
    Fragment::new("hooks.due_at IS NOT NULL AND hooks.due_at <= ")
        .number(to_micros(now))
        .sql(" AND (hooks.leased_until IS NULL OR hooks.leased_until < ")
        .number(to_micros(now))
        .sql(")")
}

/// Whether the dispatcher has anything to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingWork {
    /// Whether any event is to be fanned out.
    pub has_events: bool,
    /// Whether any queue is due.
    pub has_due_queues: bool,
    /// When the next queue becomes due.
    pub next_due_at: Option<Time>,
}

/// Checks for pending work without writing.
pub fn pending_work(db: &mut Conn, now: Time) -> Result<PendingWork> {
    let event: Option<i64> =
        on!(db, conn => hook_events::table.filter(is_undispatched()).select(hook_events::id).first(conn).optional())?;
    let due: Option<i64> = on!(db, conn => hooks::table.filter(is_due(now)).select(hooks::id).first(conn).optional())?;
    Ok(PendingWork {
        has_events: event.is_some(),
        has_due_queues: due.is_some(),
        next_due_at: next_due_after(db, now)?,
    })
}

/// Returns when the next queue becomes due after `now`.
pub fn next_due_after(db: &mut Conn, now: Time) -> Result<Option<Time>> {
    let next: Option<i64> = on!(db, conn => hooks::table
        .filter(hooks::due_at.gt(to_micros(now)))
        .select(min(hooks::due_at))
        .first(conn))?;
    Ok(from_micros_opt(next))
}

/// An event that has not been fanned out to hooks yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingEvent {
    /// The ID of the event.
    pub id: WebhookEventId,
    /// `None` for a kind that only a newer version knows.
    pub kind: Option<EventKind>,
    /// The project whose hooks receive it; `None` for system hooks.
    pub project: Option<ProjectId>,
    /// When the event happened.
    pub created_at: Time,
}

/// Returns events to fan out, oldest first; none while another node fans out.
pub fn pending_events(db: &mut Conn, limit: i64) -> Result<Vec<PendingEvent>> {
    if let Conn::Pg(conn) = db {
        let locked = Fragment::<Bool>::new(format!("SELECT pg_try_advisory_xact_lock({FAN_OUT_LOCK})"));
        if !locked.get_result::<bool>(conn)? {
            return Ok(Vec::new());
        }
    }
    let rows: Vec<(i64, i32, Option<i64>, i64)> = on!(db, conn => hook_events::table
        .filter(is_undispatched())
        .order(hook_events::id)
        .limit(limit)
        .select((hook_events::id, hook_events::occasion, hook_events::project_id, hook_events::created_at))
        .load(conn))?;
    let events = rows.into_iter().map(|(id, kind, project, created_at)| PendingEvent {
        id: WebhookEventId::new(id),
        kind: EventKind::from_code(kind),
        project: project.map(ProjectId::new),
        created_at: from_micros(created_at),
    });
    Ok(events.collect())
}

/// Returns the hooks that subscribe to a kind of event.
pub fn subscribed_hooks(db: &mut Conn, kind: EventKind, project: Option<ProjectId>) -> Result<Vec<HookId>> {
    let ids: Vec<i64> = on!(db, conn => hooks::table
        .filter(subscribed(kind, project))
        .order(hooks::id)
        .select(hooks::id)
        .load(conn))?;
    Ok(ids.into_iter().map(HookId::new).collect())
}

/// Creates a delivery of an event for each of these hooks, whose rows the caller has locked.
pub fn fan_out(db: &mut Conn, event: &PendingEvent, hooks: &[HookId], now: Time) -> Result<()> {
    let insert = || {
        Fragment::<BigInt>::new("INSERT INTO hook_deliveries (hook_id, event_id, due_at, created_at) SELECT hooks.id, ")
            .number(event.id)
            .sql(", ")
            .number(to_micros(now))
            .sql(", ")
            .number(to_micros(event.created_at))
            .sql(" FROM hooks WHERE hooks.id")
            .in_ids(hooks)
            .sql(" ORDER BY hooks.id")
    };
    on!(db, conn => insert().execute(conn))?;
    Ok(())
}

/// Makes the queues of these hooks due now.
pub fn schedule(db: &mut Conn, hooks: &[HookId], now: Time) -> Result<()> {
    on!(db, conn => constant!(diesel::update(hooks::table)
        .filter(Fragment::<Bool>::new("hooks.id").in_ids(hooks))
        .set(hooks::due_at.eq(to_micros(now))))
        .execute(conn))?;
    Ok(())
}

/// Marks events as fanned out.
pub fn mark_fanned_out(db: &mut Conn, events: &[WebhookEventId]) -> Result<()> {
    on!(db, conn => constant!(diesel::update(hook_events::table)
        .filter(Fragment::<Bool>::new("hook_events.id").in_ids(events))
        .set(hook_events::waiting.eq(false)))
        .execute(conn))?;
    Ok(())
}

/// The state of a hook's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueState {
    /// The hook.
    pub hook: HookId,
    /// The project of the hook; `None` for a system hook.
    pub project: Option<ProjectId>,
    /// When the queue is next processed.
    pub due_at: Option<Time>,
    /// When the current lease ends.
    pub leased_until: Option<Time>,
    /// The number of consecutive failed attempts.
    pub failures: i32,
    /// When the hook was paused.
    pub paused_at: Option<Time>,
    /// Why the hook was paused.
    pub pause_reason: Option<String>,
}

/// Returns the queues of the given hooks that still exist; on PostgreSQL their rows are locked.
pub fn lock_queues(db: &mut Conn, ids: &[HookId]) -> Result<Vec<QueueState>> {
    type Row = (i64, Option<i64>, Option<i64>, Option<i64>, i32, Option<i64>, Option<String>);
    // A fixed order prevents deadlocks between transactions that lock several rows.
    let query = || {
        hooks::table.filter(Fragment::<Bool>::new("hooks.id").in_ids(ids)).order(hooks::id).select((
            hooks::id,
            hooks::project_id,
            hooks::due_at,
            hooks::leased_until,
            hooks::failures,
            hooks::paused_at,
            hooks::pause_reason,
        ))
    };
    let rows: Vec<Row> = match db {
        Conn::Sqlite(conn) => query().load(conn)?,
        Conn::Pg(conn) => query().for_update().load(conn)?,
    };
    let queues = rows.into_iter().map(|(hook, project, due_at, leased_until, failures, paused_at, pause_reason)| {
        let (due_at, leased_until) = (from_micros_opt(due_at), from_micros_opt(leased_until));
        QueueState {
            hook: HookId::new(hook),
            project: project.map(ProjectId::new),
            due_at,
            leased_until,
            failures,
            paused_at: from_micros_opt(paused_at),
            pause_reason,
        }
    });
    Ok(queues.collect())
}

/// Saves the state of a queue.
pub fn update_queue(db: &mut Conn, queue: &QueueState) -> Result<()> {
    on!(db, conn => constant!(diesel::update(hooks::table.find(queue.hook.get()))
        .set((
            hooks::due_at.eq(queue.due_at.map(to_micros)),
            hooks::leased_until.eq(queue.leased_until.map(to_micros)),
            hooks::failures.eq(queue.failures),
            hooks::paused_at.eq(queue.paused_at.map(to_micros)),
            hooks::pause_reason.eq(queue.pause_reason.as_deref()),
        )))
        .execute(conn))?;
    Ok(())
}

/// A pending delivery, as it was before the attempt that is to be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingDelivery {
    /// The ID of the delivery.
    pub id: DeliveryId,
    /// The hook.
    pub hook: HookId,
    /// The number of attempts.
    pub attempts: i32,
    /// When it was first attempted.
    pub first_tried_at: Option<Time>,
}

/// Returns the given deliveries that are still pending.
pub fn pending_deliveries(db: &mut Conn, ids: &[DeliveryId]) -> Result<Vec<PendingDelivery>> {
    let rows: Vec<(i64, i64, i32, Option<i64>)> = on!(db, conn => hook_deliveries::table
        .filter(Fragment::<Bool>::new("hook_deliveries.id").in_ids(ids))
        .filter(hook_deliveries::state.eq(DeliveryState::Waiting.code()))
        .select((
            hook_deliveries::id,
            hook_deliveries::hook_id,
            hook_deliveries::attempts,
            hook_deliveries::first_tried_at,
        ))
        .load(conn))?;
    let delivery = |(id, hook, attempts, first)| PendingDelivery {
        id: DeliveryId::new(id),
        hook: HookId::new(hook),
        attempts,
        first_tried_at: from_micros_opt(first),
    };
    Ok(rows.into_iter().map(delivery).collect())
}

/// An attempt and the resulting state of its delivery.
#[derive(Clone, Debug)]
pub struct AttemptRecord<'a> {
    /// The delivery.
    pub delivery: DeliveryId,
    /// The new state.
    pub state: DeliveryState,
    /// The number of attempts, including this one.
    pub attempts: i32,
    /// When it is retried, if it is still pending.
    pub due_at: Time,
    /// When it was first attempted.
    pub first_tried_at: Time,
    /// When this attempt began.
    pub tried_at: Time,
    /// Duration of the attempt in microseconds.
    pub duration: i64,
    /// HTTP status of the response.
    pub status: Option<i32>,
    /// Why the attempt failed.
    pub error: Option<&'a str>,
    /// The URL without credentials, encrypted.
    pub sent_to: Option<&'a [u8]>,
    /// Whether the request carried the token and a signature.
    pub signed: bool,
    /// Headers of the response.
    pub response_headers: Option<&'a str>,
    /// The beginning of the response body.
    pub response_body: Option<&'a str>,
    /// The current time.
    pub now: Time,
}

/// Records an attempt, unless the delivery is no longer pending.
pub fn record_attempt(db: &mut Conn, attempt: &AttemptRecord<'_>) -> Result<()> {
    let finished_at = (attempt.state != DeliveryState::Waiting).then(|| to_micros(attempt.now));
    on!(db, conn => constant!(diesel::update(hook_deliveries::table.find(attempt.delivery.get()))
        .filter(hook_deliveries::state.eq(DeliveryState::Waiting.code()))
        .set((
            hook_deliveries::state.eq(attempt.state.code()),
            hook_deliveries::attempts.eq(attempt.attempts),
            hook_deliveries::due_at.eq(to_micros(attempt.due_at)),
            hook_deliveries::first_tried_at.eq(to_micros(attempt.first_tried_at)),
            hook_deliveries::finished_at.eq(finished_at),
            hook_deliveries::tried_at.eq(to_micros(attempt.tried_at)),
            hook_deliveries::duration.eq(attempt.duration),
            hook_deliveries::status.eq(attempt.status),
            hook_deliveries::error.eq(attempt.error),
            hook_deliveries::sent_to.eq(attempt.sent_to),
            hook_deliveries::signed.eq(attempt.signed),
            hook_deliveries::response_headers.eq(attempt.response_headers),
            hook_deliveries::response_body.eq(attempt.response_body),
        )))
        .execute(conn))?;
    Ok(())
}

/// Marks the given deliveries that are still pending as failed; returns their number.
pub fn mark_failed(db: &mut Conn, ids: &[DeliveryId], reason: &str, now: Time) -> Result<usize> {
    Ok(on!(db, conn => diesel::update(hook_deliveries::table)
        .filter(Fragment::<Bool>::new("hook_deliveries.id").in_ids(ids))
        .filter(hook_deliveries::state.eq(DeliveryState::Waiting.code()))
        .set((
            hook_deliveries::state.eq(DeliveryState::Failed.code()),
            hook_deliveries::finished_at.eq(to_micros(now)),
            hook_deliveries::error.eq(reason),
        ))
        .execute(conn))?)
}

/// Makes all pending deliveries of a hook due now.
pub fn retry_now(db: &mut Conn, hook: HookId, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(hook_deliveries::table)
        .filter(hook_deliveries::hook_id.eq(hook.get()))
        .filter(is_pending())
        .filter(hook_deliveries::due_at.gt(to_micros(now)))
        .set(hook_deliveries::due_at.eq(to_micros(now)))
        .execute(conn))?;
    Ok(())
}

/// The order in which the deliveries of a queue are attempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueOrder {
    /// Oldest first. A delivery with at least this many attempts does not block those behind it while it is not due.
    Fifo(i32),
    /// The delivery with the fewest attempts first.
    FewestAttempts,
}

/// Returns when the next delivery of a queue is due; `None` if none is pending.
pub fn next_due_in_queue(db: &mut Conn, hook: HookId, order: QueueOrder) -> Result<Option<Time>> {
    if let QueueOrder::Fifo(skippable_from) = order {
        let head: Option<i64> = on!(db, conn => hook_deliveries::table
            .filter(hook_deliveries::hook_id.eq(hook.get()))
            .filter(is_pending())
            .filter(hook_deliveries::attempts.lt(skippable_from))
            .order(hook_deliveries::id)
            .select(hook_deliveries::due_at)
            .first(conn)
            .optional())?;
        if head.is_some() {
            return Ok(from_micros_opt(head));
        }
    }
    // Ordered by id, so that SQLite uses the index of pending deliveries and not the one of all deliveries of the hook.
    let earliest = || {
        Fragment::<Nullable<BigInt>>::new(
            "SELECT min(waiting.due_at) FROM (SELECT due_at FROM hook_deliveries WHERE state = 0 AND hook_id = ",
        )
        .number(hook)
        .sql(" ORDER BY id LIMIT ")
        .number(MAX_COUNTED)
        .sql(") AS waiting")
    };
    let next: Option<i64> = on!(db, conn => earliest().get_result(conn))?;
    Ok(from_micros_opt(next))
}

/// Which due queues to return.
#[derive(Clone, Copy, Debug)]
pub struct DueQueueFilter<'a> {
    /// Whether to return queues whose last attempt failed, or only the others.
    pub failing: bool,
    /// Receivers that have no capacity left.
    pub full_receivers: &'a [&'a str],
    /// The maximum number of queues per receiver.
    pub max_per_receiver: i64,
    /// Projects that have no capacity left.
    pub full_projects: &'a [ProjectId],
    /// The maximum number of queues per project.
    pub max_per_project: i64,
    /// The maximum number of queues in total.
    pub limit: i64,
}

/// The hook, its receiver and its project.
type DueQueue = (HookId, String, Option<ProjectId>);

/// Returns queues that are due and not leased, longest due first.
pub fn due_queues(db: &mut Conn, filter: DueQueueFilter<'_>, now: Time) -> Result<Vec<DueQueue>> {
    let query = || {
        let mut query = Fragment::<(BigInt, Text, Nullable<BigInt>)>::new(
            "SELECT ranked.id, ranked.receiver, ranked.project_id FROM (SELECT hooks.id, hooks.receiver, \
             hooks.project_id, hooks.due_at, \
             row_number() OVER (PARTITION BY hooks.receiver ORDER BY hooks.due_at, hooks.id) AS receiver_rank, \
             row_number() OVER (PARTITION BY hooks.project_id ORDER BY hooks.due_at, hooks.id) AS project_rank \
             FROM hooks WHERE ",
        )
        .append(is_due(now))
        .sql(if filter.failing { " AND hooks.failures > 0" } else { " AND hooks.failures = 0" });
        for receiver in filter.full_receivers {
            query = query.sql(" AND hooks.receiver <> ").text(*receiver);
        }
        for project in filter.full_projects {
            query = query.sql(" AND (hooks.project_id IS NULL OR hooks.project_id <> ").number(*project).sql(")");
        }
        query
            .sql(") AS ranked WHERE ranked.receiver_rank <= ")
            .number(filter.max_per_receiver)
            .sql(" AND (ranked.project_id IS NULL OR ranked.project_rank <= ")
            .number(filter.max_per_project)
            .sql(") ORDER BY ranked.due_at, ranked.id LIMIT ")
            .number(filter.limit)
    };
    let rows: Vec<(i64, String, Option<i64>)> = on!(db, conn => query().load(conn))?;
    let queue = |(hook, receiver, project): (i64, String, Option<i64>)| {
        (HookId::new(hook), receiver, project.map(ProjectId::new))
    };
    Ok(rows.into_iter().map(queue).collect())
}

/// A queue that has been leased.
pub struct QueueLease {
    /// The hook.
    pub hook: HookId,
    /// The project of the hook; `None` for a system hook.
    pub project: Option<ProjectId>,
    /// The URL, encrypted.
    pub url: Vec<u8>,
    /// The token, encrypted.
    pub token: Option<Vec<u8>>,
    /// Host and port of the URL.
    pub receiver: String,
    /// Whether the TLS certificate of the receiver is verified.
    pub verify_tls: bool,
    /// The number of consecutive failed attempts.
    pub failures: i32,
    /// Since when the queue is due.
    pub due_at: Option<Time>,
}

/// Leases the given queues that are still due and not leased.
pub fn lease(db: &mut Conn, ids: &[HookId], now: Time, until: Time) -> Result<Vec<QueueLease>> {
    type Row = (i64, Option<i64>, Vec<u8>, Option<Vec<u8>>, String, bool, i32, Option<i64>);
    let query = || {
        hooks::table
            .filter(Fragment::<Bool>::new("hooks.id").in_ids(ids))
            .filter(is_due(now))
            .order((hooks::due_at, hooks::id))
            .select((
                hooks::id,
                hooks::project_id,
                hooks::url,
                hooks::token,
                hooks::receiver,
                hooks::enable_ssl_verification,
                hooks::failures,
                hooks::due_at,
            ))
    };
    // SQLite has a single writer; on PostgreSQL several nodes may choose the same queue.
    let rows: Vec<Row> = match db {
        Conn::Sqlite(conn) => query().load(conn)?,
        Conn::Pg(conn) => query().for_update().skip_locked().load(conn)?,
    };
    let leased: Vec<i64> = rows.iter().map(|row| row.0).collect();
    on!(db, conn => constant!(diesel::update(hooks::table)
        .filter(Fragment::<Bool>::new("hooks.id").in_ids(&leased))
        .set(hooks::leased_until.eq(to_micros(until))))
        .execute(conn))?;
    let queue = |(hook, project, url, token, receiver, verify_tls, failures, due_at): Row| {
        let (hook, project, due_at) = (HookId::new(hook), project.map(ProjectId::new), from_micros_opt(due_at));
        QueueLease { hook, project, url, token, receiver, verify_tls, failures, due_at }
    };
    Ok(rows.into_iter().map(queue).collect())
}

/// Ends the lease of a queue that is next due at `due_at`, or is empty.
pub fn release_queue(db: &mut Conn, hook: HookId, due_at: Option<Time>) -> Result<()> {
    on!(db, conn => constant!(diesel::update(hooks::table.find(hook.get()))
        .set((hooks::due_at.eq(due_at.map(to_micros)), hooks::leased_until.eq(None::<i64>))))
        .execute(conn))?;
    Ok(())
}

/// Ends all leases, after the process that held them has ended.
pub fn release_all(db: &mut Conn) -> Result<()> {
    on!(db, conn => diesel::update(hooks::table.filter(hooks::leased_until.is_not_null()))
        .set(hooks::leased_until.eq(None::<i64>))
        .execute(conn))?;
    Ok(())
}

/// A delivery to send, without its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedDelivery {
    /// The ID of the delivery.
    pub id: DeliveryId,
    /// The ID of the event.
    pub event: WebhookEventId,
    /// `None` for a kind that only a newer version knows.
    pub kind: Option<EventKind>,
    /// The recursion depth: the number of webhooks in the chain of requests that caused the event.
    pub depth: i32,
    /// The seed of the delivery UUID.
    pub seed: String,
    /// Size of the payload in bytes.
    pub size: i64,
}

/// Returns the next deliveries of a queue that are due.
pub fn queued_deliveries(
    db: &mut Conn,
    hook: HookId,
    order: QueueOrder,
    limit: i64,
    now: Time,
) -> Result<Vec<QueuedDelivery>> {
    type Row = (i64, i64, i32, i32, String, i64, i64);
    let now = to_micros(now);
    // The subquery reads only the index of pending deliveries; SQLite would otherwise scan all deliveries of the hook.
    let chosen = || {
        let waiting = Fragment::<Bool>::new(
            "hook_deliveries.id IN (SELECT w.id FROM hook_deliveries w WHERE w.state = 0 AND w.hook_id = ",
        )
        .number(hook)
        .sql(" AND (w.due_at <= ")
        .number(now);
        let waiting = match order {
            QueueOrder::Fifo(skippable_from) => {
                waiting.sql(" OR w.attempts < ").number(skippable_from).sql(") ORDER BY w.id LIMIT ")
            }
            QueueOrder::FewestAttempts => waiting.sql(") ORDER BY w.attempts, w.id LIMIT "),
        };
        waiting.number(limit).sql(")")
    };
    let rows: Vec<Row> = on!(db, conn => {
        let query = hook_deliveries::table.inner_join(hook_events::table).filter(chosen()).select((
            hook_deliveries::id,
            hook_events::id,
            hook_events::occasion,
            hook_events::depth,
            hook_events::seed,
            hook_events::size,
            hook_deliveries::due_at,
        ));
        match order {
            QueueOrder::Fifo(_) => query.order(hook_deliveries::id).load(conn),
            QueueOrder::FewestAttempts => query.order((hook_deliveries::attempts, hook_deliveries::id)).load(conn),
        }
    })?;
    // A delivery that is not due blocks those behind it, unless the subquery has skipped it.
    let due = rows.into_iter().take_while(|(.., due_at)| *due_at <= now);
    let deliveries = due.map(|(id, event, kind, depth, seed, size, _)| QueuedDelivery {
        id: DeliveryId::new(id),
        event: WebhookEventId::new(event),
        kind: EventKind::from_code(kind),
        depth,
        seed,
        size,
    });
    Ok(deliveries.collect())
}

/// Returns the payloads of events, with their ids.
pub fn payloads(db: &mut Conn, events: &[WebhookEventId]) -> Result<Vec<(WebhookEventId, String)>> {
    let rows: Vec<(i64, String)> = on!(db, conn => hook_events::table
        .filter(Fragment::<Bool>::new("hook_events.id").in_ids(events))
        .select((hook_events::id, hook_events::payload))
        .load(conn))?;
    Ok(rows.into_iter().map(|(id, payload)| (WebhookEventId::new(id), payload)).collect())
}

/// Statistics over all queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueStats {
    /// The number of pending deliveries, counted up to `MAX_COUNTED`.
    pub waiting: i64,
    /// When the oldest pending delivery, or event to fan out, was created.
    pub oldest: Option<Time>,
    /// The number of paused hooks.
    pub paused: i64,
}

/// Returns statistics over all queues.
pub fn queue_stats(db: &mut Conn) -> Result<QueueStats> {
    let count = || {
        Fragment::<BigInt>::new("SELECT count(*) FROM (SELECT 1 FROM hook_deliveries WHERE state = 0 LIMIT ")
            .number(MAX_COUNTED)
            .sql(") AS counted")
    };
    // The first delivery of each queue is found through the index; queues without pending deliveries are skipped.
    let oldest = || {
        Fragment::<Nullable<BigInt>>::new(
            "SELECT min(created_at) FROM hook_deliveries WHERE id IN (SELECT (SELECT d.id FROM hook_deliveries d \
             WHERE d.hook_id = queues.id AND d.state = 0 ORDER BY d.id LIMIT 1) \
             FROM (SELECT id FROM hooks WHERE due_at IS NOT NULL ORDER BY due_at LIMIT ",
        )
        .number(MAX_COUNTED)
        .sql(") AS queues)")
    };
    let waiting = on!(db, conn => count().get_result(conn))?;
    let delivery: Option<i64> = on!(db, conn => oldest().get_result(conn))?;
    let event: Option<i64> = on!(db, conn => hook_events::table
        .filter(is_undispatched())
        .order(hook_events::id)
        .select(hook_events::created_at)
        .first(conn)
        .optional())?;
    let paused = on!(db, conn => hooks::table.filter(hooks::paused_at.is_not_null()).count().get_result(conn))?;
    let oldest = [delivery, event].into_iter().flatten().min();
    Ok(QueueStats { waiting, oldest: from_micros_opt(oldest), paused })
}

/// Deletes deliveries that finished before a time; returns their number.
pub fn delete_finished(db: &mut Conn, before: Time, limit: i64) -> Result<usize> {
    let old = || {
        Fragment::<Bool>::new(
            "hook_deliveries.id IN (SELECT id FROM hook_deliveries \
             WHERE finished_at IS NOT NULL AND finished_at < ",
        )
        .number(to_micros(before))
        .sql(" LIMIT ")
        .number(limit)
        .sql(")")
    };
    Ok(on!(db, conn => diesel::delete(hook_deliveries::table.filter(old())).execute(conn))?)
}

/// Returns the ids of the next rows of a table that were created before a time, with an ID above `after`.
fn old_row_ids(db: &mut Conn, table: &'static str, after: i64, before: Time, limit: i64) -> Result<Vec<i64>> {
    let query = || {
        Fragment::<(BigInt, BigInt)>::new(format!("SELECT id, created_at FROM {table} WHERE id > "))
            .number(after)
            .sql(" ORDER BY id LIMIT ")
            .number(limit)
    };
    let rows: Vec<(i64, i64)> = on!(db, conn => query().load(conn))?;
    // Ids grow with time, so the caller stops at the first batch without old rows. Filtering instead of stopping at the
    // first young row tolerates rows that were written while the clock was ahead.
    Ok(rows.into_iter().filter(|(_, created_at)| *created_at < to_micros(before)).map(|(id, _)| id).collect())
}

/// Marks a batch of pending deliveries that were created before a time as failed. Returns the cursor for the next
/// batch, if there may be one, and the number of failed deliveries.
pub fn fail_expired(
    db: &mut Conn,
    after: DeliveryId,
    before: Time,
    reason: &str,
    now: Time,
    limit: i64,
) -> Result<(Option<DeliveryId>, usize)> {
    let ids = old_row_ids(db, "hook_deliveries", after.get(), before, limit)?;
    let ids: Vec<DeliveryId> = ids.into_iter().map(DeliveryId::new).collect();
    let failed = mark_failed(db, &ids, reason, now)?;
    Ok((ids.last().copied(), failed))
}

/// Deletes a batch of events that were created before a time, are fanned out and have no delivery left. Returns the
/// cursor for the next batch, if there may be one.
pub fn delete_dispatched_events(
    db: &mut Conn,
    after: WebhookEventId,
    before: Time,
    limit: i64,
) -> Result<Option<WebhookEventId>> {
    let ids = old_row_ids(db, "hook_events", after.get(), before, limit)?;
    let finished = || {
        Fragment::<Bool>::new("hook_events.id").in_ids(&ids).sql(
            " AND hook_events.intent_id IS NULL AND NOT EXISTS \
             (SELECT 1 FROM hook_deliveries d WHERE d.event_id = hook_events.id)",
        )
    };
    on!(db, conn => diesel::delete(hook_events::table.filter(finished()))
        .filter(hook_events::waiting.eq(false))
        .execute(conn))?;
    Ok(ids.last().copied().map(WebhookEventId::new))
}
