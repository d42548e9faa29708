//! Tags of a repository and their releases.

use axum::extract::State;
use forge::{
    Error, Forge,
    tags::{self, NewTag, ReleasedTag},
};
use model::{Commit, releases::Release};
use schemars::JsonSchema;
use serde::Serialize;

use crate::v3::commits::{TipJson, ids};
use crate::{
    App,
    error::ApiError,
    extract::{Credentials, InProject, TagName},
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, Done, Reply},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/projects/{id}/repository/tags", "Lists the tags, the last name first", list)
        .open()
        .post("/projects/{id}/repository/tags", "Makes a tag", create)
        .also(&[405])
        .get("/projects/{id}/repository/tags/{tag_name}", "Shows a tag", get)
        .open()
        .delete("/projects/{id}/repository/tags/{tag_name}", "Removes a tag", delete)
        .post("/projects/{id}/repository/tags/{tag_name}/release", "Adds a release to a tag", create_release)
        .also(&[409])
        .put("/projects/{id}/repository/tags/{tag_name}/release", "Changes the release of a tag", update_release)
}

async fn list(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    paging: Paging,
) -> Reply<Paged<TagJson>> {
    let page = paging.of_short_list();
    let tags = forge.read(caller, move |tx| tags::list(tx, &project, &page)).await?;
    Ok(paging.answer(tags.map(TagJson::from)))
}

async fn get(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    TagName(name): TagName,
) -> Reply<Done<TagJson>> {
    let tag = forge.read(caller, move |tx| tags::get(tx, &project, &name)).await?;
    Ok(Done(tag.into()))
}

async fn create(
    State(app): State<App>,
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<CreateTag>,
) -> Reply<Created<TagJson>> {
    let tag = tags::create(&forge, caller, project, given.map(|given| given.0)).await;
    let tag = tag.map_err(|error| match error {
        refused @ (Error::Refused(_) | Error::Invalid(_)) => ApiError::Under(app.dialect().tag_refused(), refused),
        other => other.into(),
    })?;
    Ok(Created(tag.into()))
}

async fn delete(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    TagName(name): TagName,
) -> Reply<Done<RemovedTagJson>> {
    tags::delete(&forge, caller, project, name.clone()).await?;
    Ok(Done(RemovedTagJson { tag_name: name }))
}

async fn create_release(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    TagName(name): TagName,
    Params(given): Params<DescribeRelease>,
) -> Reply<Created<ReleaseJson>> {
    let release = tags::create_release(&forge, caller, project, name, given.map(|given| given.0)).await?;
    Ok(Created(release.into()))
}

async fn update_release(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    TagName(name): TagName,
    Params(given): Params<DescribeRelease>,
) -> Reply<Done<ReleaseJson>> {
    let release = tags::update_release(&forge, caller, project, name, given.map(|given| given.0)).await?;
    Ok(Done(release.into()))
}

struct CreateTag(NewTag);

impl FromParams for CreateTag {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let name = from.required_text("tag_name", "What the tag is called");
        let target = from.required_text("ref", "The commit, tag or branch to which it points");
        let message = from.text("message", "What makes it an annotated tag");
        let release = from.text("release_description", "The notes of its release, in Markdown");
        // The gem gitlab sends it empty where there is none; the original made a tag without a release of that.
        let release = release.filter(|text| !text.is_empty());
        Self(NewTag { name, target, message, release })
    }
}

struct DescribeRelease(String);

impl FromParams for DescribeRelease {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.required_text("description", "The notes of the release, in Markdown"))
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

impl From<ReleasedTag> for TagJson {
    fn from(released: ReleasedTag) -> Self {
        let ReleasedTag { tag, release } = released;
        let commit = tag.commit.map(TaggedCommitJson::from);
        Self { name: tag.name, message: tag.message, commit, release: release.map(ReleaseJson::from) }
    }
}

/// The commit of a tag. The contract writes one field in a second way here.
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

/// What is told of a tag.
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

/// A tag that is gone.
#[derive(Serialize, JsonSchema)]
struct RemovedTagJson {
    tag_name: String,
}
