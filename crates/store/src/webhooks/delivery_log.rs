//! The log of what hooks were told, and how that went.

use diesel::prelude::*;
use model::{
    Delivery, EventKind, Page, Slice, Time,
    hooks::{DeliveryState, delivery_uuid},
};

use crate::{
    Conn, Result,
    conn::on,
    schema::{hook_deliveries, hook_events},
    times::{from_micros, from_micros_opt, to_micros},
};

/// A line of the log as it is stored: where it was sent is sealed, and so not yet in the delivery.
pub struct SealedDelivery {
    /// The line.
    pub delivery: Delivery,
    /// Where it was sent, without credentials.
    pub sent_to: Option<Vec<u8>>,
    /// Whether the token and a signature went along; `None` if nothing was sent yet.
    pub signed: Option<bool>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = hook_deliveries)]
struct Row {
    id: i64,
    hook_id: i64,
    state: i32,
    attempts: i32,
    due_at: i64,
    created_at: i64,
    finished_at: Option<i64>,
    tried_at: Option<i64>,
    duration: Option<i64>,
    status: Option<i32>,
    error: Option<String>,
    sent_to: Option<Vec<u8>>,
    signed: Option<bool>,
    response_headers: Option<String>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = hook_events)]
struct EventRow {
    occasion: i32,
    seed: String,
}

/// What the receiver said, which may be long.
#[derive(Queryable, Selectable)]
#[diesel(table_name = hook_deliveries)]
struct AnswerRow {
    response_body: Option<String>,
}

/// What was said, which may be longer.
#[derive(Queryable, Selectable)]
#[diesel(table_name = hook_events)]
struct PayloadRow {
    payload: String,
}

fn to_delivery((row, event): (Row, EventRow)) -> SealedDelivery {
    let EventRow { occasion, seed } = event;
    let Row {
        id,
        hook_id,
        state,
        attempts,
        due_at,
        created_at,
        finished_at,
        tried_at,
        duration,
        status,
        error,
        sent_to,
        signed,
        response_headers,
    } = row;
    // An unknown number can only come from a newer version.
    let state = DeliveryState::from_code(state).unwrap_or(DeliveryState::Failed);
    let delivery = Delivery {
        id,
        hook: hook_id,
        uuid: delivery_uuid(&seed, hook_id),
        occasion: EventKind::from_code(occasion).unwrap_or(EventKind::System),
        state,
        attempts,
        created_at: from_micros(created_at),
        due_at: (state == DeliveryState::Waiting).then(|| from_micros(due_at)),
        tried_at: from_micros_opt(tried_at),
        finished_at: from_micros_opt(finished_at),
        duration,
        url: None,
        payload: String::new(),
        status,
        response_headers,
        response_body: None,
        error,
    };
    SealedDelivery { delivery, sent_to, signed }
}

/// What a hook was told, newest first; without what was said, which may be long on both sides.
pub fn list(db: &mut Conn, hook: i64, page: Page) -> Result<Slice<SealedDelivery>> {
    let of_hook = || hook_deliveries::table.filter(hook_deliveries::hook_id.eq(hook));
    let total = on!(db, conn => of_hook().count().get_result(conn))?;
    let rows: Vec<(Row, EventRow)> = on!(db, conn => of_hook()
        .inner_join(hook_events::table)
        .order(hook_deliveries::id.desc())
        .limit(page.size)
        .offset(page.offset())
        .select((Row::as_select(), EventRow::as_select()))
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(to_delivery).collect(), total, page })
}

/// One line of the log of a hook, with all that was said.
pub fn find(db: &mut Conn, hook: i64, id: i64) -> Result<Option<SealedDelivery>> {
    let found: Option<(Row, EventRow, AnswerRow, PayloadRow)> = on!(db, conn => hook_deliveries::table
        .inner_join(hook_events::table)
        .filter(hook_deliveries::hook_id.eq(hook))
        .filter(hook_deliveries::id.eq(id))
        .select((Row::as_select(), EventRow::as_select(), AnswerRow::as_select(), PayloadRow::as_select()))
        .first(conn)
        .optional())?;
    Ok(found.map(|(row, event, AnswerRow { response_body }, PayloadRow { payload })| {
        let sealed = to_delivery((row, event));
        SealedDelivery { delivery: Delivery { response_body, payload, ..sealed.delivery }, ..sealed }
    }))
}

/// What a line of the log of a hook tells of.
pub fn event_of(db: &mut Conn, hook: i64, id: i64) -> Result<Option<i64>> {
    Ok(on!(db, conn => hook_deliveries::table
        .filter(hook_deliveries::hook_id.eq(hook))
        .filter(hook_deliveries::id.eq(id))
        .select(hook_deliveries::event_id)
        .first(conn)
        .optional())?)
}

/// Lets a hook be told something; says the number in the log.
pub fn insert(db: &mut Conn, hook: i64, event: i64, now: Time) -> Result<i64> {
    Ok(on!(db, conn => diesel::insert_into(hook_deliveries::table)
        .values((
            hook_deliveries::hook_id.eq(hook),
            hook_deliveries::event_id.eq(event),
            hook_deliveries::due_at.eq(to_micros(now)),
            hook_deliveries::created_at.eq(to_micros(now)),
        ))
        .returning(hook_deliveries::id)
        .get_result(conn))?)
}
