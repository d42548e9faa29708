//! What happened to merge requests.

use std::collections::BTreeMap;

use model::{Commit, Oid, Project, Time, users::UserSummary};
use serde::Serialize;

use super::{
    Clerk,
    shared::{self, CommitJson, Place, ProjectJson, RepositoryJson, UserJson},
};

/// Something that happened to a merge request; told to hooks of the project that it shall be merged into.
#[derive(Clone, Copy)]
pub struct MergeRequestPayload<'a> {
    /// The project that it shall be merged into.
    pub target: &'a Project,
    /// Who did it.
    pub user: &'a UserSummary,
    /// The merge request as it is now.
    pub merge_request: &'a MergeRequest<'a>,
    /// What was done: `open`, `update`, `close`, `reopen` or `merge`.
    pub action: &'a str,
    /// Where the source branch was before a push changed it. Only given for a push: receivers tell it from an edit by
    /// this.
    pub oldrev: Option<Oid>,
}

/// A merge request.
#[derive(Clone, Copy)]
pub struct MergeRequest<'a> {
    /// Number of the merge request.
    pub id: i64,
    /// The same, counted in the project that it shall be merged into.
    pub iid: i64,
    /// The branch that it shall be merged into.
    pub target_branch: &'a str,
    /// The branch that it comes from.
    pub source_branch: &'a str,
    /// The project that it comes from, even if that is gone.
    pub source_project_id: i64,
    /// The project that it comes from; `None` if that is gone.
    pub source: Option<&'a Project>,
    /// The newest commit of the branch that it comes from; `None` if that is gone.
    pub last_commit: Option<&'a Commit>,
    /// Who made it; `None` if they are gone.
    pub author_id: Option<i64>,
    /// Who works on it.
    pub assignee: Option<&'a UserSummary>,
    /// What it is about, in short.
    pub title: &'a str,
    /// What it is about, at length.
    pub description: Option<&'a str>,
    /// The milestone that it belongs to.
    pub milestone_id: Option<i64>,
    /// How it stands: `opened`, `reopened`, `closed`, `merged` or `locked`.
    pub state: &'a str,
    /// Whether it can be merged: `unchecked`, `can_be_merged` or `cannot_be_merged`.
    pub merge_status: &'a str,
    /// Whether it says of itself that it is not done.
    pub work_in_progress: bool,
    /// Whether it is merged once its pipeline is through.
    pub merge_when_build_succeeds: bool,
    /// Who said so, or who merged it.
    pub merge_user_id: Option<i64>,
    /// With which settings it is merged.
    pub merge_params: &'a [(&'a str, &'a str)],
    /// The commit that merged it.
    pub merge_commit_sha: Option<Oid>,
    /// The commit that is about to merge it.
    pub in_progress_merge_commit_sha: Option<Oid>,
    /// Why it could not be merged.
    pub merge_error: Option<&'a str>,
    /// Since when it is being merged.
    pub locked_at: Option<Time>,
    /// Who changed it last, if anybody has.
    pub updated_by_id: Option<i64>,
    /// When it was made.
    pub created_at: Time,
    /// When it was last changed.
    pub updated_at: Time,
}

impl MergeRequest<'_> {
    /// Its page.
    pub(super) fn url(&self, target: &Place<'_>) -> String {
        format!("{}/merge_requests/{}", target.web_url, self.iid)
    }
}

#[derive(Serialize)]
struct MergeRequestHappeningJson<'a> {
    object_kind: &'static str,
    user: UserJson<'a>,
    project: ProjectJson<'a>,
    repository: RepositoryJson<'a>,
    object_attributes: AttributesJson<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    assignee: Option<UserJson<'a>>,
}

#[derive(Serialize)]
struct AttributesJson<'a> {
    #[serde(flatten)]
    merge_request: MergeRequestJson<'a>,
    url: String,
    action: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldrev: Option<String>,
}

