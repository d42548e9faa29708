//! Contents of a repository: trees, raw files, archives, comparisons, contributors.

use axum::{
    extract::State,
    http::{HeaderMap, Method},
};
use forge::{
    Error, Forge, Unvalidated,
    contents::{self, BlobContent, RawFile, TreeQuery},
};
use model::objects::{ArchiveFormat, Comparison, Contributor, EntryKind, TreeEntry};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    App,
    context::ProjectCx,
    error::ApiError,
    extract::{BlobIdInPath, FormatInPath, RevisionInPath},
    file_response::{Download, RawText},
    openapi::Tag,
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{OkJson, Reply},
    routes::Routes,
    v3::commits::{CommitJson, DiffJson},
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Repositories)
        .get("/projects/{id}/repository/tree", "List the contents of a folder", tree)
        .allow_anonymous()
        .get("/projects/{id}/repository/blobs/{sha}", "Get the raw content of a file at a commit", file)
        .allow_anonymous()
        .get("/projects/{id}/repository/commits/{sha}/blob", "Get the raw content of a file at a commit", file)
        .allow_anonymous()
        .get("/projects/{id}/repository/raw_blobs/{sha}", "Get the raw content of a blob", blob)
        .allow_anonymous()
        .get("/projects/{id}/repository/archive", "Get an archive of the files at a commit", archive)
        .allow_anonymous()
        .get(
            "/projects/{id}/repository/archive.{format}",
            "Get an archive of the files at a commit in the given format",
            archive_in_format,
        )
        .allow_anonymous()
        .get("/projects/{id}/repository/compare", "Compare two commits, branches or tags", compare)
        .allow_anonymous()
        .get("/projects/{id}/repository/contributors", "List the authors of the newest 2,000 commits", contributors)
        .allow_anonymous()
}

async fn tree(
    ProjectCx { forge, caller, project }: ProjectCx,
    Params(params): Params<ListTree>,
    paging: Paging,
) -> Reply<Paged<TreeEntryJson>> {
    let page = paging.page_of_short_list();
    let entries = contents::tree(&forge, caller, project, params.map(|params| params.0), page).await?;
    Ok(paging.reply(entries, TreeEntryJson::from))
}

async fn file(
    cx: ProjectCx,
    RevisionInPath(revision): RevisionInPath,
    Params(params): Params<GetFile>,
    request_headers: HeaderMap,
    method: Method,
) -> Reply<RawText> {
    let (forge, path) = (cx.forge.clone(), params.map(|params| params.0));
    let file = cx.read(move |tx, project| contents::file(tx, project, &revision, &path)).await?;
    send(&forge, file, &method, &request_headers).await
}

async fn blob(
    cx: ProjectCx,
    BlobIdInPath(id): BlobIdInPath,
    request_headers: HeaderMap,
    method: Method,
) -> Reply<RawText> {
    let forge = cx.forge.clone();
    let file = cx.run_blocking(move |cx, project| contents::blob(cx, project, &id)).await?;
    send(&forge, file, &method, &request_headers).await
}

async fn send(forge: &Forge, file: RawFile, method: &Method, request_headers: &HeaderMap) -> Reply<RawText> {
    let reply = RawText::new(&file.id.to_string(), file.size);
    match file.content {
        // The content is not read if it will not be sent.
        _ if method == Method::HEAD || reply.matches_etag(request_headers) => Ok(reply),
        BlobContent::Inline(bytes) => Ok(reply.with_bytes(bytes)),
        BlobContent::Large(file) => Ok(reply.with_stream(contents::read_large_blob(forge, file).await?)),
    }
}

async fn archive(cx: ProjectCx, Params(params): Params<GetArchive>, method: Method) -> Reply<Download> {
    let options = params.map(|params| (params.sha, params.format.unwrap_or(ArchiveFormat::TarGz)));
    send_archive(cx, options, &method).await
}

async fn archive_in_format(
    cx: ProjectCx,
    FormatInPath(format): FormatInPath,
    Params(params): Params<GetArchiveInFormat>,
    method: Method,
) -> Reply<Download> {
    let format = ArchiveFormat::from_extension(&format).ok_or(ApiError::RouteNotFound)?;
    send_archive(cx, params.map(|params| (params.0, format)), &method).await
}

