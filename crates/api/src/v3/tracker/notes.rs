//! Notes on issues.

use axum::extract::State;
use forge::{
    Forge,
    notes::{self, NoteText},
};
use model::{CommitNote, Note};
use schemars::JsonSchema;
use serde::Serialize;

use crate::v3::users::UserSummaryJson;
use crate::{
    extract::{Credentials, InProject, IssueNumber, NoteNumber},
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, Done, Reply, Stamp},
    routes::Routes,
    site::Site,
};

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/projects/{id}/issues/{issue_id}/notes", "Lists the notes on an issue", list)
        .post("/projects/{id}/issues/{issue_id}/notes", "Writes a note on an issue", create)
        .get("/projects/{id}/issues/{issue_id}/notes/{note_id}", "Shows a note on an issue", get)
        .put("/projects/{id}/issues/{issue_id}/notes/{note_id}", "Changes a note on an issue", update)
        .delete("/projects/{id}/issues/{issue_id}/notes/{note_id}", "Removes a note from an issue", delete)
}

async fn list(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    IssueNumber(issue): IssueNumber,
    paging: Paging,
    site: Site,
) -> Reply<Paged<NoteJson>> {
    let page = paging.page.clone();
    let found = forge.read(caller, move |tx| notes::list(tx, &project, &issue, &page)).await?;
    Ok(paging.answer(found.map(|note| NoteJson::new(note, &site))))
}

async fn get(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    IssueNumber(issue): IssueNumber,
    NoteNumber(id): NoteNumber,
    site: Site,
) -> Reply<Done<NoteJson>> {
    let note = forge.read(caller, move |tx| notes::get(tx, &project, &issue, &id)).await?;
    Ok(Done(NoteJson::new(note, &site)))
}

async fn create(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    IssueNumber(issue): IssueNumber,
    Params(given): Params<CreateNote>,
    site: Site,
) -> Reply<Created<NoteJson>> {
    let text = given.map(|given| given.0);
    let note = forge.write(caller, move |tx| notes::create(tx, &project, &issue, &text)).await?;
    Ok(Created(NoteJson::new(note, &site)))
}

async fn update(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    IssueNumber(issue): IssueNumber,
    NoteNumber(id): NoteNumber,
    Params(given): Params<UpdateNote>,
    site: Site,
) -> Reply<Done<NoteJson>> {
    let body = given.map(|given| given.0);
    let note = forge.write(caller, move |tx| notes::update(tx, &project, &issue, &id, &body)).await?;
    Ok(Done(NoteJson::new(note, &site)))
}

async fn delete(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    IssueNumber(issue): IssueNumber,
    NoteNumber(id): NoteNumber,
    site: Site,
) -> Reply<Done<NoteJson>> {
    let note = forge.write(caller, move |tx| notes::delete(tx, &project, &issue, &id)).await?;
    Ok(Done(NoteJson::new(note, &site)))
}

struct CreateNote(NoteText);

impl FromParams for CreateNote {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let body = from.required_text("body", "What the note says");
        let created_at = from.moment("created_at", "When it was written, in ISO 8601; only owners can say so");
        Self(NoteText { body, created_at })
    }
}

struct UpdateNote(String);

impl FromParams for UpdateNote {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.required_text("body", "What the note says"))
    }
}

/// A note as v3 clients know it. The two flags are never set; both spellings of them are in use.
#[derive(Serialize, JsonSchema)]
pub(crate) struct NoteJson {
    id: i64,
    body: String,
    attachment: Option<String>,
    author: Option<UserSummaryJson>,
    created_at: Stamp,
    updated_at: Stamp,
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
            id: note.id,
            body: note.body,
            attachment: None,
            author: note.author.map(|author| UserSummaryJson::new(author, site)),
            created_at: Stamp(note.created_at),
            updated_at: Stamp(note.updated_at),
            system: note.system,
            noteable_id: Some(note.issue),
            noteable_type: "Issue",
            upvote: false,
            downvote: false,
            is_upvote: false,
            is_downvote: false,
        }
    }

    /// A comment on a commit; commits have no numbers.
    pub(crate) fn on_commit(note: CommitNote, site: &Site) -> Self {
        Self {
            id: note.id,
            body: note.body,
            attachment: None,
            author: note.author.map(|author| UserSummaryJson::new(author, site)),
            created_at: Stamp(note.created_at),
            updated_at: Stamp(note.created_at),
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
