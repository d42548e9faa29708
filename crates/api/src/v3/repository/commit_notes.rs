//! Comments on commits.

use forge::commit_notes::{self, CommitNoteInput};
use model::{CommitNote, commit_notes::CommitLine};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    context::ProjectCx,
    extract::RevisionInPath,
    openapi::Tag,
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, Reply, TimestampJson},
    routes::Routes,
    site::Site,
    v3::users::UserSummaryJson,
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Commits)
        .get("/projects/{id}/repository/commits/{sha}/comments", "List the comments on a commit", list)
        .post("/projects/{id}/repository/commits/{sha}/comments", "Comment on a commit", create)
}

async fn list(
    cx: ProjectCx,
    RevisionInPath(revision): RevisionInPath,
    paging: Paging,
    site: Site,
) -> Reply<Paged<CommitNoteJson>> {
    let reply = cx.read(move |tx, project| {
        let found = commit_notes::list(tx, project, &revision, &paging.page)?;
        Ok(paging.reply(found, |note| CommitNoteJson::new(note, &site)))
    });
    Ok(reply.await?)
}

async fn create(
    ProjectCx { forge, caller, project }: ProjectCx,
    RevisionInPath(revision): RevisionInPath,
    Params(params): Params<CreateCommitNote>,
    site: Site,
) -> Reply<Created<CommitNoteJson>> {
    let note = commit_notes::create(&forge, caller, project, revision, params.map(|params| params.0)).await?;
    Ok(Created(CommitNoteJson::new(note, &site)))
}

const KINDS: [(&str, bool); 2] = [("new", false), ("old", true)];

struct CreateCommitNote(CommitNoteInput);

impl FromParams for CreateCommitNote {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let body = from.required_text("note", "The text of the comment");
        let path = from.text("path", "The path of the commented file").filter(|path| !path.is_empty());
        let number = from.integer("line", "The number of the commented line; ignored without path");
        let old = from.choice(
            "line_type",
            &KINDS,
            "Whether the line number refers to the new or the old version of the file; default: new",
        );
        let line = |(path, number)| CommitLine { path, number, old: old.unwrap_or(false) };
        Self(CommitNoteInput { body, line: path.zip(number).map(line) })
    }
}

/// A comment on a commit. `path`, `line` and `line_type` are null unless it is on a line.
#[derive(Serialize, JsonSchema)]
struct CommitNoteJson {
    note: String,
    path: Option<String>,
    line: Option<i64>,
    #[schemars(with = "Option<LineTypeJson>")]
    line_type: Option<&'static str>,
    author: Option<UserSummaryJson>,
    created_at: TimestampJson,
}

/// Whether a line number refers to the new or the old version of the file.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "describes the values in the OpenAPI document")]
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
            created_at: TimestampJson(note.created_at),
        }
    }
}
