//! Branches of a repository.

use axum::extract::State;
use forge::{
    Error,
    branches::{self, Branch, NewBranch, ProtectionOptions},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    App,
    context::ProjectCx,
    error::ApiError,
    extract::BranchInPath,
    openapi::Tag,
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{OkJson, Reply, WithStatus},
    routes::Routes,
    v3::commits::TipJson,
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Branches)
        .get("/projects/{id}/repository/branches", "List the branches of a project, sorted by name", list)
        .post("/projects/{id}/repository/branches", "Create a branch", create)
        .get("/projects/{id}/repository/branches/{branch}", "Get a branch", get)
        .delete("/projects/{id}/repository/branches/{branch}", "Delete a branch", delete)
        .with_statuses(&[405])
        .put("/projects/{id}/repository/branches/{branch}/protect", "Protect a branch", protect)
        .put("/projects/{id}/repository/branches/{branch}/unprotect", "Unprotect a branch", unprotect)
        .delete(
            "/projects/{id}/repository/merged_branches",
            "Delete the branches that are merged into the default branch",
            delete_merged,
        )
}

async fn list(cx: ProjectCx, paging: Paging) -> Reply<Paged<BranchJson>> {
    let page = paging.page_of_short_list();
    let reply = cx.read(move |tx, project| {
        let found = branches::list(tx, project, &page)?;
        Ok(paging.reply(found, BranchJson::from))
    });
    Ok(reply.await?)
}

async fn get(cx: ProjectCx, BranchInPath(name): BranchInPath) -> Reply<OkJson<BranchJson>> {
    let branch = cx.read(move |tx, project| branches::get(tx, project, &name)).await?;
    Ok(OkJson(branch.into()))
}

async fn create(
    State(app): State<App>,
    ProjectCx { forge, caller, project }: ProjectCx,
    Params(params): Params<CreateBranch>,
) -> Reply<WithStatus<BranchJson>> {
    let branch = branches::create(&forge, caller, project, params.map(|params| params.0)).await?;
    Ok(WithStatus(app.dialect().branch_created_status(), branch.into()))
}

async fn delete(
    State(app): State<App>,
    ProjectCx { forge, caller, project }: ProjectCx,
    BranchInPath(name): BranchInPath,
) -> Reply<OkJson<RemovedBranchJson>> {
    let removed = branches::delete(&forge, caller, project, name.clone()).await;
    removed.map_err(|error| match error {
        kept @ Error::Protected(_) => ApiError::OverrideStatus(app.dialect().undeletable_branch_status(), kept),
        other => other.into(),
    })?;
    Ok(OkJson(RemovedBranchJson { branch_name: name }))
}

async fn protect(
    ProjectCx { forge, caller, project }: ProjectCx,
    BranchInPath(name): BranchInPath,
    Params(params): Params<ProtectBranch>,
) -> Reply<OkJson<BranchJson>> {
    let branch = branches::protect(&forge, caller, project, name, params.map(|params| params.0)).await?;
    Ok(OkJson(branch.into()))
}

async fn unprotect(
    ProjectCx { forge, caller, project }: ProjectCx,
    BranchInPath(name): BranchInPath,
) -> Reply<OkJson<BranchJson>> {
    let branch = branches::unprotect(&forge, caller, project, name).await?;
    Ok(OkJson(branch.into()))
}

/// Responds with the bare number, as GitLab does.
async fn delete_merged(State(app): State<App>, ProjectCx { forge, caller, project }: ProjectCx) -> Reply<OkJson<u16>> {
    let allowed = branches::delete_merged(&forge, caller, project).await?;
    if !allowed && app.dialect().refuses_to_delete_merged_branches() {
        return Err(Error::Forbidden(None).into());
    }
    Ok(OkJson(200))
}

struct CreateBranch(NewBranch);

impl FromParams for CreateBranch {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let name = from.required_text("branch_name", "The name of the branch");
        let from = from.required_text("ref", "The branch, tag or commit to start from");
        Self(NewBranch { name, from })
    }
}

struct ProtectBranch(ProtectionOptions);

impl FromParams for ProtectBranch {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let developers_can_push =
            from.flag("developers_can_push", "Whether developers may push to the branch; initially false");
        let developers_can_merge =
            from.flag("developers_can_merge", "Whether developers may merge into the branch; initially false");
        Self(ProtectionOptions { developers_can_push, developers_can_merge })
    }
}

/// A branch.
#[derive(Serialize, JsonSchema)]
struct BranchJson {
    name: String,
    commit: TipJson,
    protected: bool,
    developers_can_push: bool,
    developers_can_merge: bool,
}

impl From<Branch> for BranchJson {
    fn from(branch: Branch) -> Self {
        let Branch { name, commit, protected, developers_can_push, developers_can_merge } = branch;
        Self { name, commit: commit.into(), protected, developers_can_push, developers_can_merge }
    }
}

/// A deleted branch.
#[derive(Serialize, JsonSchema)]
struct RemovedBranchJson {
    branch_name: String,
}
