//! The payload of comments.

use model::{
    commit_notes::CommitLine,
    webhook_events::{NoteEvent, NoteTarget},
};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use serde::Serialize;

use super::{
    JsonPayloadRenderer,
    issue::{self, IssueJson},
    json::{self, CommitJson, ProjectJson, ProjectLinks, RepositoryJson, UserJson},
};

#[derive(Serialize)]
struct NoteEventJson<'a> {
    object_kind: &'static str,
    user: UserJson<'a>,
    project_id: i64,
    project: ProjectJson<'a>,
    repository: RepositoryJson<'a>,
    object_attributes: NoteJson<'a>,
    #[serde(flatten)]
    target: TargetJson<'a>,
}

/// Fields that are always null are kept for receivers that expect them.
#[derive(Serialize)]
struct NoteJson<'a> {
    id: i64,
    note: &'a str,
    noteable_type: &'static str,
    author_id: i64,
    created_at: String,
    updated_at: String,
    project_id: i64,
    attachment: Option<&'a str>,
    line_code: Option<String>,
    commit_id: Option<String>,
    noteable_id: Option<i64>,
    system: bool,
    st_diff: Option<&'a str>,
    updated_by_id: Option<i64>,
    #[serde(rename = "type")]
    kind: Option<&'static str>,
    position: Option<&'a str>,
    original_position: Option<&'a str>,
    resolved_at: Option<String>,
    resolved_by_id: Option<i64>,
    discussion_id: Option<&'a str>,
    original_discussion_id: Option<&'a str>,
    url: String,
}

/// The target, under a key that is named after its kind.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum TargetJson<'a> {
    Issue(IssueJson<'a>),
    Commit(CommitJson<'a>),
}

pub(super) fn to_json(event: &NoteEvent<'_>, renderer: &JsonPayloadRenderer) -> String {
    let NoteEvent { project, user, on } = *event;
    let links = ProjectLinks::new(project, renderer);
    let (id, body, created_at, updated_at, line) = match on {
        NoteTarget::Issue { note, .. } => (note.id.get(), &note.body, note.created_at, note.updated_at, None),
        // Comments on commits cannot be changed.
        NoteTarget::Commit { note, .. } => {
            (note.id.get(), &note.body, note.created_at, note.created_at, note.line.as_ref())
        }
    };
    let (noteable_type, noteable_id, commit_id, page) = match on {
        NoteTarget::Issue { issue, .. } => ("Issue", Some(issue.id.get()), None, issue::url(&links, issue)),
        NoteTarget::Commit { commit, .. } => ("Commit", None, Some(commit.id.to_string()), links.commit_url(commit.id)),
    };
    let target = match on {
        NoteTarget::Issue { issue, updated_by, .. } => TargetJson::Issue(IssueJson::new(issue, updated_by, renderer)),
        NoteTarget::Commit { commit, .. } => TargetJson::Commit(CommitJson::new(commit, &links)),
    };
    json::serialize(&NoteEventJson {
        object_kind: "note",
        user: UserJson::new(user, renderer),
        project_id: project.id.get(),
        project: links.project(),
        repository: links.repository(),
        object_attributes: NoteJson {
            id,
            note: body,
            noteable_type,
            author_id: user.id.get(),
            created_at: renderer.format_time(created_at),
            updated_at: renderer.format_time(updated_at),
            project_id: project.id.get(),
            attachment: None,
            line_code: line.map(line_code),
            commit_id,
            noteable_id,
            system: false,
            st_diff: None,
            updated_by_id: None,
            kind: line.map(|_| "LegacyDiffNote"),
            position: None,
            original_position: None,
            resolved_at: None,
            resolved_by_id: None,
            discussion_id: None,
            original_discussion_id: None,
            url: format!("{page}#note_{id}"),
        },
        target,
    })
}

/// Returns the code of a line in a diff: the SHA-1 of the path, the old and the new line number. A comment refers to
/// one of the two lines; the other one is 0.
fn line_code(line: &CommitLine) -> String {
    let code = model::text::hex(digest(&SHA1_FOR_LEGACY_USE_ONLY, line.path.as_bytes()).as_ref());
    let (before, after) = if line.old { (line.number, 0) } else { (0, line.number) };
    format!("{code}_{before}_{after}")
}
