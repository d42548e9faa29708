//! Single files of a repository.

use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD, Engine as _};
use forge::{
    commits::{Author, UploadedContent},
    contents,
    repository_files::{self, FileChange, FileDetail, FileQuery, WrittenFile},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    context::ProjectCx,
    openapi::Tag,
    params::{FromParams, ParamReader, Params},
    reply::{Created, OkJson, Reply, StreamedJson},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::RepositoryFiles)
        .get("/projects/{id}/repository/files", "Get a file with its metadata", get)
        .allow_anonymous()
        .post("/projects/{id}/repository/files", "Create a file in a new commit", create)
        .put("/projects/{id}/repository/files", "Update a file in a new commit", update)
        .delete("/projects/{id}/repository/files", "Delete a file in a new commit", delete)
}

async fn get(cx: ProjectCx, Params(params): Params<GetFile>) -> Reply<StreamedJson<FileJson>> {
    let (forge, query) = (cx.forge.clone(), params.map(|params| params.0));
    let found = cx.run_blocking(move |cx, project| repository_files::get(cx, project, &query)).await?;
    let mut json = FileJson::new(&found);
    match found.file.content {
        contents::BlobContent::Inline(bytes) => {
            json.content = BASE64_STANDARD.encode(bytes);
            Ok(StreamedJson::new(&json))
        }
        contents::BlobContent::Large(large) => {
            let content = contents::read_large_blob(&forge, large).await?;
            Ok(StreamedJson::with_content(&json, "content", found.file.size, content))
        }
    }
}

async fn create(
    ProjectCx { forge, caller, project }: ProjectCx,
    Params(params): Params<WriteFile>,
) -> Reply<Created<WrittenFileJson>> {
    let written = repository_files::create(&forge, caller, project, params.map(|params| params.0)).await?;
    Ok(Created(written.into()))
}

async fn update(
    ProjectCx { forge, caller, project }: ProjectCx,
    Params(params): Params<WriteFile>,
) -> Reply<OkJson<WrittenFileJson>> {
    let written = repository_files::update(&forge, caller, project, params.map(|params| params.0)).await?;
    Ok(OkJson(written.into()))
}

async fn delete(
    ProjectCx { forge, caller, project }: ProjectCx,
    Params(params): Params<DeleteFile>,
) -> Reply<OkJson<WrittenFileJson>> {
    let written = repository_files::delete(&forge, caller, project, params.map(|params| params.0)).await?;
    Ok(OkJson(written.into()))
}

struct GetFile(FileQuery);

impl FromParams for GetFile {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let path = from.required_text("file_path", "The path of the file");
        let revision = from.required_text("ref", "The branch, tag or commit");
        Self(FileQuery { path, revision })
    }
}

struct WriteFile(FileChange);

impl FromParams for WriteFile {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let DeleteFile(change) = DeleteFile::read(from);
        Self(FileChange { content: read_content(from, true), ..change })
    }
}

struct DeleteFile(FileChange);

impl FromParams for DeleteFile {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let path = from.required_nonblank_text("file_path", "The path of the file");
        let branch = from.required_text("branch_name", "The branch to commit to");
        let message = from.required_nonblank_text("commit_message", "The commit message");
        let author = read_author(from);
        Self(FileChange { path, branch, message, author, content: None })
    }
}

/// Reads the content of a file, as text or base64.
pub(crate) fn read_content(from: &mut ParamReader<'_>, required: bool) -> Option<UploadedContent> {
    const ENCODINGS: [(&str, bool); 2] = [("text", false), ("base64", true)];
    let text = from.content("content", required, "The content of the file");
    let encoded = from.choice("encoding", &ENCODINGS, "The encoding of the content; default: text");
    let text = text?;
    if encoded != Some(true) {
        return Some(UploadedContent::Text(text));
    }
    // Some clients wrap lines or omit the padding.
    let digits: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let bytes = BASE64_STANDARD_NO_PAD.decode(digits.trim_end_matches('='));
    if bytes.is_err() {
        from.reject("content");
    }
    bytes.ok().map(UploadedContent::Bytes)
}

/// Reads the author of a commit.
pub(crate) fn read_author(from: &mut ParamReader<'_>) -> Author {
    let email = from.text("author_email", "The email address of the author; default: that of the current user");
    let name = from.text("author_name", "The name of the author; default: that of the current user");
    Author { name, email }
}

/// A file with its metadata.
#[derive(Serialize, JsonSchema)]
struct FileJson {
    file_name: String,
    file_path: String,
    size: u64,
    encoding: &'static str,
    content: String,
    #[serde(rename = "ref")]
    revision: String,
    blob_id: String,
    commit_id: String,
    last_commit_id: String,
}

impl FileJson {
    /// Creates the JSON of a file without its content.
    fn new(file: &FileDetail) -> Self {
        Self {
            file_name: file.path.rsplit('/').next().unwrap_or_default().to_owned(),
            file_path: file.path.clone(),
            size: file.file.size,
            encoding: "base64",
            content: String::new(),
            revision: file.revision.clone(),
            blob_id: file.file.id.to_string(),
            commit_id: file.commit.to_string(),
            last_commit_id: file.last_commit.to_string(),
        }
    }
}

/// A changed file.
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
