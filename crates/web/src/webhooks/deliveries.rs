//! A delivery of a webhook with its request and response.

use askama::Template;
use axum::{
    body::Body,
    http::{HeaderValue, header},
};
use forge::{
    Unvalidated,
    browse::InProject,
    hook_pages::{self, DeliveryPage},
};
use model::{Delivery, DeliveryId, Hook};

use super::{
    deliveries,
    hooks::{hook_id, scope},
};
use crate::{
    context::PageCx,
    error::{PageError, PageResult},
    layout::{Layout, ProjectHead, Tab},
    links::ProjectLinks,
    projects::settings::navigation::{SettingsNavigation, SettingsPage},
    response,
    text::{self, Markup, plain},
};

#[derive(Template)]
#[template(path = "webhooks/delivery.html")]
struct DeliveryTemplate {
    layout: Layout,
    head: ProjectHead,
    navigation: SettingsNavigation,
    hook: Hook,
    hook_url: String,
    resend_url: String,
    delivery: Delivery,
    signed: bool,
    payload: Markup,
    response_headers: Markup,
    response_body: Markup,
}

/// Shows a delivery.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    let (project, id, delivery) = (cx.project(), hook_id(&cx)?, delivery_id(&cx)?);
    let (viewer, found) = cx.read(move |tx| hook_pages::get_delivery(tx, &project, id, delivery)).await?;
    let InProject { project, value: DeliveryPage { hook, entry } } = found;
    let links = ProjectLinks::new(&project.full_path());
    let preformatted = |text: &Option<String>| plain::preformatted(text.as_deref().unwrap_or_default());
    let template = DeliveryTemplate {
        head: ProjectHead::new(&project, Tab::Settings, &viewer),
        navigation: SettingsNavigation::new(&project, &viewer, SettingsPage::Webhooks),
        layout: Layout::new(&cx, viewer, format!("Delivery {delivery} · {}", project.full_path())),
        hook,
        hook_url: links.to(&format!("hooks/{id}/edit")),
        resend_url: links.to(&format!("hooks/{id}/hook_logs/{delivery}/retry")),
        signed: entry.signed,
        payload: plain::preformatted(&entry.delivery.payload),
        response_headers: preformatted(&entry.delivery.response_headers),
        response_body: preformatted(&entry.delivery.response_body),
        delivery: entry.delivery,
    };
    let mut page = response::page(&template)?;
    // A payload can be that of a confidential issue.
    page.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(page)
}

/// Sends the event again.
pub(crate) async fn resend(cx: PageCx, body: Body) -> PageResult {
    cx.form(body).await?;
    let (scope, hook, delivery) = (scope(&cx), hook_id(&cx)?, Unvalidated::valid(delivery_id(&cx)?));
    let id = Unvalidated::valid(hook);
    let entry = cx.write(move |tx| forge::hooks::resend(tx, &scope, &id, &delivery)).await?;
    let path = format!("hooks/{hook}/hook_logs/{}", entry.delivery.id);
    Ok(response::redirect(&ProjectLinks::new(&cx.params.subject).to(&path)))
}

fn delivery_id(cx: &PageCx) -> Result<DeliveryId, PageError> {
    cx.number("delivery").map(DeliveryId::new)
}

/// Describes the duration of an attempt.
pub(crate) fn duration(micros: Option<i64>) -> String {
    micros.map(|micros| format!("{} ms", (micros + 500) / 1000)).unwrap_or_default()
}
