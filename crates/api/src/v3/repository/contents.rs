//! What is in a repository: folders, files as they are, archives, comparisons, contributors.

use axum::{
    extract::State,
    http::{HeaderMap, Method},
};
use forge::{
    Error, Forge, Unvalidated,
    contents::{self, Archive, Content, Folder, RawFile},
};
use model::objects::{ArchiveFormat, Comparison, Contributor, EntryKind, TreeEntry};
use schemars::JsonSchema;
use serde::Serialize;

use crate::v3::commits::{CommitJson, DiffJson};
use crate::{
    App,
    error::ApiError,
    extract::{Credentials, FormatName, InProject, Revision},
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    raw::{Download, RawText},
    reply::{Done, Reply},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/projects/{id}/repository/tree", "Lists what is in a folder", tree)
        .open()
        .get("/projects/{id}/repository/blobs/{sha}", "Sends a file of a commit as it is", file)
        .open()
        .get("/projects/{id}/repository/commits/{sha}/blob", "Sends a file of a commit as it is", file)
        .open()
        .get("/projects/{id}/repository/raw_blobs/{sha}", "Sends a file by its id as it is", blob)
        .open()
        .get("/projects/{id}/repository/archive", "Sends all files of a commit as an archive", archive)
        .open()
        .get("/projects/{id}/repository/archive.{format}", "Sends them as an archive of a kind", archive_of_kind)
        .open()
        .get("/projects/{id}/repository/compare", "Compares two commits", compare)
        .open()
        .get("/projects/{id}/repository/contributors", "Lists who wrote the newest commits", contributors)
        .open()
}

async fn tree(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<ShowTree>,
    paging: Paging,
) -> Reply<Paged<TreeEntryJson>> {
    let page = paging.of_short_list();
    let entries = contents::tree(&forge, caller, project, given.map(|given| given.0), page).await?;
    Ok(paging.answer(entries.map(TreeEntryJson::from)))
}

async fn file(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Revision(at): Revision,
    Params(given): Params<ShowFile>,
    asked: HeaderMap,
    method: Method,
) -> Reply<RawText> {
    let path = given.map(|given| given.0);
    let file = forge.read(caller, move |tx| contents::file(tx, &project, &at, &path)).await?;
    send(&forge, file, &method, &asked).await
}

async fn blob(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Revision(id): Revision,
    asked: HeaderMap,
    method: Method,
) -> Reply<RawText> {
    let file = forge.run_blocking(caller, move |tx| contents::blob(tx, &project, &id)).await?;
    send(&forge, file, &method, &asked).await
}

async fn send(forge: &Forge, file: RawFile, method: &Method, asked: &HeaderMap) -> Reply<RawText> {
    let answer = RawText::new(&file.id.to_string(), file.size);
    match file.content {
        // Nothing is fetched that nobody will read.
        _ if method == Method::HEAD || answer.is_known_to(asked) => Ok(answer),
        Content::Here(bytes) => Ok(answer.whole(bytes)),
        Content::Large(file) => Ok(answer.streamed(contents::read_large(forge, file).await?)),
    }
}

async fn archive(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<FetchArchive>,
    method: Method,
) -> Reply<Download> {
    let wish = given.map(|given| (given.sha, given.format.unwrap_or(ArchiveFormat::TarGz)));
    let archive = forge.read(caller, move |tx| contents::archive(tx, &project, &wish)).await?;
    pack(&forge, archive, &method).await
}

async fn archive_of_kind(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    FormatName(format): FormatName,
    Params(given): Params<FetchArchiveOfKind>,
    method: Method,
) -> Reply<Download> {
    let format = ArchiveFormat::from_extension(&format).ok_or(ApiError::NoRoute)?;
    let wish: Unvalidated<_> = given.map(|given| (given.0, format));
    let archive = forge.read(caller, move |tx| contents::archive(tx, &project, &wish)).await?;
    pack(&forge, archive, &method).await
}

async fn pack(forge: &Forge, archive: Archive, method: &Method) -> Reply<Download> {
    let kind = match archive.format {
        ArchiveFormat::Zip => "application/zip",
        ArchiveFormat::TarGz | ArchiveFormat::TarBz2 | ArchiveFormat::Tar => "application/octet-stream",
    };
    let answer = Download::new(&format!("{}.{}", archive.name, archive.format.extension()), kind);
    // Nothing is made that nobody will read.
    if method == Method::HEAD {
        return Ok(answer);
    }
    let bytes = contents::read_archive(forge, archive).await?;
    Ok(answer.streamed(bytes.len(), bytes))
}

