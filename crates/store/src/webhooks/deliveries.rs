//! Messages on their way to hooks: who waits for what, who is at it, and how it went.
//!
//! Each hook is a lane. `hooks.due_at` tells when it is next looked at, and is null while nothing waits; whoever makes
//! something wait for a hook, or looks whether anything does, holds the row of the hook, so that nothing is forgotten.

use diesel::{
    dsl::min,
    prelude::*,
    sql_types::{BigInt, Bool, Nullable, Text},
};
use model::{EventKind, Time, hooks::DeliveryState};

use crate::{
    Conn, Result,
    conn::on,
    fragment::Fragment,
    schema::{hook_deliveries, hook_events, hooks},
    times::{from_micros, from_micros_opt, to_micros},
    webhook_events::audience,
};

/// A key for PostgreSQL's advisory lock: of several nodes one spreads at a time, so that the order is kept.
const SPREAD_LOCK: i64 = 0x6761_626c_6501;
/// How far what waits is counted and looked through.
const COUNTED: i64 = 100_000;

/// What waits, as a condition that the index over it recognises. SQLite takes that index only for statements that read
/// nothing beside its columns.
fn waits() -> Fragment<Bool> {
    Fragment::new("hook_deliveries.state = 0")
}

/// What is to be spread, as a condition that the index over it recognises.
fn is_new() -> Fragment<Bool> {
    Fragment::new("hook_events.waiting AND hook_events.intent_id IS NULL")
}

/// Whether a lane is due and nobody is at it.
fn is_due(now: Time) -> Fragment<Bool> {
    Fragment::new("hooks.due_at IS NOT NULL AND hooks.due_at <= ")
        .number(to_micros(now))
        .sql(" AND (hooks.leased_until IS NULL OR hooks.leased_until < ")
        .number(to_micros(now))
        .sql(")")
}

/// What there is to do, at a glance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glance {
    /// Whether something is to be spread.
    pub news: bool,
    /// Whether a lane is due.
    pub due: bool,
    /// When the next lane is due that is not due yet.
    pub next: Option<Time>,
}

/// Looks whether there is anything to do.
pub fn glance(db: &mut Conn, now: Time) -> Result<Glance> {
    let new: Option<i64> =
        on!(db, conn => hook_events::table.filter(is_new()).select(hook_events::id).first(conn).optional())?;
    let due: Option<i64> = on!(db, conn => hooks::table.filter(is_due(now)).select(hooks::id).first(conn).optional())?;
    Ok(Glance { news: new.is_some(), due: due.is_some(), next: next_after(db, now)? })
}

/// When the next lane is due that is not due yet.
pub fn next_after(db: &mut Conn, now: Time) -> Result<Option<Time>> {
    let next: Option<i64> = on!(db, conn => hooks::table
        .filter(hooks::due_at.gt(to_micros(now)))
        .select(min(hooks::due_at))
        .first(conn))?;
    Ok(from_micros_opt(next))
}

/// Something that is to be spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct News {
    /// Number of the event.
    pub id: i64,
    /// On which occasion; `None` for one that only a newer version knows.
    pub occasion: Option<EventKind>,
    /// Whose hooks are told; `None` for those of the instance.
    pub project: Option<i64>,
    /// When there was something to tell.
    pub created_at: Time,
}

/// Some of what is to be spread, oldest first; nothing while another node is at it.
pub fn news(db: &mut Conn, most: i64) -> Result<Vec<News>> {
    if let Conn::Pg(conn) = db {
        let alone = Fragment::<Bool>::new(format!("SELECT pg_try_advisory_xact_lock({SPREAD_LOCK})"));
        if !alone.get_result::<bool>(conn)? {
            return Ok(Vec::new());
        }
    }
    let rows: Vec<(i64, i32, Option<i64>, i64)> = on!(db, conn => hook_events::table
        .filter(is_new())
        .order(hook_events::id)
        .limit(most)
        .select((hook_events::id, hook_events::occasion, hook_events::project_id, hook_events::created_at))
        .load(conn))?;
    let news = rows.into_iter().map(|(id, occasion, project, created_at)| News {
        id,
        occasion: EventKind::from_code(occasion),
        project,
        created_at: from_micros(created_at),
    });
    Ok(news.collect())
}

