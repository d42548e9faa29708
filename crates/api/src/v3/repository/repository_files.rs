//! Single files of a repository.

use axum::extract::State;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD, Engine as _};
use forge::{
    Forge,
    commits::{Author, Content},
    contents,
    repository_files::{self, FileChange, FileDetail, WantedFile, WrittenFile},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    extract::{Credentials, InProject},
    params::{FromParams, ParamReader, Params},
    reply::{Created, Done, Reply, Streamed},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/projects/{id}/repository/files", "Shows a file with what is known of it", get)
        .open()
        .post("/projects/{id}/repository/files", "Adds a file by a commit", create)
        .put("/projects/{id}/repository/files", "Changes a file by a commit", update)
        .delete("/projects/{id}/repository/files", "Removes a file by a commit", delete)
}

async fn get(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<ShowFile>,
) -> Reply<Streamed<FileJson>> {
    let wanted = given.map(|given| given.0);
    let found = forge.run_blocking(caller, move |tx| repository_files::get(tx, &project, &wanted)).await?;
    let mut json = FileJson::new(&found);
    match found.file.content {
        contents::Content::Here(bytes) => {
            json.content = BASE64_STANDARD.encode(bytes);
            Ok(Streamed::whole(&json))
        }
        contents::Content::Large(large) => {
            let content = contents::read_large(&forge, large).await?;
            Ok(Streamed::with_content(&json, "content", found.file.size, content))
        }
    }
}

async fn create(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<WriteFile>,
) -> Reply<Created<WrittenFileJson>> {
    let written = repository_files::create(&forge, caller, project, given.map(|given| given.0)).await?;
    Ok(Created(written.into()))
}

async fn update(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<WriteFile>,
) -> Reply<Done<WrittenFileJson>> {
    let written = repository_files::update(&forge, caller, project, given.map(|given| given.0)).await?;
    Ok(Done(written.into()))
}

async fn delete(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<RemoveFile>,
) -> Reply<Done<WrittenFileJson>> {
    let written = repository_files::delete(&forge, caller, project, given.map(|given| given.0)).await?;
    Ok(Done(written.into()))
}

struct ShowFile(WantedFile);

impl FromParams for ShowFile {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let path = from.required_text("file_path", "The path of the file from the root");
        let at = from.required_text("ref", "A branch, a tag or a commit");
        Self(WantedFile { path, at })
    }
}

struct WriteFile(FileChange);

impl FromParams for WriteFile {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let RemoveFile(change) = RemoveFile::read(from);
        Self(FileChange { content: read_content(from, true), ..change })
    }
}

struct RemoveFile(FileChange);

impl FromParams for RemoveFile {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let path = from.filled_text("file_path", "The path of the file from the root");
        let branch = from.required_text("branch_name", "The branch to which the commit is added");
        let message = from.filled_text("commit_message", "What the commit says");
        let author = read_author(from);
        Self(FileChange { path, branch, message, author, content: None })
    }
}

/// The content of a file, as text or in base 64.
pub(crate) fn read_content(from: &mut ParamReader<'_>, required: bool) -> Option<Content> {
    const ENCODINGS: [(&str, bool); 2] = [("text", false), ("base64", true)];
    let text = from.content("content", required, "What is in the file");
    let encoded = from.choice("encoding", &ENCODINGS, "How the content is written; without it, as text");
    let text = text?;
    if encoded != Some(true) {
        return Some(Content::Text(text));
    }
    // Some clients break it into lines or leave the signs at its end out.
    let digits: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let bytes = BASE64_STANDARD_NO_PAD.decode(digits.trim_end_matches('='));
    if bytes.is_err() {
        from.fault("content");
    }
    bytes.ok().map(Content::Bytes)
}

/// Who is said to have written a commit.
pub(crate) fn read_author(from: &mut ParamReader<'_>) -> Author {
    let email = from.text("author_email", "The address of whoever wrote it, if it is not the caller");
    let name = from.text("author_name", "The name of whoever wrote it, if it is not the caller");
    Author { name, email }
}

/// A file with what is known of it.
#[derive(Serialize, JsonSchema)]
struct FileJson {
    file_name: String,
    file_path: String,
    size: u64,
    encoding: &'static str,
    content: String,
    #[serde(rename = "ref")]
    at: String,
    blob_id: String,
    commit_id: String,
    last_commit_id: String,
}

impl FileJson {
    /// What is known of a file, without its content yet.
    fn new(file: &FileDetail) -> Self {
        Self {
            file_name: file.path.rsplit('/').next().unwrap_or_default().to_owned(),
            file_path: file.path.clone(),
            size: file.file.size,
            encoding: "base64",
            content: String::new(),
            at: file.at.clone(),
            blob_id: file.file.id.to_string(),
            commit_id: file.commit.to_string(),
            last_commit_id: file.last_commit.to_string(),
        }
    }
}

/// A file that was changed.
#[derive(Serialize, JsonSchema)]
struct WrittenFileJson {
    file_path: String,
    branch_name: String,
}

impl From<WrittenFile> for WrittenFileJson {
    fn from(WrittenFile { path, branch }: WrittenFile) -> Self {
        Self { file_path: path, branch_name: branch }
    }
}
