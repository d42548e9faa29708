//! All runners, and the token with which shared ones are registered.

use askama::Template;
use axum::{body::Body, http::Method};
use forge::{
    Unvalidated,
    runners::{self, RunnerChanges},
};
use model::{Page, Runner, RunnerId, tokens::Secret};

use super::{AdminHead, done, enter, form, frame, no_store};
use crate::{
    context::PageCx,
    error::{PageError, PageResult},
    layout::Layout,
    paging::{self, Pager},
    response, text,
};

const PATH: &str = "/admin/runners";
const RUNNERS_PER_PAGE: i64 = 50;

#[derive(Template)]
#[template(path = "admin/runners.html")]
struct RunnersTemplate {
    layout: Layout,
    head: AdminHead,
    /// The registration token, on request.
    token: Option<Secret>,
    runners: Vec<Runner>,
    pager: Pager,
}

/// Lists the runners.
pub(crate) async fn list(cx: PageCx) -> PageResult {
    render(&cx, None).await
}

async fn render(cx: &PageCx, token: Option<Secret>) -> PageResult {
    enter(cx).await?;
    let page = match cx.method {
        Method::POST => Unvalidated::valid(Page { number: 1, size: RUNNERS_PER_PAGE }),
        _ => paging::requested(&cx.query(), RUNNERS_PER_PAGE),
    };
    let (viewer, found) = cx.read(move |tx| runners::list_all(tx, &Unvalidated::valid(None), &page)).await?;
    let (layout, head) = frame(cx, viewer, PATH, "Runners")?;
    let pager = Pager::of(&cx.uri, &cx.query(), &found);
    response::page(&RunnersTemplate { layout, head, token, runners: found.items, pager })
}

/// Shows the registration token.
pub(crate) async fn show_token(cx: PageCx, body: Body) -> PageResult {
    form(&cx, body).await?;
    let token = cx.write(runners::registration_token).await?;
    render(&cx, Some(token)).await.map(no_store)
}

/// Replaces the registration token and shows the new one.
pub(crate) async fn reset_token(cx: PageCx, body: Body) -> PageResult {
    form(&cx, body).await?;
    let token = cx.write(runners::reset_registration_token).await?;
    render(&cx, Some(token)).await.map(no_store)
}

fn id(cx: &PageCx) -> Result<Unvalidated<RunnerId>, PageError> {
    cx.number("id").map(|id| Unvalidated::valid(RunnerId::new(id)))
}

/// Keeps a runner from taking jobs.
pub(crate) async fn pause(cx: PageCx, body: Body) -> PageResult {
    set_active(&cx, body, false).await
}

/// Lets a runner take jobs again.
pub(crate) async fn resume(cx: PageCx, body: Body) -> PageResult {
    set_active(&cx, body, true).await
}

async fn set_active(cx: &PageCx, body: Body, active: bool) -> PageResult {
    form(cx, body).await?;
    let id = id(cx)?;
    let changes = Unvalidated::valid(RunnerChanges { active: Some(active), ..RunnerChanges::default() });
    cx.write(move |tx| runners::update(tx, &id, &changes)).await?;
    Ok(done(PATH, "runner-changed"))
}

/// Removes a runner.
pub(crate) async fn delete(cx: PageCx, body: Body) -> PageResult {
    form(&cx, body).await?;
    let id = id(&cx)?;
    cx.write(move |tx| runners::delete(tx, &id)).await?;
    Ok(done(PATH, "runner-removed"))
}