/// The hooks that are told on an occasion.
pub fn told(db: &mut Conn, occasion: EventKind, project: Option<i64>) -> Result<Vec<i64>> {
    Ok(on!(db, conn => hooks::table
        .filter(audience(occasion, project))
        .order(hooks::id)
        .select(hooks::id)
        .load(conn))?)
}

/// Lets a message wait for hooks that are held.
pub fn spread(db: &mut Conn, news: &News, to: &[i64], now: Time) -> Result<()> {
    let insert = || {
        Fragment::<BigInt>::new("INSERT INTO hook_deliveries (hook_id, event_id, due_at, created_at) SELECT hooks.id, ")
            .number(news.id)
            .sql(", ")
            .number(to_micros(now))
            .sql(", ")
            .number(to_micros(news.created_at))
            .sql(" FROM hooks WHERE hooks.id")
            .among(to)
            .sql(" ORDER BY hooks.id")
    };
    on!(db, conn => insert().execute(conn))?;
    Ok(())
}

/// Lets lanes be looked at now.
pub fn wake(db: &mut Conn, hooks: &[i64], now: Time) -> Result<()> {
    on!(db, conn => diesel::update(hooks::table)
        .filter(Fragment::<Bool>::new("hooks.id").among(hooks))
        .set(hooks::due_at.eq(to_micros(now)))
        .execute(conn))?;
    Ok(())
}

/// Notes that events were spread.
pub fn mark_spread(db: &mut Conn, events: &[i64]) -> Result<()> {
    on!(db, conn => diesel::update(hook_events::table)
        .filter(Fragment::<Bool>::new("hook_events.id").among(events))
        .set(hook_events::waiting.eq(false))
        .execute(conn))?;
    Ok(())
}

/// How a lane stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneState {
    /// The hook.
    pub hook: i64,
    /// The project whose hook it is; `None` for one of the instance.
    pub project: Option<i64>,
    /// When it is next looked at.
    pub due_at: Option<Time>,
    /// Until when somebody is at it.
    pub leased_until: Option<Time>,
    /// How many attempts in a row have failed.
    pub failures: i32,
    /// Since when it is paused.
    pub paused_at: Option<Time>,
    /// Why.
    pub pause_reason: Option<String>,
}

/// The lanes of these hooks, as far as they are still there; on PostgreSQL nobody else changes them meanwhile.
pub fn hold(db: &mut Conn, ids: &[i64]) -> Result<Vec<LaneState>> {
    type Row = (i64, Option<i64>, Option<i64>, Option<i64>, i32, Option<i64>, Option<String>);
    // Always in the same order, so that two who hold many never wait for each other.
    let these = || {
        hooks::table.filter(Fragment::<Bool>::new("hooks.id").among(ids)).order(hooks::id).select((
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
        Conn::Sqlite(conn) => these().load(conn)?,
        Conn::Pg(conn) => these().for_update().load(conn)?,
    };
    let lanes = rows.into_iter().map(|(hook, project, due_at, leased_until, failures, paused_at, pause_reason)| {
        let (due_at, leased_until) = (from_micros_opt(due_at), from_micros_opt(leased_until));
        LaneState { hook, project, due_at, leased_until, failures, paused_at: from_micros_opt(paused_at), pause_reason }
    });
    Ok(lanes.collect())
}

/// Writes down how a lane stands.
pub fn put_lane(db: &mut Conn, lane: &LaneState) -> Result<()> {
    on!(db, conn => diesel::update(hooks::table.find(lane.hook))
        .set((
            hooks::due_at.eq(lane.due_at.map(to_micros)),
            hooks::leased_until.eq(lane.leased_until.map(to_micros)),
            hooks::failures.eq(lane.failures),
            hooks::paused_at.eq(lane.paused_at.map(to_micros)),
            hooks::pause_reason.eq(lane.pause_reason.as_deref()),
        ))
        .execute(conn))?;
    Ok(())
}

/// A delivery that waits, before its next attempt is noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Course {
    /// Number of the delivery.
    pub id: i64,
    /// The hook.
    pub hook: i64,
    /// How often it was tried.
    pub attempts: i32,
    /// When it was first tried.
    pub first_tried_at: Option<Time>,
}

/// Those of these deliveries that still wait.
pub fn courses(db: &mut Conn, ids: &[i64]) -> Result<Vec<Course>> {
    let rows: Vec<(i64, i64, i32, Option<i64>)> = on!(db, conn => hook_deliveries::table
        .filter(Fragment::<Bool>::new("hook_deliveries.id").among(ids))
        .filter(hook_deliveries::state.eq(DeliveryState::Waiting.code()))
        .select((
            hook_deliveries::id,
            hook_deliveries::hook_id,
            hook_deliveries::attempts,
            hook_deliveries::first_tried_at,
        ))
        .load(conn))?;
    let course = |(id, hook, attempts, first)| Course { id, hook, attempts, first_tried_at: from_micros_opt(first) };
    Ok(rows.into_iter().map(course).collect())
}

/// How an attempt went, and what follows from it.
#[derive(Clone, Debug)]
pub struct Tried<'a> {
    /// The delivery.
    pub delivery: i64,
    /// How it stands now.
    pub state: DeliveryState,
    /// How often it was tried, this time included.
    pub attempts: i32,
    /// When it is tried again, if it waits.
    pub due_at: Time,
    /// When it was first tried.
    pub first_tried_at: Time,
    /// When this attempt began.
    pub tried_at: Time,
    /// How long it took, in microseconds.
    pub duration: i64,
    /// What the receiver answered.
    pub status: Option<i32>,
    /// What went wrong.
    pub error: Option<&'a str>,
    /// Where it was sent: sealed, without credentials.
    pub sent_to: Option<&'a [u8]>,
    /// Whether the token and a signature went along.
    pub signed: bool,
    /// The headers of the answer.
    pub response_headers: Option<&'a str>,
    /// The beginning of the answer.
    pub response_body: Option<&'a str>,
    /// The moment.
    pub now: Time,
}

