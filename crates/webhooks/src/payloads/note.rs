//! Comments.

use std::fmt::Write as _;

use model::{
    Commit, Issue, Project, Time,
    commit_notes::CommitLine,
    users::UserSummary,
    webhook_events::{Commented, NoteHappening},
};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use serde::Serialize;

use super::{
    Clerk,
    issue::{self, IssueJson},
    merge_request::{MergeRequest, MergeRequestJson},
    shared::{self, CommitJson, Place, ProjectJson, RepositoryJson, UserJson},
};

/// A comment that somebody wrote.
#[derive(Clone, Copy)]
pub struct NotePayload<'a> {
    /// Where.
    pub project: &'a Project,
    /// Who wrote it.
    pub user: &'a UserSummary,
    /// Number of the comment.
    pub id: i64,
    /// What it says.
    pub body: &'a str,
    /// When it was written.
    pub created_at: Time,
    /// When it was last changed.
    pub updated_at: Time,
    /// The line that it is about, if it is about one.
    pub line: Option<&'a CommitLine>,
    /// What it is about.
    pub on: NoteTarget<'a>,
}

/// What a comment is about.
#[derive(Clone, Copy)]
pub enum NoteTarget<'a> {
    /// An issue.
    Issue {
        /// The issue as it is now.
        issue: &'a Issue,
        /// Who changed it last, if anybody has.
        updated_by: Option<i64>,
    },
    /// A commit.
    Commit(&'a Commit),
    /// A merge request of the project.
    MergeRequest(&'a MergeRequest<'a>),
    /// A snippet.
    Snippet(&'a Snippet<'a>),
}

/// A snippet of a project.
#[derive(Clone, Copy)]
pub struct Snippet<'a> {
    /// Number of the snippet.
    pub id: i64,
    /// What it is called.
    pub title: &'a str,
    /// What is in it.
    pub content: &'a str,
    /// Who wrote it; `None` if they are gone.
    pub author_id: Option<i64>,
    /// When it was written.
    pub created_at: Time,
    /// When it was last changed.
    pub updated_at: Time,
    /// The name of the file, if it has one.
    pub file_name: Option<&'a str>,
    /// How far it can be seen: 0, 10 or 20.
    pub visibility_level: i32,
}

impl<'a> From<&NoteHappening<'a>> for NotePayload<'a> {
    fn from(happening: &NoteHappening<'a>) -> Self {
        let NoteHappening { project, user, on } = *happening;
        match on {
            Commented::Issue { note, issue, updated_by } => Self {
                project,
                user,
                id: note.id,
                body: &note.body,
                created_at: note.created_at,
                updated_at: note.updated_at,
                line: None,
                on: NoteTarget::Issue { issue, updated_by },
            },
            Commented::Commit { note, commit } => Self {
                project,
                user,
                id: note.id,
                body: &note.body,
                created_at: note.created_at,
                // Nobody can change it.
                updated_at: note.created_at,
                line: note.line.as_ref(),
                on: NoteTarget::Commit(commit),
            },
        }
    }
}

#[derive(Serialize)]
struct NoteHappeningJson<'a> {
    object_kind: &'static str,
    user: UserJson<'a>,
    project_id: i64,
    project: ProjectJson<'a>,
    repository: RepositoryJson<'a>,
    object_attributes: NoteJson<'a>,
    #[serde(flatten)]
    on: TargetJson<'a>,
}

/// Some fields are there for receivers that miss them otherwise, and never say anything here.
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

/// The further key is named after what it shows.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum TargetJson<'a> {
    Issue(IssueJson<'a>),
    Commit(CommitJson<'a>),
    MergeRequest(Box<MergeRequestJson<'a>>),
    Snippet(SnippetJson<'a>),
}

#[derive(Serialize)]
struct SnippetJson<'a> {
    id: i64,
    title: &'a str,
    content: &'a str,
    author_id: Option<i64>,
    project_id: i64,
    created_at: String,
    updated_at: String,
    file_name: Option<&'a str>,
    #[serde(rename = "type")]
    kind: &'static str,
    visibility_level: i32,
}

impl NotePayload<'_> {
    /// The text of the payload.
    pub fn to_json(&self, clerk: &Clerk) -> String {
        let place = Place::new(self.project, clerk);
        let source = match self.on {
            NoteTarget::MergeRequest(merge_request) => merge_request.source.map(|project| Place::new(project, clerk)),
            _ => None,
        };
        let (noteable_type, id, page) = match self.on {
            NoteTarget::Issue { issue, .. } => ("Issue", Some(issue.id), issue::url(&place, issue)),
            NoteTarget::Commit(commit) => ("Commit", None, place.commit_url(commit.id)),
            NoteTarget::MergeRequest(asked) => ("MergeRequest", Some(asked.id), asked.url(&place)),
            NoteTarget::Snippet(snippet) => {
                ("Snippet", Some(snippet.id), format!("{}/snippets/{}", place.web_url, snippet.id))
            }
        };
        let on = match self.on {
            NoteTarget::Issue { issue, updated_by } => TargetJson::Issue(IssueJson::new(issue, updated_by, clerk)),
            NoteTarget::Commit(commit) => TargetJson::Commit(CommitJson::new(commit, &place)),
            NoteTarget::MergeRequest(asked) => {
                TargetJson::MergeRequest(Box::new(MergeRequestJson::new(asked, &place, source.as_ref(), clerk)))
            }
            NoteTarget::Snippet(snippet) => TargetJson::Snippet(self.snippet(snippet, clerk)),
        };
        let commit_id = match self.on {
            NoteTarget::Commit(commit) => Some(commit.id.to_string()),
            _ => None,
        };
        shared::text(&NoteHappeningJson {
            object_kind: "note",
            user: UserJson::new(self.user, clerk),
            project_id: self.project.id,
            project: place.project(),
            repository: place.repository(),
            object_attributes: NoteJson {
                id: self.id,
                note: self.body,
                noteable_type,
                author_id: self.user.id,
                created_at: clerk.moment(self.created_at),
                updated_at: clerk.moment(self.updated_at),
                project_id: self.project.id,
                attachment: None,
                line_code: self.line.map(line_code),
                commit_id,
                noteable_id: id,
                system: false,
                st_diff: None,
                updated_by_id: None,
                kind: self.line.map(|_| "LegacyDiffNote"),
                position: None,
                original_position: None,
                resolved_at: None,
                resolved_by_id: None,
                discussion_id: None,
                original_discussion_id: None,
                url: format!("{page}#note_{}", self.id),
            },
            on,
        })
    }

    fn snippet<'b>(&self, snippet: &'b Snippet<'_>, clerk: &Clerk) -> SnippetJson<'b> {
        SnippetJson {
            id: snippet.id,
            title: snippet.title,
            content: snippet.content,
            author_id: snippet.author_id,
            project_id: self.project.id,
            created_at: clerk.moment(snippet.created_at),
            updated_at: clerk.moment(snippet.updated_at),
            file_name: snippet.file_name,
            kind: "ProjectSnippet",
            visibility_level: snippet.visibility_level,
        }
    }
}

/// What stands for a line in a difference: the SHA-1 of the path, the line before, and the line after. Whoever comments
/// names one of the two lines; 0 stands for the other one.
fn line_code(line: &CommitLine) -> String {
    let mut code = String::new();
    for byte in digest(&SHA1_FOR_LEGACY_USE_ONLY, line.path.as_bytes()).as_ref() {
        let _ = write!(code, "{byte:02x}");
    }
    let (before, after) = if line.old { (line.number, 0) } else { (0, line.number) };
    format!("{code}_{before}_{after}")
}
