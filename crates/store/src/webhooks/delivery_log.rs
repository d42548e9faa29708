//! The delivery log of a hook.

use diesel::prelude::*;
use model::{
    Delivery, DeliveryId, EventKind, HookId, Page, Slice, Time, WebhookEventId,
    hooks::{DeliveryState, delivery_uuid},
};

use crate::{
    Conn, Result,
    conn::on,
    count_up_to::CountUpTo,
    schema::{hook_deliveries, hook_events},
    times::{from_micros, from_micros_opt, to_micros},
};

/// A delivery as it is stored: the URL that it was sent to is still encrypted.
pub struct EncryptedDelivery {
    /// The delivery, without its URL.
    pub delivery: Delivery,
    /// The URL without credentials, encrypted.
    pub sent_to: Option<Vec<u8>>,
    /// Whether the request carried the token and a signature; `None` before the first attempt.
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

/// Kept apart from `Row` because it may be long.
#[derive(Queryable, Selectable)]
#[diesel(table_name = hook_deliveries)]
struct ResponseBodyRow {
    response_body: Option<String>,
}

/// Kept apart from `EventRow` because it may be long.
#[derive(Queryable, Selectable)]
#[diesel(table_name = hook_events)]
struct PayloadRow {
    payload: String,
}

fn to_delivery((row, event): (Row, EventRow)) -> EncryptedDelivery {
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
    // Only a newer version can have written an unknown code.
    let state = DeliveryState::from_code(state).unwrap_or(DeliveryState::Failed);
    let delivery = Delivery {
        id: DeliveryId::new(id),
        hook: HookId::new(hook_id),
        uuid: delivery_uuid(&seed, HookId::new(hook_id)),
        kind: EventKind::from_code(occasion).unwrap_or(EventKind::System),
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
    EncryptedDelivery { delivery, sent_to, signed }
}

/// Returns the deliveries of a hook, newest first, without payloads and response bodies.
pub fn list(db: &mut Conn, hook: HookId, page: Page) -> Result<Slice<EncryptedDelivery>> {
    let of_hook = || hook_deliveries::table.filter(hook_deliveries::hook_id.eq(hook.get()));
    let total = on!(db, conn => CountUpTo::of_list(of_hook().select(hook_deliveries::id), page).total(conn))?;
    let rows: Vec<(Row, EventRow)> = on!(db, conn => of_hook()
        .inner_join(hook_events::table)
        .order(hook_deliveries::id.desc())
        .limit(page.size)
        .offset(page.offset())
        .select((Row::as_select(), EventRow::as_select()))
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(to_delivery).collect(), total, page })
}

/// Returns a delivery of a hook with its payload and response body.
pub fn find(db: &mut Conn, hook: HookId, id: DeliveryId) -> Result<Option<EncryptedDelivery>> {
    let found: Option<(Row, EventRow, ResponseBodyRow, PayloadRow)> = on!(db, conn => hook_deliveries::table
        .inner_join(hook_events::table)
        .filter(hook_deliveries::hook_id.eq(hook.get()))
        .filter(hook_deliveries::id.eq(id.get()))
        .select((Row::as_select(), EventRow::as_select(), ResponseBodyRow::as_select(), PayloadRow::as_select()))
        .first(conn)
        .optional())?;
    Ok(found.map(|(row, event, ResponseBodyRow { response_body }, PayloadRow { payload })| {
        let encrypted = to_delivery((row, event));
        EncryptedDelivery { delivery: Delivery { response_body, payload, ..encrypted.delivery }, ..encrypted }
    }))
}

/// Returns the event of a delivery.
pub fn event_of(db: &mut Conn, hook: HookId, id: DeliveryId) -> Result<Option<WebhookEventId>> {
    let id: Option<i64> = on!(db, conn => hook_deliveries::table
        .filter(hook_deliveries::hook_id.eq(hook.get()))
        .filter(hook_deliveries::id.eq(id.get()))
        .select(hook_deliveries::event_id)
        .first(conn)
        .optional())?;
    Ok(id.map(WebhookEventId::new))
}

/// Adds a delivery of an event to a hook; returns its id.
pub fn insert(db: &mut Conn, hook: HookId, event: WebhookEventId, now: Time) -> Result<DeliveryId> {
    let id = on!(db, conn => diesel::insert_into(hook_deliveries::table)
        .values((
            hook_deliveries::hook_id.eq(hook.get()),
            hook_deliveries::event_id.eq(event.get()),
            hook_deliveries::due_at.eq(to_micros(now)),
            hook_deliveries::created_at.eq(to_micros(now)),
        ))
        .returning(hook_deliveries::id)
        .get_result(conn))?;
    Ok(DeliveryId::new(id))
}
