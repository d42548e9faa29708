//! The runners of a project: enabling, pausing and removing them.

use axum::{body::Body, response::Response};
use forge::{
    Unvalidated,
    runners::{self, RunnerChanges},
};
use model::RunnerId;

use crate::{
    context::PageCx,
    error::{PageError, PageResult},
    links::ProjectLinks,
    response,
};

/// Enables a runner of another project.
pub(crate) async fn enable(cx: PageCx, body: Body) -> PageResult {
    cx.form(body).await?;
    let (project, id) = (cx.project(), runner_id(&cx)?);
    cx.write(move |tx| runners::enable(tx, &project, &id)).await?;
    Ok(back(&cx))
}

/// Disables a runner that is enabled for other projects too.
pub(crate) async fn disable(cx: PageCx, body: Body) -> PageResult {
    cx.form(body).await?;
    let (project, id) = (cx.project(), runner_id(&cx)?);
    cx.write(move |tx| runners::disable(tx, &project, &id)).await?;
    Ok(back(&cx))
}

/// Stops a runner from taking jobs.
pub(crate) async fn pause(cx: PageCx, body: Body) -> PageResult {
    set_active(cx, body, false).await
}

/// Lets a runner take jobs again.
pub(crate) async fn resume(cx: PageCx, body: Body) -> PageResult {
    set_active(cx, body, true).await
}

/// Deletes a runner.
pub(crate) async fn delete(cx: PageCx, body: Body) -> PageResult {
    cx.form(body).await?;
    let (project, id) = (cx.project(), runner_id(&cx)?);
    cx.write(move |tx| {
        runners::ensure_available_to(tx, &project, &id)?;
        runners::delete(tx, &id)
    })
    .await?;
    Ok(back(&cx))
}

async fn set_active(cx: PageCx, body: Body, active: bool) -> PageResult {
    cx.form(body).await?;
    let (project, id) = (cx.project(), runner_id(&cx)?);
    let changes = Unvalidated::valid(RunnerChanges { active: Some(active), ..RunnerChanges::default() });
    cx.write(move |tx| {
        runners::ensure_available_to(tx, &project, &id)?;
        runners::update(tx, &id, &changes)
    })
    .await?;
    Ok(back(&cx))
}

fn runner_id(cx: &PageCx) -> Result<Unvalidated<RunnerId>, PageError> {
    Ok(Unvalidated::valid(RunnerId::new(cx.number("runner")?)))
}

fn back(cx: &PageCx) -> Response {
    response::redirect(&ProjectLinks::new(&cx.params.subject).to("settings/ci_cd"))
}