/// Notes an attempt, unless the delivery waits no more.
pub fn note(db: &mut Conn, tried: &Tried<'_>) -> Result<()> {
    let finished_at = (tried.state != DeliveryState::Waiting).then(|| to_micros(tried.now));
    on!(db, conn => diesel::update(hook_deliveries::table.find(tried.delivery))
        .filter(hook_deliveries::state.eq(DeliveryState::Waiting.code()))
        .set((
            hook_deliveries::state.eq(tried.state.code()),
            hook_deliveries::attempts.eq(tried.attempts),
            hook_deliveries::due_at.eq(to_micros(tried.due_at)),
            hook_deliveries::first_tried_at.eq(to_micros(tried.first_tried_at)),
            hook_deliveries::finished_at.eq(finished_at),
            hook_deliveries::tried_at.eq(to_micros(tried.tried_at)),
            hook_deliveries::duration.eq(tried.duration),
            hook_deliveries::status.eq(tried.status),
            hook_deliveries::error.eq(tried.error),
            hook_deliveries::sent_to.eq(tried.sent_to),
            hook_deliveries::signed.eq(tried.signed),
            hook_deliveries::response_headers.eq(tried.response_headers),
            hook_deliveries::response_body.eq(tried.response_body),
        ))
        .execute(conn))?;
    Ok(())
}

/// Gives those of these deliveries up that still wait; says how many.
pub fn fail(db: &mut Conn, ids: &[i64], reason: &str, now: Time) -> Result<usize> {
    Ok(on!(db, conn => diesel::update(hook_deliveries::table)
        .filter(Fragment::<Bool>::new("hook_deliveries.id").among(ids))
        .filter(hook_deliveries::state.eq(DeliveryState::Waiting.code()))
        .set((
            hook_deliveries::state.eq(DeliveryState::Failed.code()),
            hook_deliveries::finished_at.eq(to_micros(now)),
            hook_deliveries::error.eq(reason),
        ))
        .execute(conn))?)
}

/// Lets everything that waits for a hook be tried now, in the order in which it was written down.
pub fn hasten(db: &mut Conn, hook: i64, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(hook_deliveries::table)
        .filter(hook_deliveries::hook_id.eq(hook))
        .filter(waits())
        .filter(hook_deliveries::due_at.gt(to_micros(now)))
        .set(hook_deliveries::due_at.eq(to_micros(now)))
        .execute(conn))?;
    Ok(())
}

/// In which order the messages of a lane are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As they were written down; one that has been tried this often or more may be overtaken while it is not due.
    Kept(i32),
    /// The one that has been tried least first.
    LeastTried,
}