/// A merge request, as a payload about it and one about a comment on it show it.
#[derive(Serialize)]
pub(super) struct MergeRequestJson<'a> {
    id: i64,
    target_branch: &'a str,
    source_branch: &'a str,
    source_project_id: i64,
    author_id: Option<i64>,
    assignee_id: Option<i64>,
    title: &'a str,
    created_at: String,
    updated_at: String,
    milestone_id: Option<i64>,
    state: &'a str,
    merge_status: &'a str,
    target_project_id: i64,
    iid: i64,
    description: Option<&'a str>,
    position: i32,
    locked_at: Option<String>,
    updated_by_id: Option<i64>,
    merge_error: Option<&'a str>,
    merge_params: BTreeMap<&'a str, &'a str>,
    merge_when_build_succeeds: bool,
    merge_user_id: Option<i64>,
    merge_commit_sha: Option<String>,
    deleted_at: Option<String>,
    in_progress_merge_commit_sha: Option<String>,
    lock_version: Option<i64>,
    source: Option<ProjectJson<'a>>,
    target: ProjectJson<'a>,
    last_commit: Option<CommitJson<'a>>,
    work_in_progress: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    assignee: Option<UserJson<'a>>,
}

impl<'a> MergeRequestJson<'a> {
    /// The source is where the merge request says that it comes from.
    pub(super) fn new(
        asked: &'a MergeRequest<'_>,
        target: &'a Place<'_>,
        source: Option<&'a Place<'_>>,
        clerk: &Clerk,
    ) -> Self {
        let digits = |oid: Option<Oid>| oid.map(|oid| oid.to_string());
        Self {
            id: asked.id,
            target_branch: asked.target_branch,
            source_branch: asked.source_branch,
            source_project_id: asked.source_project_id,
            author_id: asked.author_id,
            assignee_id: asked.assignee.map(|user| user.id),
            title: asked.title,
            created_at: clerk.moment(asked.created_at),
            updated_at: clerk.moment(asked.updated_at),
            milestone_id: asked.milestone_id,
            state: asked.state,
            merge_status: asked.merge_status,
            target_project_id: target.project.id,
            iid: asked.iid,
            description: asked.description,
            position: 0,
            locked_at: asked.locked_at.map(|time| clerk.moment(time)),
            updated_by_id: asked.updated_by_id,
            merge_error: asked.merge_error,
            merge_params: asked.merge_params.iter().copied().collect(),
            merge_when_build_succeeds: asked.merge_when_build_succeeds,
            merge_user_id: asked.merge_user_id,
            merge_commit_sha: digits(asked.merge_commit_sha),
            deleted_at: None,
            in_progress_merge_commit_sha: digits(asked.in_progress_merge_commit_sha),
            lock_version: None,
            source: source.map(Place::project),
            target: target.project(),
            // The commit lies in the source as long as that is there.
            last_commit: asked.last_commit.map(|commit| CommitJson::new(commit, source.unwrap_or(target))),
            work_in_progress: asked.work_in_progress,
            assignee: asked.assignee.map(|user| UserJson::new(user, clerk)),
        }
    }
}

impl MergeRequestPayload<'_> {
    /// The text of the payload.
    pub fn to_json(&self, clerk: &Clerk) -> String {
        let place = Place::new(self.target, clerk);
        let source = self.merge_request.source.map(|project| Place::new(project, clerk));
        shared::text(&MergeRequestHappeningJson {
            object_kind: "merge_request",
            user: UserJson::new(self.user, clerk),
            project: place.project(),
            repository: place.repository(),
            object_attributes: AttributesJson {
                merge_request: MergeRequestJson::new(self.merge_request, &place, source.as_ref(), clerk),
                url: self.merge_request.url(&place),
                action: self.action,
                oldrev: self.oldrev.map(|oid| oid.to_string()),
            },
            assignee: self.merge_request.assignee.map(|user| UserJson::new(user, clerk)),
        })
    }
}
