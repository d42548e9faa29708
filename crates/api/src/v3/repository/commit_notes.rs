//! What people say about commits.

use axum::extract::State;
use forge::{
    Forge,
    commit_notes::{self, CommitNoteText},
};
use model::{CommitNote, commit_notes::CommitLine};
use schemars::JsonSchema;
use serde::Serialize;

use crate::v3::users::UserSummaryJson;
use crate::{
    extract::{Credentials, InProject, Revision},
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, Reply, Stamp},
    routes::Routes,
    site::Site,
};

pub(crate) fn routes() -> Routes {
    Routes::new().get("/projects/{id}/repository/commits/{sha}/comments", "Lists the comments on a commit", list).post(
        "/projects/{id}/repository/commits/{sha}/comments",
        "Comments on a commit",
        create,
    )
}

async fn list(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Revision(revision): Revision,
    paging: Paging,
    site: Site,
) -> Reply<Paged<CommitNoteJson>> {
    let page = paging.page.clone();
    let found = forge.read(caller, move |tx| commit_notes::list(tx, &project, &revision, &page)).await?;
    Ok(paging.answer(found.map(|note| CommitNoteJson::new(note, &site))))
}

async fn create(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Revision(revision): Revision,
    Params(given): Params<CreateCommitNote>,
    site: Site,
) -> Reply<Created<CommitNoteJson>> {
    let note = commit_notes::create(&forge, caller, project, revision, given.map(|given| given.0)).await?;
    Ok(Created(CommitNoteJson::new(note, &site)))
}

const KINDS: [(&str, bool); 2] = [("new", false), ("old", true)];

struct CreateCommitNote(CommitNoteText);

impl FromParams for CreateCommitNote {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let body = from.required_text("note", "What the comment says");
        let path = from.text("path", "The file that it is about").filter(|path| !path.is_empty());
        let number = from.integer("line", "The line in that file; without a path it does not count");
        let old = from.choice("line_type", &KINDS, "Whether the line is counted in the file as it is, or as it was");
        let line = |(path, number)| CommitLine { path, number, old: old.unwrap_or(false) };
        Self(CommitNoteText { body, line: path.zip(number).map(line) })
    }
}

/// A comment on a commit. Where it is not about a line, the three that say which are null.
#[derive(Serialize, JsonSchema)]
struct CommitNoteJson {
    note: String,
    path: Option<String>,
    line: Option<i64>,
    #[schemars(with = "Option<LineTypeJson>")]
    line_type: Option<&'static str>,
    author: Option<UserSummaryJson>,
    created_at: Stamp,
}

/// Where a line is counted: in the file as it is, or as it was.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "describes the words for the document")]
enum LineTypeJson {
    New,
    Old,
}

impl CommitNoteJson {
    fn new(note: CommitNote, site: &Site) -> Self {
        let (number, old) = note.line.as_ref().map(|line| (line.number, line.old)).unzip();
        Self {
            note: note.body,
            path: note.line.map(|line| line.path),
            line: number,
            line_type: old.map(|old| if old { "old" } else { "new" }),
            author: note.author.map(|author| UserSummaryJson::new(author, site)),
            created_at: Stamp(note.created_at),
        }
    }
}
