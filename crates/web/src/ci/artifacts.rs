//! The artifacts of a job: the archive, its folders and its files.

use askama::Template;
use axum::{
    body::Body,
    http::{Method, header},
    response::{IntoResponse as _, Response},
};
use forge::{
    artifact_files::{self, ArchiveEntry},
    artifacts,
    browse::InProject,
    job_pages,
};
use http_body_util::BodyExt as _;
use model::Job;

use super::job;
use crate::{
    context::PageCx,
    error::PageResult,
    layout::{Layout, ProjectHead, Tab},
    links::{ProjectLinks, encode_path},
    paging::{self, Pager},
    repository::{
        files::human_size,
        folder::{Breadcrumb, ENTRIES_PER_PAGE},
        raw,
    },
    response, text,
};

/// The maximum size of a file that is examined to find out whether it is text.
const MAX_EXAMINED_BYTES: u64 = 1 << 20;

#[derive(Template)]
#[template(path = "ci/artifacts.html")]
struct ArtifactsTemplate {
    layout: Layout,
    head: ProjectHead,
    job: Job,
    size: String,
    breadcrumbs: Vec<Breadcrumb>,
    parent_url: Option<String>,
    /// `None` if the archive cannot be read.
    entries: Option<Vec<EntryView>>,
    pager: Pager,
}

struct EntryView {
    name: String,
    url: String,
    /// `None` for a folder.
    size: Option<String>,
}

/// Sends the archive.
pub(crate) async fn download(cx: PageCx) -> PageResult {
    let (project, id) = (cx.project(), job::id(&cx)?);
    let (_, found) = cx.read(move |tx| job_pages::open_artifacts(tx, &project, id)).await?;
    let (_, artifact) = found.value;
    let body = match cx.method {
        Method::HEAD => Body::empty(),
        _ => Body::from_stream(artifacts::read(cx.forge(), &artifact, None).await?.bytes),
    };
    let mut response: Response = body.into_response();
    raw::add_file_headers(response.headers_mut(), raw::DOWNLOAD, &artifact.name);
    response.headers_mut().insert(header::CONTENT_LENGTH, artifact.size.unwrap_or_default().into());
    Ok(response)
}

/// Shows a folder of the archive.
pub(crate) async fn browse(cx: PageCx) -> PageResult {
    let (project, id, query) = (cx.project(), job::id(&cx)?, cx.query());
    let folder = cx.params.location.trim_matches('/').to_owned();
    let (viewer, found) = cx.read(move |tx| job_pages::open_artifacts(tx, &project, id)).await?;
    let InProject { project, value: (job, artifact) } = found;
    let page = paging::requested(&query, ENTRIES_PER_PAGE);
    let listed = artifact_files::list(cx.forge(), &artifact, &folder, &page).await?;
    let job_url = ProjectLinks::new(&project.full_path()).job(job.id);
    let url = |kind: &str, path: &str| format!("{job_url}/artifacts/{kind}/{}", encode_path(path));
    let join = |name: &str| if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
    let view = |entry: &ArchiveEntry| EntryView {
        url: url(if entry.size.is_some() { "file" } else { "browse" }, &join(&entry.name)),
        size: entry.size.map(human_size),
        name: entry.name.clone(),
    };
    let pager = listed.as_ref().map(|slice| Pager::of(&cx.uri, &query, slice)).unwrap_or_default();
    let parent = folder.rsplit_once('/').map_or("", |(parent, _)| parent);
    let title = format!("Artifacts of {} (#{}) · {}", job.name, job.id, project.full_path());
    response::page(&ArtifactsTemplate {
        head: ProjectHead::new(&project, Tab::Pipelines, &viewer),
        layout: Layout::new(&cx, viewer, title),
        size: human_size(artifact.size.unwrap_or_default()),
        breadcrumbs: breadcrumbs(&folder, |path| url("browse", path)),
        parent_url: (!folder.is_empty()).then(|| url("browse", parent)),
        entries: listed.map(|slice| slice.items.iter().map(view).collect()),
        pager,
        job,
    })
}

fn breadcrumbs(folder: &str, url: impl Fn(&str) -> String) -> Vec<Breadcrumb> {
    let ends = folder.match_indices('/').map(|(at, _)| at).chain((!folder.is_empty()).then_some(folder.len()));
    let part = |end: usize| {
        let path = &folder[..end];
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        Breadcrumb { name, url: (end < folder.len()).then(|| url(path)) }
    };
    ends.map(part).collect()
}

/// Sends a file of the archive as plain text, as an image or as a download.
pub(crate) async fn file(cx: PageCx) -> PageResult {
    let (project, id) = (cx.project(), job::id(&cx)?);
    let (_, found) = cx.read(move |tx| job_pages::open_artifacts(tx, &project, id)).await?;
    let (_, artifact) = found.value;
    let path = cx.params.location.trim_matches('/');
    let file = artifact_files::open(cx.forge(), &artifact, path).await?;
    let name = path.rsplit('/').next().unwrap_or_default();
    let body = Body::from_stream(file.content);
    let (content_type, body) = if file.size <= MAX_EXAMINED_BYTES {
        let bytes = body.collect().await.map_err(|error| forge::Error::internal("an artifact", error))?.to_bytes();
        (raw::content_type(name, Some(&bytes)), Body::from(bytes))
    } else {
        (raw::content_type(name, None), body)
    };
    let body = if cx.method == Method::HEAD { Body::empty() } else { body };
    let mut response: Response = body.into_response();
    raw::add_file_headers(response.headers_mut(), content_type, name);
    response.headers_mut().insert(header::CONTENT_LENGTH, file.size.into());
    Ok(response)
}
