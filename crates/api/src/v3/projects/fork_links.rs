//! Fork relations between projects.

use forge::fork_links;
use model::projects::ForkLink;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    context::ProjectCx,
    extract::OtherProjectInPath,
    openapi::Tag,
    reply::{Created, OkJson, Reply, TimestampJson},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Projects)
        .post(
            "/projects/{id}/fork/{project_id}",
            "Mark a project as a fork of another project; administrators only",
            create,
        )
        .with_statuses(&[409])
        .delete("/projects/{id}/fork", "Remove the fork relation of a project", delete)
}

async fn create(cx: ProjectCx, OtherProjectInPath(source): OtherProjectInPath) -> Reply<Created<ForkLinkJson>> {
    let link = cx.write(move |tx, project| fork_links::create(tx, project, &source)).await?;
    Ok(Created(link.into()))
}

/// Returns null for a project that is not a fork, with status 200: clients of GitLab 8.14 treat any other status as a failure.
async fn delete(cx: ProjectCx) -> Reply<OkJson<Option<ForkLinkJson>>> {
    let link = cx.write(fork_links::delete).await?;
    Ok(OkJson(link.map(ForkLinkJson::from)))
}

/// The fork relation between two projects.
#[derive(Serialize, JsonSchema)]
struct ForkLinkJson {
    id: i64,
    forked_to_project_id: i64,
    forked_from_project_id: i64,
    created_at: TimestampJson,
    updated_at: TimestampJson,
}

impl From<ForkLink> for ForkLinkJson {
    fn from(link: ForkLink) -> Self {
        Self {
            id: link.id.get(),
            forked_to_project_id: link.project.get(),
            forked_from_project_id: link.source.get(),
            created_at: TimestampJson(link.created_at),
            updated_at: TimestampJson(link.updated_at),
        }
    }
}
