//! A system hook with its deliveries.

use askama::Template;
use axum::body::Body;
use forge::{
    Unvalidated,
    hooks::{self, DeliveryLogEntry, HookScope},
};
use model::{Delivery, DeliveryId, Hook, HookId};

use super::{AdminHead, enter, form, frame, no_store};
use crate::{
    context::PageCx,
    error::{PageError, PageResult},
    layout::Layout,
    paging::{self, Pager},
    response,
    text::{self, Markup, plain},
    webhooks::deliveries,
};

const DELIVERIES_PER_PAGE: i64 = 25;

#[derive(Template)]
#[template(path = "admin/hook.html")]
struct HookTemplate {
    layout: Layout,
    head: AdminHead,
    hook: Hook,
    url: String,
    deliveries: Vec<DeliveryLogEntry>,
    pager: Pager,
}

#[derive(Template)]
#[template(path = "admin/delivery.html")]
struct DeliveryTemplate {
    layout: Layout,
    head: AdminHead,
    hook: Hook,
    hook_url: String,
    resend_url: String,
    delivery: Delivery,
    signed: bool,
    payload: Markup,
    response_headers: Markup,
    response_body: Markup,
}

/// Shows a hook.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    enter(&cx).await?;
    let (hook, query) = (hook_id(&cx)?, cx.query());
    let (id, page) = (Unvalidated::valid(hook), paging::requested(&query, DELIVERIES_PER_PAGE));
    let (viewer, (found, deliveries)) = cx
        .read(move |tx| {
            let found = hooks::get(tx, &HookScope::Instance, &id)?;
            Ok((found, hooks::list_deliveries(tx, &HookScope::Instance, &id, &page)?))
        })
        .await?;
    let (layout, head) = frame(&cx, viewer, super::hooks::PATH, "System hook")?;
    response::page(&HookTemplate {
        layout,
        head,
        hook: found,
        url: url_of(hook),
        pager: Pager::of(&cx.uri, &query, &deliveries),
        deliveries: deliveries.items,
    })
}

/// Shows a delivery.
pub(crate) async fn show_delivery(cx: PageCx) -> PageResult {
    enter(&cx).await?;
    let (hook, delivery) = (hook_id(&cx)?, delivery_id(&cx)?);
    let (id, wanted) = (Unvalidated::valid(hook), Unvalidated::valid(delivery));
    let (viewer, (found, entry)) = cx
        .read(move |tx| {
            let found = hooks::get(tx, &HookScope::Instance, &id)?;
            Ok((found, hooks::get_delivery(tx, &HookScope::Instance, &id, &wanted)?))
        })
        .await?;
    let (layout, head) = frame(&cx, viewer, super::hooks::PATH, &format!("Delivery {delivery}"))?;
    let preformatted = |text: &Option<String>| plain::preformatted(text.as_deref().unwrap_or_default());
    let template = DeliveryTemplate {
        layout,
        head,
        hook: found,
        hook_url: url_of(hook),
        resend_url: format!("{}/hook_logs/{delivery}/retry", url_of(hook)),
        signed: entry.signed,
        payload: plain::preformatted(&entry.delivery.payload),
        response_headers: preformatted(&entry.delivery.response_headers),
        response_body: preformatted(&entry.delivery.response_body),
        delivery: entry.delivery,
    };
    response::page(&template).map(no_store)
}

/// Sends the event again.
pub(crate) async fn resend(cx: PageCx, body: Body) -> PageResult {
    form(&cx, body).await?;
    let (hook, delivery) = (hook_id(&cx)?, Unvalidated::valid(delivery_id(&cx)?));
    let id = Unvalidated::valid(hook);
    let entry = cx.write(move |tx| hooks::resend(tx, &HookScope::Instance, &id, &delivery)).await?;
    Ok(response::redirect(&format!("{}/hook_logs/{}", url_of(hook), entry.delivery.id)))
}

fn hook_id(cx: &PageCx) -> Result<HookId, PageError> {
    cx.number("id").map(HookId::new)
}

fn delivery_id(cx: &PageCx) -> Result<DeliveryId, PageError> {
    cx.number("delivery").map(DeliveryId::new)
}

fn url_of(hook: HookId) -> String {
    format!("{}/{hook}", super::hooks::PATH)
}
