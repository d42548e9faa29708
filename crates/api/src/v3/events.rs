//! Activity of users.

use axum::extract::State;
use forge::{Forge, events};
use model::Event;
use schemars::JsonSchema;
use serde::Serialize;

use super::users::UserSummaryJson;
use crate::{
    extract::{Numbers, Showing},
    paging::{Paged, Paging},
    reply::{Reply, Stamp},
    routes::Routes,
};

pub(super) fn routes() -> Routes {
    Routes::new().get("/users/{id}/events", "Lists what a user did, newest first", of_user)
}

async fn of_user(
    State(forge): State<Forge>,
    Showing(caller): Showing,
    Numbers([user]): Numbers<1>,
    paging: Paging,
) -> Reply<Paged<EventJson>> {
    let page = paging.page.clone();
    let events = forge.read(caller, move |it| events::of_user(it, user, &page)).await?;
    Ok(paging.answer(events.map(EventJson::from)))
}

/// Something that happened, as the contract shows it. Nothing records events yet, so none is ever made.
#[derive(Serialize, JsonSchema)]
struct EventJson {
    title: Option<String>,
    project_id: i64,
    action_name: String,
    target_id: Option<i64>,
    target_type: Option<String>,
    target_title: Option<String>,
    author_id: i64,
    author: UserSummaryJson,
    author_username: String,
    data: Option<serde_json::Value>,
    created_at: Stamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<NoteJson>,
}

/// The comment of a comment event.
#[derive(Serialize, JsonSchema)]
struct NoteJson {
    id: i64,
    body: String,
    attachment: Option<String>,
    author: UserSummaryJson,
    created_at: Stamp,
    system: bool,
    upvote: bool,
    downvote: bool,
    noteable_id: i64,
    noteable_type: String,
}

impl From<Event> for EventJson {
    fn from(event: Event) -> Self {
        match event {}
    }
}
