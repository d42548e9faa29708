//! Activity of users.

use axum::extract::State;
use forge::{Forge, events};
use model::Event;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    extract::{Numbers, Showing},
    paging::{Paged, Paging},
    reply::Reply,
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

/// Something that happened. Nothing records events yet, so there is no shape to show.
#[derive(Serialize, JsonSchema)]
struct EventJson {}

impl From<Event> for EventJson {
    fn from(event: Event) -> Self {
        match event {}
    }
}
