//! Which project was forked from which.

use axum::extract::State;
use forge::{Forge, fork_links};
use model::projects::ForkLink;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    extract::{Credentials, InProject, OtherProject},
    reply::{Created, Done, Reply, Stamp},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new()
        .post(
            "/projects/{id}/fork/{project_id}",
            "Notes that a project was forked from another one; administrators only",
            create,
        )
        .also(&[409])
        .delete("/projects/{id}/fork", "Forgets from where a project was forked", delete)
}

async fn create(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    OtherProject(source): OtherProject,
) -> Reply<Created<ForkLinkJson>> {
    let link = forge.write(caller, move |tx| fork_links::create(tx, &project, &source)).await?;
    Ok(Created(link.into()))
}

/// Answers null for a project that is no fork: clients of the original take any other status as a failure.
async fn delete(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
) -> Reply<Done<Option<ForkLinkJson>>> {
    let link = forge.write(caller, move |tx| fork_links::delete(tx, &project)).await?;
    Ok(Done(link.map(ForkLinkJson::from)))
}

/// That a project was forked from another one.
#[derive(Serialize, JsonSchema)]
struct ForkLinkJson {
    id: i64,
    forked_to_project_id: i64,
    forked_from_project_id: i64,
    created_at: Stamp,
    updated_at: Stamp,
}

impl From<ForkLink> for ForkLinkJson {
    fn from(link: ForkLink) -> Self {
        Self {
            id: link.id,
            forked_to_project_id: link.project,
            forked_from_project_id: link.source,
            created_at: Stamp(link.created_at),
            updated_at: Stamp(link.updated_at),
        }
    }
}