/// When the next message of a lane is due; `None` if nothing waits.
pub fn next_of(db: &mut Conn, hook: i64, order: Order) -> Result<Option<Time>> {
    if let Order::Kept(overtaken) = order {
        let head: Option<i64> = on!(db, conn => hook_deliveries::table
            .filter(hook_deliveries::hook_id.eq(hook))
            .filter(waits())
            .filter(hook_deliveries::attempts.lt(overtaken))
            .order(hook_deliveries::id)
            .select(hook_deliveries::due_at)
            .first(conn)
            .optional())?;
        if head.is_some() {
            return Ok(from_micros_opt(head));
        }
    }
    // In order, so that SQLite takes the index over what waits and not the one over everything that the hook was told.
    let earliest = || {
        Fragment::<Nullable<BigInt>>::new(
            "SELECT min(waiting.due_at) FROM (SELECT due_at FROM hook_deliveries WHERE state = 0 AND hook_id = ",
        )
        .number(hook)
        .sql(" ORDER BY id LIMIT ")
        .number(COUNTED)
        .sql(") AS waiting")
    };
    let next: Option<i64> = on!(db, conn => earliest().get_result(conn))?;
    Ok(from_micros_opt(next))
}

/// Which lanes are looked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Those whose last attempt failed, or else those whose last attempt did not.
    pub failing: bool,
    /// Receivers that are not to be asked for more.
    pub full: &'a [&'a str],
    /// How many to one receiver at most.
    pub per_receiver: i64,
    /// Projects that are not to be asked for more.
    pub full_projects: &'a [i64],
    /// How many of one project at most.
    pub per_project: i64,
    /// How many in all at most.
    pub most: i64,
}

/// A lane that is due, with its receiver and its project.
type DueLane = (i64, String, Option<i64>);

/// Lanes that are due and that nobody has, longest due first.
pub fn due_lanes(db: &mut Conn, wanted: Wanted<'_>, now: Time) -> Result<Vec<DueLane>> {
    let query = || {
        let mut query = Fragment::<(BigInt, Text, Nullable<BigInt>)>::new(
            "SELECT ranked.id, ranked.receiver, ranked.project_id FROM (SELECT hooks.id, hooks.receiver, \
             hooks.project_id, hooks.due_at, \
             row_number() OVER (PARTITION BY hooks.receiver ORDER BY hooks.due_at, hooks.id) AS place, \
             row_number() OVER (PARTITION BY hooks.project_id ORDER BY hooks.due_at, hooks.id) AS own_place \
             FROM hooks WHERE ",
        )
        .then(is_due(now))
        .sql(if wanted.failing { " AND hooks.failures > 0" } else { " AND hooks.failures = 0" });
        for receiver in wanted.full {
            query = query.sql(" AND hooks.receiver <> ").words(*receiver);
        }
        for project in wanted.full_projects {
            query = query.sql(" AND (hooks.project_id IS NULL OR hooks.project_id <> ").number(*project).sql(")");
        }
        query
            .sql(") AS ranked WHERE ranked.place <= ")
            .number(wanted.per_receiver)
            .sql(" AND (ranked.project_id IS NULL OR ranked.own_place <= ")
            .number(wanted.per_project)
            .sql(") ORDER BY ranked.due_at, ranked.id LIMIT ")
            .number(wanted.most)
    };
    Ok(on!(db, conn => query().load(conn))?)
}

/// A lane that was taken.
pub struct TakenLane {
    /// The hook.
    pub hook: i64,
    /// The project whose hook it is; `None` for one of the instance.
    pub project: Option<i64>,
    /// The URL, sealed.
    pub url: Vec<u8>,
    /// The token, sealed.
    pub token: Option<Vec<u8>>,
    /// Host and port of the URL.
    pub receiver: String,
    /// Whether the receiver has to prove who it is.
    pub verify: bool,
    /// How many attempts in a row have failed.
    pub failures: i32,
    /// Since when it is due.
    pub due_at: Option<Time>,
}