async fn compare(
    State(app): State<App>,
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<Compare>,
) -> Reply<Done<ComparisonJson>> {
    let range = given.map(|given| (given.from, given.to));
    let comparison = forge.run_blocking(caller, move |tx| contents::compare(tx, &project, &range)).await?;
    if comparison.is_none() && app.dialect().refuses_unknown_refs_in_comparisons() {
        return Err(Error::not_found("Ref").into());
    }
    Ok(Done(comparison.unwrap_or_default().into()))
}

async fn contributors(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    paging: Paging,
) -> Reply<Paged<ContributorJson>> {
    let page = paging.of_short_list();
    let contributors = forge.run_blocking(caller, move |tx| contents::contributors(tx, &project, &page)).await?;
    Ok(paging.answer(contributors.map(ContributorJson::from)))
}

struct ShowTree(Folder);

impl FromParams for ShowTree {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let path = from.text("path", "The folder; without it, the root");
        let at = from.text("ref_name", "A branch, a tag or a commit; without it, the default branch");
        let recursive = from.flag("recursive", "Whether to list the folders below it as well").unwrap_or_default();
        Self(Folder { path, at, recursive })
    }
}

struct ShowFile(String);

impl FromParams for ShowFile {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.required_text("filepath", "The path of the file from the root"))
    }
}

struct FetchArchive {
    sha: Option<String>,
    format: Option<ArchiveFormat>,
}

impl FromParams for FetchArchive {
    fn read(from: &mut ParamReader<'_>) -> Self {
        const NAMES: [&str; 10] = ["tar.gz", "tgz", "gz", "tar.bz2", "tbz", "tbz2", "tb2", "bz2", "tar", "zip"];
        let formats: Vec<_> =
            NAMES.iter().filter_map(|name| ArchiveFormat::from_extension(name).map(|format| (*name, format))).collect();
        let FetchArchiveOfKind(sha) = FetchArchiveOfKind::read(from);
        Self { sha, format: from.choice("format", &formats, "The kind of archive; without it, tar.gz") }
    }
}

struct FetchArchiveOfKind(Option<String>);

impl FromParams for FetchArchiveOfKind {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.text("sha", "A commit, a branch or a tag; without it, the default branch"))
    }
}

struct Compare {
    from: String,
    to: String,
}

impl FromParams for Compare {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self {
            from: from.required_text("from", "The commit, branch or tag to compare with"),
            to: from.required_text("to", "The commit, branch or tag to compare"),
        }
    }
}

/// An entry of a folder.
#[derive(Serialize, JsonSchema)]
struct TreeEntryJson {
    id: String,
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    path: String,
    mode: String,
}

impl From<TreeEntry> for TreeEntryJson {
    fn from(entry: TreeEntry) -> Self {
        let kind = match entry.kind {
            EntryKind::Tree => "tree",
            EntryKind::Blob => "blob",
            EntryKind::Submodule => "commit",
        };
        let TreeEntry { id, name, path, mode, .. } = entry;
        Self { id: id.to_string(), name, kind, path, mode: format!("{mode:06o}") }
    }
}

/// What one commit has that another lacks.
#[derive(Serialize, JsonSchema)]
struct ComparisonJson {
    commit: Option<CommitJson>,
    commits: Vec<CommitJson>,
    diffs: Vec<DiffJson>,
    compare_timeout: bool,
    compare_same_ref: bool,
}

impl From<Comparison> for ComparisonJson {
    fn from(comparison: Comparison) -> Self {
        let Comparison { commits, diffs, overflows, same } = comparison;
        Self {
            commit: commits.last().map(CommitJson::from),
            commits: commits.iter().map(CommitJson::from).collect(),
            diffs: diffs.into_iter().map(DiffJson::from).collect(),
            compare_timeout: overflows,
            compare_same_ref: same,
        }
    }
}

/// Somebody who wrote commits. Lines are not counted, as the original does not count them either.
#[derive(Serialize, JsonSchema)]
struct ContributorJson {
    name: String,
    email: String,
    commits: usize,
    additions: usize,
    deletions: usize,
}

impl From<Contributor> for ContributorJson {
    fn from(contributor: Contributor) -> Self {
        let Contributor { name, email, commits } = contributor;
        Self { name, email, commits, additions: 0, deletions: 0 }
    }
}
