//! Finds files by a part of their path.

use askama::Template;
use forge::{
    browse::InProject,
    history_pages::{self, FoundFiles},
};

use crate::{
    context::PageCx,
    error::PageResult,
    layout::{Layout, ProjectHead, Tab},
    links::ProjectLinks,
    response, text,
};

#[derive(Template)]
#[template(path = "repository/find_file.html")]
struct FindFileTemplate {
    layout: Layout,
    head: ProjectHead,
    revision: String,
    search: String,
    /// The paths and the URLs.
    files: Vec<(String, String)>,
    /// The number of all files that were found; `None` if there are too many to search.
    total: Option<usize>,
}

/// Shows the form and the files that it finds.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    let (project, location) = (cx.project(), cx.params.location.clone());
    let search = cx.query().get("search").trim().to_owned();
    let searched = search.clone();
    let (viewer, found) =
        cx.run_blocking(move |cx| history_pages::find_files(cx, &project, &location, &searched)).await?;
    let InProject { project, value: FoundFiles { revision, paths, total } } = found;
    let links = ProjectLinks::new(&project.full_path());
    let files = paths.into_iter().map(|path| {
        let url = links.blob(&revision.name, &path);
        (path, url)
    });
    response::page(&FindFileTemplate {
        head: ProjectHead::new(&project, Tab::Code, &viewer),
        layout: Layout::new(&cx, viewer, format!("Find file · {} · {}", revision.name, project.full_path())),
        files: files.collect(),
        revision: revision.name,
        search,
        total,
    })
}