/// Takes those of these lanes that are still due and that nobody has, until the lease ends.
pub fn take(db: &mut Conn, ids: &[i64], now: Time, until: Time) -> Result<Vec<TakenLane>> {
    type Row = (i64, Option<i64>, Vec<u8>, Option<Vec<u8>>, String, bool, i32, Option<i64>);
    let these = || {
        hooks::table
            .filter(Fragment::<Bool>::new("hooks.id").among(ids))
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
    // SQLite has one writer; on PostgreSQL several nodes may look at the same moment.
    let rows: Vec<Row> = match db {
        Conn::Sqlite(conn) => these().load(conn)?,
        Conn::Pg(conn) => these().for_update().skip_locked().load(conn)?,
    };
    let taken: Vec<i64> = rows.iter().map(|row| row.0).collect();
    on!(db, conn => diesel::update(hooks::table)
        .filter(Fragment::<Bool>::new("hooks.id").among(&taken))
        .set(hooks::leased_until.eq(to_micros(until)))
        .execute(conn))?;
    let lane = |(hook, project, url, token, receiver, verify, failures, due_at)| {
        let due_at = from_micros_opt(due_at);
        TakenLane { hook, project, url, token, receiver, verify, failures, due_at }
    };
    Ok(rows.into_iter().map(lane).collect())
}

/// Gives a lane back in which nothing is to be done before a moment, or at all.
pub fn give_back(db: &mut Conn, hook: i64, due_at: Option<Time>) -> Result<()> {
    on!(db, conn => diesel::update(hooks::table.find(hook))
        .set((hooks::due_at.eq(due_at.map(to_micros)), hooks::leased_until.eq(None::<i64>)))
        .execute(conn))?;
    Ok(())
}

/// Takes all lanes back from whoever is known to be dead.
pub fn release_all(db: &mut Conn) -> Result<()> {
    on!(db, conn => diesel::update(hooks::table.filter(hooks::leased_until.is_not_null()))
        .set(hooks::leased_until.eq(None::<i64>))
        .execute(conn))?;
    Ok(())
}

/// A message that is to be sent, without what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Number of the delivery.
    pub delivery: i64,
    /// Number of the event.
    pub event: i64,
    /// On which occasion; `None` for one that only a newer version knows.
    pub occasion: Option<EventKind>,
    /// How many hooks have led to it, one by the other.
    pub depth: i32,
    /// What makes the number by which the receiver knows it.
    pub seed: String,
    /// How many bytes it has.
    pub size: i64,
}

/// The next messages of a lane.
pub fn envelopes(db: &mut Conn, hook: i64, order: Order, most: i64, now: Time) -> Result<Vec<Envelope>> {
    type Row = (i64, i64, i32, i32, String, i64, i64);
    let now = to_micros(now);
    // Chosen from the index over what waits alone; SQLite would else go through everything that the hook was ever told.
    let chosen = || {
        let waiting = Fragment::<Bool>::new(
            "hook_deliveries.id IN (SELECT w.id FROM hook_deliveries w WHERE w.state = 0 AND w.hook_id = ",
        )
        .number(hook)
        .sql(" AND (w.due_at <= ")
        .number(now);
        let waiting = match order {
            Order::Kept(overtaken) => {
                waiting.sql(" OR w.attempts < ").number(overtaken.into()).sql(") ORDER BY w.id LIMIT ")
            }
            Order::LeastTried => waiting.sql(") ORDER BY w.attempts, w.id LIMIT "),
        };
        waiting.number(most).sql(")")
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
            Order::Kept(_) => query.order(hook_deliveries::id).load(conn),
            Order::LeastTried => query.order((hook_deliveries::attempts, hook_deliveries::id)).load(conn),
        }
    })?;
    // One that may not be overtaken keeps those behind it waiting until it is due.
    let due = rows.into_iter().take_while(|(.., due_at)| *due_at <= now);
    let envelopes = due.map(|(delivery, event, occasion, depth, seed, size, _)| Envelope {
        delivery,
        event,
        occasion: EventKind::from_code(occasion),
        depth,
        seed,
        size,
    });
    Ok(envelopes.collect())
}

/// What events say, by their numbers.
pub fn payloads(db: &mut Conn, events: &[i64]) -> Result<Vec<(i64, String)>> {
    Ok(on!(db, conn => hook_events::table
        .filter(Fragment::<Bool>::new("hook_events.id").among(events))
        .select((hook_events::id, hook_events::payload))
        .load(conn))?)
}

/// How the post is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// How many messages wait for hooks, counted up to a hundred thousand.
    pub waiting: i64,
    /// Since when the oldest of them waits, or of what is still to be spread.
    pub oldest: Option<Time>,
    /// How many hooks are paused.
    pub paused: i64,
}

