//! Tags of a repository and their releases.

use axum::extract::State;
use forge::{
    Error,
    tags::{self, NewTag, TagWithRelease},
};
use model::{Commit, releases::Release};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    App,
    context::ProjectCx,
    error::ApiError,
    extract::TagInPath,
    openapi::Tag,
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, OkJson, Reply},
    routes::Routes,
    v3::commits::{TipJson, ids},
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Tags)
        .get("/projects/{id}/repository/tags", "List the tags of a project, sorted by name in descending order", list)
        .allow_anonymous()
        .post("/projects/{id}/repository/tags", "Create a tag", create)
        .with_statuses(&[405])
        .get("/projects/{id}/repository/tags/{tag_name}", "Get a tag with its commit and release", get)
        .allow_anonymous()
        .delete("/projects/{id}/repository/tags/{tag_name}", "Delete a tag", delete)
        .post("/projects/{id}/repository/tags/{tag_name}/release", "Create the release of a tag", create_release)
        .with_statuses(&[409])
        .put("/projects/{id}/repository/tags/{tag_name}/release", "Update the release of a tag", update_release)
}

async fn list(cx: ProjectCx, paging: Paging) -> Reply<Paged<TagJson>> {
    let page = paging.page_of_short_list();
    let reply = cx.read(move |tx, project| {
        let found = tags::list(tx, project, &page)?;
        Ok(paging.reply(found, TagJson::from))
    });
    Ok(reply.await?)
}

async fn get(cx: ProjectCx, TagInPath(name): TagInPath) -> Reply<OkJson<TagJson>> {
    let tag = cx.read(move |tx, project| tags::get(tx, project, &name)).await?;
    Ok(OkJson(tag.into()))
}

async fn create(
    State(app): State<App>,
    ProjectCx { forge, caller, project }: ProjectCx,
    Params(params): Params<CreateTag>,
) -> Reply<Created<TagJson>> {
    let tag = tags::create(&forge, caller, project, params.map(|params| params.0)).await;
    let tag = tag.map_err(|error| match error {
        refused @ (Error::Refused(_) | Error::RefRejected(_) | Error::Invalid(_)) => {
            ApiError::OverrideStatus(app.dialect().tag_refused_status(), refused)
        }
        other => other.into(),
    })?;
    Ok(Created(tag.into()))
}

async fn delete(
    ProjectCx { forge, caller, project }: ProjectCx,
    TagInPath(name): TagInPath,
) -> Reply<OkJson<RemovedTagJson>> {
    tags::delete(&forge, caller, project, name.clone()).await?;
    Ok(OkJson(RemovedTagJson { tag_name: name }))
}

async fn create_release(
    ProjectCx { forge, caller, project }: ProjectCx,
    TagInPath(name): TagInPath,
    Params(params): Params<WriteRelease>,
) -> Reply<Created<ReleaseJson>> {
    let release = tags::create_release(&forge, caller, project, name, params.map(|params| params.0)).await?;
    Ok(Created(release.into()))
}

async fn update_release(
    ProjectCx { forge, caller, project }: ProjectCx,
    TagInPath(name): TagInPath,
    Params(params): Params<WriteRelease>,
) -> Reply<OkJson<ReleaseJson>> {
    let release = tags::update_release(&forge, caller, project, name, params.map(|params| params.0)).await?;
    Ok(OkJson(release.into()))
}

struct CreateTag(NewTag);

impl FromParams for CreateTag {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let name = from.required_text("tag_name", "The name of the tag");
        let target = from.required_text("ref", "The branch, tag or commit to which the tag points");
        let message = from.text("message", "The message of an annotated tag; a tag without one is lightweight");
        let release = from.text("release_description", "The release notes, in Markdown");
        // The Ruby gem `gitlab` sends an empty description; GitLab then creates a tag without a release.
        let release = release.filter(|text| !text.is_empty());
        Self(NewTag { name, target, message, release })
    }
}

struct WriteRelease(String);

impl FromParams for WriteRelease {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.required_text("description", "The release notes, in Markdown"))
    }
}

/// A tag.
#[derive(Serialize, JsonSchema)]
struct TagJson {
    name: String,
    message: Option<String>,
    commit: Option<TaggedCommitJson>,
    release: Option<ReleaseJson>,
}

impl From<TagWithRelease> for TagJson {
    fn from(released: TagWithRelease) -> Self {
        let TagWithRelease { tag, release } = released;
        let commit = tag.commit.map(TaggedCommitJson::from);
        Self { name: tag.name, message: tag.message, commit, release: release.map(ReleaseJson::from) }
    }
}

/// The commit of a tag. In the contract it has `parents_ids` in addition to `parent_ids`.
#[derive(Serialize, JsonSchema)]
struct TaggedCommitJson {
    #[serde(flatten)]
    commit: TipJson,
    parents_ids: Vec<String>,
}

impl From<Commit> for TaggedCommitJson {
    fn from(commit: Commit) -> Self {
        Self { parents_ids: ids(&commit.parents), commit: commit.into() }
    }
}

/// A release.
#[derive(Serialize, JsonSchema)]
struct ReleaseJson {
    tag_name: String,
    description: String,
}

impl From<Release> for ReleaseJson {
    fn from(release: Release) -> Self {
        Self { tag_name: release.tag_name, description: release.description }
    }
}

/// A deleted tag.
#[derive(Serialize, JsonSchema)]
struct RemovedTagJson {
    tag_name: String,
}
