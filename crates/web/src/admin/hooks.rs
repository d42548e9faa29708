//! System hooks.

use askama::Template;
use axum::{
    body::Body,
    http::{Method, StatusCode},
};
use forge::{
    Error, Unvalidated,
    hooks::{self, HookFields, HookScope, SubscribedEventsPatch},
};
use model::{Hook, HookId, Page, hooks::MAX_URL_LENGTH};

use super::{AdminHead, done, enter, form, frame};
use crate::{
    context::PageCx,
    error::PageResult,
    fields::{Field, Form},
    form_errors::FormErrors,
    forms::Fields,
    layout::Layout,
    paging::{self, Pager},
    response, text,
};

pub(super) const PATH: &str = "/admin/hooks";
const HOOKS_PER_PAGE: i64 = 50;

#[derive(Template)]
#[template(path = "admin/hooks.html")]
struct HooksTemplate {
    layout: Layout,
    head: AdminHead,
    /// Why a hook was not tested.
    refusal: Option<String>,
    hooks: Vec<Hook>,
    pager: Pager,
    form: Form,
}

/// Lists the hooks.
pub(crate) async fn list(cx: PageCx) -> PageResult {
    render(&cx, None, &FormErrors::default(), None).await
}

async fn render(cx: &PageCx, typed: Option<&Fields>, errors: &FormErrors, refusal: Option<String>) -> PageResult {
    enter(cx).await?;
    let page = match cx.method {
        Method::POST => Unvalidated::valid(Page { number: 1, size: HOOKS_PER_PAGE }),
        _ => paging::requested(&cx.query(), HOOKS_PER_PAGE),
    };
    let (viewer, found) = cx.read(move |tx| hooks::list(tx, &HookScope::Instance, &page)).await?;
    let (layout, head) = frame(cx, viewer, PATH, "System hooks")?;
    let is_checked = |name: &str, default: bool| typed.map_or(default, |fields| fields.get(name) == "1");
    let fields = vec![
        Field::input("url", "URL", "url")
            .value(typed.map_or("", |fields| fields.get("url")))
            .required()
            .max_length(MAX_URL_LENGTH),
        Field::password("token", "Secret token", "off")
            .optional()
            .hint("Sent in the header X-Gitlab-Token, and used to sign the request."),
        Field::checkbox("push_events", "Pushes to branches of all projects", is_checked("push_events", true)),
        Field::checkbox("tag_push_events", "Pushes of tags of all projects", is_checked("tag_push_events", false)),
        Field::checkbox(
            "enable_ssl_verification",
            "Verify the TLS certificate of the receiver",
            is_checked("enable_ssl_verification", true),
        ),
    ];
    let status = if errors.is_empty() && refusal.is_none() { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    let template = HooksTemplate {
        layout,
        head,
        refusal,
        pager: Pager::of(&cx.uri, &cx.query(), &found),
        hooks: found.items,
        form: Form::new(fields, errors),
    };
    response::page_with_status(status, &template)
}

/// Adds a hook.
pub(crate) async fn create(cx: PageCx, body: Body) -> PageResult {
    let fields = form(&cx, body).await?;
    let flag = |name: &str| Some(fields.get(name) == "1");
    let events = SubscribedEventsPatch {
        push: flag("push_events"),
        tag_push: flag("tag_push_events"),
        ..SubscribedEventsPatch::default()
    };
    let hook = Unvalidated::valid(HookFields {
        url: fields.get("url").trim().to_owned(),
        token: Some(fields.get("token").to_owned()).filter(|token| !token.is_empty()),
        verify_tls: flag("enable_ssl_verification"),
        events,
    });
    match cx.write(move |tx| hooks::create(tx, &HookScope::Instance, &hook)).await {
        Ok(_) => Ok(done(PATH, "hook-added")),
        Err(error) => render(&cx, Some(&fields), &FormErrors::by_field(error)?, None).await,
    }
}

fn id(cx: &PageCx) -> Result<Unvalidated<HookId>, crate::error::PageError> {
    cx.number("id").map(|id| Unvalidated::valid(HookId::new(id)))
}

/// Enqueues a sample event for a hook.
pub(crate) async fn test(cx: PageCx, body: Body) -> PageResult {
    form(&cx, body).await?;
    let trigger = "project_create".to_owned();
    match hooks::test(cx.forge(), cx.caller(), HookScope::Instance, id(&cx)?, trigger).await {
        Ok(()) => Ok(done(PATH, "hook-tested")),
        Err(Error::Unprocessable(text)) => render(&cx, None, &FormErrors::default(), Some(text)).await,
        Err(error) => Err(error.into()),
    }
}

/// Removes a hook.
pub(crate) async fn delete(cx: PageCx, body: Body) -> PageResult {
    form(&cx, body).await?;
    let id = id(&cx)?;
    let deleted = cx.write(move |tx| hooks::delete(tx, &HookScope::Instance, &id)).await?;
    deleted.map(|_| done(PATH, "hook-removed")).ok_or(StatusCode::NOT_FOUND.into())
}