/// How the post is doing.
pub fn standing(db: &mut Conn) -> Result<Standing> {
    let count = || {
        Fragment::<BigInt>::new("SELECT count(*) FROM (SELECT 1 FROM hook_deliveries WHERE state = 0 LIMIT ")
            .number(COUNTED)
            .sql(") AS counted")
    };
    // The first of each lane is found in the index, and lanes in which nothing waits are not looked at.
    let oldest = || {
        Fragment::<Nullable<BigInt>>::new(
            "SELECT min(created_at) FROM hook_deliveries WHERE id IN (SELECT (SELECT d.id FROM hook_deliveries d \
             WHERE d.hook_id = lanes.id AND d.state = 0 ORDER BY d.id LIMIT 1) \
             FROM (SELECT id FROM hooks WHERE due_at IS NOT NULL ORDER BY due_at LIMIT ",
        )
        .number(COUNTED)
        .sql(") AS lanes)")
    };
    let waiting = on!(db, conn => count().get_result(conn))?;
    let told: Option<i64> = on!(db, conn => oldest().get_result(conn))?;
    let new: Option<i64> = on!(db, conn => hook_events::table
        .filter(is_new())
        .order(hook_events::id)
        .select(hook_events::created_at)
        .first(conn)
        .optional())?;
    let paused = on!(db, conn => hooks::table.filter(hooks::paused_at.is_not_null()).count().get_result(conn))?;
    let oldest = [told, new].into_iter().flatten().min();
    Ok(Standing { waiting, oldest: from_micros_opt(oldest), paused })
}

/// Forgets some deliveries that were finished before a moment; says how many.
pub fn delete_finished(db: &mut Conn, before: Time, most: i64) -> Result<usize> {
    let old = || {
        Fragment::<Bool>::new(
            "hook_deliveries.id IN (SELECT id FROM hook_deliveries \
             WHERE finished_at IS NOT NULL AND finished_at < ",
        )
        .number(to_micros(before))
        .sql(" LIMIT ")
        .number(most)
        .sql(")")
    };
    Ok(on!(db, conn => diesel::delete(hook_deliveries::table.filter(old())).execute(conn))?)
}

/// Goes on through the rows of a table, up to where all are younger than a moment: the numbers of some older ones, after
/// the given one.
fn old_rows(db: &mut Conn, table: &'static str, after: i64, before: Time, most: i64) -> Result<Vec<i64>> {
    let query = || {
        Fragment::<(BigInt, BigInt)>::new(format!("SELECT id, created_at FROM {table} WHERE id > "))
            .number(after)
            .sql(" ORDER BY id LIMIT ")
            .number(most)
    };
    let rows: Vec<(i64, i64)> = on!(db, conn => query().load(conn))?;
    // Numbers grow with time; so the walk ends where the young ones begin, and costs nothing that grows with those. One
    // from an hour at which the clock was ahead does not end it.
    Ok(rows.into_iter().filter(|(_, created_at)| *created_at < to_micros(before)).map(|(id, _)| id).collect())
}

/// Gives up some deliveries that have waited since before a moment; says after which number to go on, if there may be
/// more, and how many that were.
pub fn fail_old(
    db: &mut Conn,
    after: i64,
    before: Time,
    reason: &str,
    now: Time,
    most: i64,
) -> Result<(Option<i64>, usize)> {
    let ids = old_rows(db, "hook_deliveries", after, before, most)?;
    let failed = fail(db, &ids, reason, now)?;
    Ok((ids.last().copied(), failed))
}

/// Forgets some events from before a moment that were spread and of which no delivery is left; says after which number to
/// go on, if there may be more.
pub fn delete_told(db: &mut Conn, after: i64, before: Time, most: i64) -> Result<Option<i64>> {
    let ids = old_rows(db, "hook_events", after, before, most)?;
    let told = || {
        Fragment::<Bool>::new("hook_events.id").among(&ids).sql(
            " AND hook_events.intent_id IS NULL AND NOT EXISTS \
             (SELECT 1 FROM hook_deliveries d WHERE d.event_id = hook_events.id)",
        )
    };
    on!(db, conn => diesel::delete(hook_events::table.filter(told()))
        .filter(hook_events::waiting.eq(false))
        .execute(conn))?;
    Ok(ids.last().copied())
}
