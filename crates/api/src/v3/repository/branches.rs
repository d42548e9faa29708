//! Branches of a repository.

use axum::extract::State;
use forge::{
    Error, Forge,
    branches::{self, Branch, NewBranch, Protect},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::v3::commits::TipJson;
use crate::{
    App,
    error::ApiError,
    extract::{BranchName, Credentials, InProject},
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Done, Made, Reply},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/projects/{id}/repository/branches", "Lists the branches, by name", list)
        .post("/projects/{id}/repository/branches", "Makes a branch", create)
        .get("/projects/{id}/repository/branches/{branch}", "Shows a branch", get)
        .delete("/projects/{id}/repository/branches/{branch}", "Removes a branch", delete)
        .also(&[405])
        .put("/projects/{id}/repository/branches/{branch}/protect", "Protects a branch", protect)
        .put("/projects/{id}/repository/branches/{branch}/unprotect", "Takes the protection away", unprotect)
        .delete("/projects/{id}/repository/merged_branches", "Removes the branches that are merged", delete_merged)
}

async fn list(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    paging: Paging,
) -> Reply<Paged<BranchJson>> {
    let page = paging.of_short_list();
    let branches = forge.read(caller, move |tx| branches::list(tx, &project, &page)).await?;
    Ok(paging.answer(branches.map(BranchJson::from)))
}

async fn get(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    BranchName(name): BranchName,
) -> Reply<Done<BranchJson>> {
    let branch = forge.read(caller, move |tx| branches::get(tx, &project, &name)).await?;
    Ok(Done(branch.into()))
}

async fn create(
    State(app): State<App>,
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<CreateBranch>,
) -> Reply<Made<BranchJson>> {
    let branch = branches::create(&forge, caller, project, given.map(|given| given.0)).await?;
    Ok(Made(app.dialect().branch_made(), branch.into()))
}

async fn delete(
    State(app): State<App>,
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    BranchName(name): BranchName,
) -> Reply<Done<RemovedBranchJson>> {
    let removed = branches::delete(&forge, caller, project, name.clone()).await;
    removed.map_err(|error| match error {
        kept @ Error::Kept(_) => ApiError::Under(app.dialect().branch_kept(), kept),
        other => other.into(),
    })?;
    Ok(Done(RemovedBranchJson { branch_name: name }))
}

async fn protect(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    BranchName(name): BranchName,
    Params(given): Params<ProtectBranch>,
) -> Reply<Done<BranchJson>> {
    let branch = branches::protect(&forge, caller, project, name, given.map(|given| given.0)).await?;
    Ok(Done(branch.into()))
}

async fn unprotect(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    BranchName(name): BranchName,
) -> Reply<Done<BranchJson>> {
    let branch = branches::unprotect(&forge, caller, project, name).await?;
    Ok(Done(branch.into()))
}

/// Answers the bare number, as the original does.
async fn delete_merged(
    State(app): State<App>,
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
) -> Reply<Done<u16>> {
    let allowed = branches::delete_merged(&forge, caller, project).await?;
    if !allowed && app.dialect().refuses_to_delete_merged_branches() {
        return Err(Error::Forbidden(None).into());
    }
    Ok(Done(200))
}

struct CreateBranch(NewBranch);

impl FromParams for CreateBranch {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let name = from.required_text("branch_name", "What the branch is called");
        let from = from.required_text("ref", "The branch, tag or commit at which it begins");
        Self(NewBranch { name, from })
    }
}

struct ProtectBranch(Protect);

impl FromParams for ProtectBranch {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let developers_can_push = from.flag("developers_can_push", "Whether developers may push to it");
        let developers_can_merge = from.flag("developers_can_merge", "Whether developers may merge into it");
        Self(Protect { developers_can_push, developers_can_merge })
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

/// A branch that is gone.
#[derive(Serialize, JsonSchema)]
struct RemovedBranchJson {
    branch_name: String,
}
