//! The sessions of the user in the web interface.

use askama::Template;
use axum::body::Body;
use forge::web_sessions::{self, ListedWebSession};
use model::WebSessionId;

use super::{SettingsHead, done, frame};
use crate::{context::PageCx, error::PageResult, layout::Layout, response};

pub(crate) const PATH: &str = "/-/user_settings/active_sessions";

#[derive(Template)]
#[template(path = "accounts/settings/sessions.html")]
struct SessionsTemplate {
    layout: Layout,
    head: SettingsHead,
    sessions: Vec<ListedWebSession>,
}

/// Shows the sessions.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    let (viewer, sessions) = cx.read(web_sessions::list_own).await?;
    let (layout, head) = frame(&cx, viewer, PATH)?;
    response::page(&SessionsTemplate { layout, head, sessions })
}

/// Ends a session.
pub(crate) async fn end(cx: PageCx, body: Body) -> PageResult {
    cx.form(body).await?;
    let id = WebSessionId::new(cx.number("id")?);
    cx.write(move |tx| web_sessions::end_by_id(tx, id)).await?;
    Ok(done(PATH, "session-ended"))
}

/// Ends all sessions except the current one.
pub(crate) async fn end_others(cx: PageCx, body: Body) -> PageResult {
    cx.form(body).await?;
    cx.write(web_sessions::end_others).await?;
    Ok(done(PATH, "sessions-ended"))
}