async fn send_archive(
    cx: ProjectCx,
    options: Unvalidated<(Option<String>, ArchiveFormat)>,
    method: &Method,
) -> Reply<Download> {
    let forge = cx.forge.clone();
    let archive = cx.read(move |tx, project| contents::archive(tx, project, &options)).await?;
    let kind = match archive.format {
        ArchiveFormat::Zip => "application/zip",
        ArchiveFormat::TarGz | ArchiveFormat::TarBz2 | ArchiveFormat::Tar => "application/octet-stream",
    };
    let reply = Download::new(&format!("{}.{}", archive.name, archive.format.extension()), kind);
    // The archive is not generated if it will not be sent.
    if method == Method::HEAD {
        return Ok(reply);
    }
    let bytes = contents::read_archive(&forge, archive).await?;
    Ok(reply.with_stream(bytes.len(), bytes))
}

async fn compare(
    State(app): State<App>,
    cx: ProjectCx,
    Params(params): Params<Compare>,
) -> Reply<OkJson<ComparisonJson>> {
    let range = params.map(|params| (params.from, params.to));
    let comparison = cx.run_blocking(move |cx, project| contents::compare(cx, project, &range)).await?;
    if comparison.is_none() && app.dialect().refuses_unknown_refs_in_comparisons() {
        return Err(Error::not_found("Ref").into());
    }
    Ok(OkJson(comparison.unwrap_or_default().into()))
}

async fn contributors(cx: ProjectCx, paging: Paging) -> Reply<Paged<ContributorJson>> {
    let page = paging.page_of_short_list();
    let reply = cx.run_blocking(move |cx, project| {
        let found = contents::contributors(cx, project, &page)?;
        Ok(paging.reply(found, ContributorJson::from))
    });
    Ok(reply.await?)
}

struct ListTree(TreeQuery);

impl FromParams for ListTree {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let path = from.text("path", "The path of the folder; default: the root");
        let revision = from.text("ref_name", "The branch, tag or commit; default: the default branch");
        let recursive =
            from.flag("recursive", "Whether to include the contents of subfolders; default: false").unwrap_or_default();
        Self(TreeQuery { path, revision, recursive })
    }
}

struct GetFile(String);

impl FromParams for GetFile {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.required_text("filepath", "The path of the file"))
    }
}

struct GetArchive {
    sha: Option<String>,
    format: Option<ArchiveFormat>,
}

impl FromParams for GetArchive {
    fn read(from: &mut ParamReader<'_>) -> Self {
        const NAMES: [&str; 10] = ["tar.gz", "tgz", "gz", "tar.bz2", "tbz", "tbz2", "tb2", "bz2", "tar", "zip"];
        let formats: Vec<_> =
            NAMES.iter().filter_map(|name| ArchiveFormat::from_extension(name).map(|format| (*name, format))).collect();
        let GetArchiveInFormat(sha) = GetArchiveInFormat::read(from);
        Self { sha, format: from.choice("format", &formats, "The archive format; default: tar.gz") }
    }
}

struct GetArchiveInFormat(Option<String>);

impl FromParams for GetArchiveInFormat {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.text("sha", "The branch, tag or commit; default: the default branch"))
    }
}

struct Compare {
    from: String,
    to: String,
}

impl FromParams for Compare {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self {
            from: from.required_text("from", "The base of the comparison: a commit, branch or tag"),
            to: from.required_text("to", "The head of the comparison: a commit, branch or tag"),
        }
    }
}

/// An entry of a tree.
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

/// A comparison of two commits.
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
        let Comparison { commits, diffs, is_truncated, same } = comparison;
        Self {
            commit: commits.last().map(CommitJson::from),
            commits: commits.iter().map(CommitJson::from).collect(),
            diffs: diffs.into_iter().map(DiffJson::from).collect(),
            compare_timeout: is_truncated,
            compare_same_ref: same,
        }
    }
}

/// An author of commits. `additions` and `deletions` are always 0, as in GitLab.
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
