//! Notes on issues.

use forge::notes::{self, NoteText};
use model::{CommitNote, Note};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    context::ProjectCx,
    extract::{IssueIdInPath, NoteIdInPath},
    openapi::Tag,
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, OkJson, Reply, TimestampJson},
    routes::Routes,
    site::Site,
    v3::users::UserSummaryJson,
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Notes)
        .get("/projects/{id}/issues/{issue_id}/notes", "List the notes on an issue", list)
        .post("/projects/{id}/issues/{issue_id}/notes", "Create a note on an issue", create)
        .get("/projects/{id}/issues/{issue_id}/notes/{note_id}", "Get a note on an issue", get)
        .put("/projects/{id}/issues/{issue_id}/notes/{note_id}", "Update a note on an issue", update)
        .delete("/projects/{id}/issues/{issue_id}/notes/{note_id}", "Delete a note on an issue", delete)
}

async fn list(
    cx: ProjectCx,
    IssueIdInPath(issue): IssueIdInPath,
    paging: Paging,
    site: Site,
) -> Reply<Paged<NoteJson>> {
    let reply = cx.read_list(move |tx, project| {
        let found = notes::list(tx, project, &issue, &paging.page)?;
        Ok(paging.reply(found, |note| NoteJson::new(note, &site)))
    });
    Ok(reply.await?)
}

async fn get(
    cx: ProjectCx,
    IssueIdInPath(issue): IssueIdInPath,
    NoteIdInPath(id): NoteIdInPath,
    site: Site,
) -> Reply<OkJson<NoteJson>> {
    let note = cx.read(move |tx, project| notes::get(tx, project, &issue, &id)).await?;
    Ok(OkJson(NoteJson::new(note, &site)))
}

async fn create(
    cx: ProjectCx,
    IssueIdInPath(issue): IssueIdInPath,
    Params(params): Params<CreateNote>,
    site: Site,
) -> Reply<Created<NoteJson>> {
    let text = params.map(|params| params.0);
    let note = cx.write(move |tx, project| notes::create(tx, project, &issue, &text)).await?;
    Ok(Created(NoteJson::new(note, &site)))
}

async fn update(
    cx: ProjectCx,
    IssueIdInPath(issue): IssueIdInPath,
    NoteIdInPath(id): NoteIdInPath,
    Params(params): Params<UpdateNote>,
    site: Site,
) -> Reply<OkJson<NoteJson>> {
    let body = params.map(|params| params.0);
    let note = cx.write(move |tx, project| notes::update(tx, project, &issue, &id, &body)).await?;
    Ok(OkJson(NoteJson::new(note, &site)))
}

async fn delete(
    cx: ProjectCx,
    IssueIdInPath(issue): IssueIdInPath,
    NoteIdInPath(id): NoteIdInPath,
    site: Site,
) -> Reply<OkJson<NoteJson>> {
    let note = cx.write(move |tx, project| notes::delete(tx, project, &issue, &id)).await?;
    Ok(OkJson(NoteJson::new(note, &site)))
}

struct CreateNote(NoteText);

impl FromParams for CreateNote {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let body = from.required_text("body", "The text of the note");
        let created_at = from
            .timestamp("created_at", "The time of creation, in ISO 8601; ignored unless set by an owner; default: now");
        Self(NoteText { body, created_at })
    }
}

struct UpdateNote(String);

impl FromParams for UpdateNote {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.required_text("body", "The text of the note"))
    }
}

/// A note. The vote flags are never set; clients use both spellings of them.
#[derive(Serialize, JsonSchema)]
pub(crate) struct NoteJson {
    id: i64,
    body: String,
    attachment: Option<String>,
    author: Option<UserSummaryJson>,
    created_at: TimestampJson,
    updated_at: TimestampJson,
    system: bool,
    noteable_id: Option<i64>,
    noteable_type: &'static str,
    upvote: bool,
    downvote: bool,
    #[serde(rename = "upvote?")]
    is_upvote: bool,
    #[serde(rename = "downvote?")]
    is_downvote: bool,
}

impl NoteJson {
    pub(crate) fn new(note: Note, site: &Site) -> Self {
        Self {
            id: note.id.get(),
            body: note.body,
            attachment: None,
            author: note.author.map(|author| UserSummaryJson::new(author, site)),
            created_at: TimestampJson(note.created_at),
            updated_at: TimestampJson(note.updated_at),
            system: note.system,
            noteable_id: Some(note.issue.get()),
            noteable_type: "Issue",
            upvote: false,
            downvote: false,
            is_upvote: false,
            is_downvote: false,
        }
    }

    /// Converts a note on a commit; commits have no numeric id.
    pub(crate) fn on_commit(note: CommitNote, site: &Site) -> Self {
        Self {
            id: note.id.get(),
            body: note.body,
            attachment: None,
            author: note.author.map(|author| UserSummaryJson::new(author, site)),
            created_at: TimestampJson(note.created_at),
            updated_at: TimestampJson(note.created_at),
            system: false,
            noteable_id: None,
            noteable_type: "Commit",
            upvote: false,
            downvote: false,
            is_upvote: false,
            is_downvote: false,
        }
    }
}
