//! The home page of a project: its root folder, README and clone URLs, or how to push to it.

use askama::Template;
use forge::{
    Error,
    browse::{self, HomeCode, ProjectHome},
    explore, history_pages, pipeline_pages,
};
use model::Project;

use crate::{
    context::PageCx,
    error::PageResult,
    layout::{Layout, ProjectHead, Tab},
    links::ProjectLinks,
    paging,
    projects::namespaces,
    repository::folder::{ENTRIES_PER_PAGE, FolderView},
    response, routes, text,
};

#[derive(Template)]
#[template(path = "projects/home.html")]
struct HomeTemplate {
    layout: Layout,
    head: ProjectHead,
    description: Option<String>,
    stars: i64,
    forks: i64,
    fork_source: Option<(String, String)>,
    clone_urls: Vec<(&'static str, String)>,
    can_push: bool,
    is_hidden: bool,
    folder: Option<FolderView>,
}

pub(crate) async fn show(cx: PageCx) -> PageResult {
    match project_home(&cx).await {
        // A path of several segments may also be that of a group, or of a page in its form without `/-/`.
        Err(Error::NotFound(_)) => {
            let (path, page) = (cx.params.subject.clone(), paging::requested(&cx.query(), ENTRIES_PER_PAGE));
            match cx.read(move |tx| explore::group(tx, &path, &page)).await {
                Ok((viewer, group)) => namespaces::group_page(&cx, viewer, group),
                Err(Error::NotFound(what)) => match routes::current_form(cx.uri.path()) {
                    Some(path) => Ok(response::moved(&path)),
                    None => Err(Error::NotFound(what).into()),
                },
                Err(error) => Err(error.into()),
            }
        }
        Ok(template) => response::page(&template),
        Err(error) => Err(error.into()),
    }
}

async fn project_home(cx: &PageCx) -> Result<HomeTemplate, Error> {
    let (project, query) = (cx.project(), cx.query());
    let page = paging::requested(&query, ENTRIES_PER_PAGE);
    let uri = cx.uri.clone();
    let (viewer, (home, mut folder)) = cx
        .run_blocking(move |cx| {
            let (mut home, pipeline) = cx.read(|tx| {
                let home = browse::home(tx, &project, &page)?;
                let pipeline = match &home.code {
                    HomeCode::Root(folder) => pipeline_pages::newest_of_commit(tx, &home.project, folder.commit.id)?,
                    HomeCode::Hidden | HomeCode::Empty => None,
                };
                Ok((home, pipeline))
            })?;
            let folder = match std::mem::replace(&mut home.code, HomeCode::Empty) {
                HomeCode::Root(folder) => {
                    let links = ProjectLinks::new(&home.project.full_path());
                    let pipeline = pipeline.map(|(id, status)| (links.pipeline(id), status.into()));
                    let history = history_pages::last_commits(cx, home.project.id, &folder)?;
                    Some(FolderView { pipeline, ..FolderView::new(&home.project, *folder, history, &uri) })
                }
                code => {
                    home.code = code;
                    None
                }
            };
            Ok((home, folder))
        })
        .await?;
    if let Some(unfinished) = folder.as_ref().and_then(|folder| folder.unfinished.clone()) {
        history_pages::complete_later(cx.forge(), cx.caller(), unfinished);
    }
    let ProjectHome { project, can_push, code } = home;
    if let Some(folder) = &mut folder {
        folder.offer_new_file(&project, &viewer);
    }
    Ok(HomeTemplate {
        head: ProjectHead::new(&project, Tab::Code, &viewer),
        layout: Layout::new(cx, viewer, format!("{} / {}", project.namespace.name, project.name)),
        clone_urls: clone_urls(cx, &project),
        fork_source: project.forked_from.as_ref().map(|source| {
            let path = source.full_path();
            (crate::links::page(&path), path)
        }),
        description: project.description.filter(|text| !text.trim().is_empty()),
        stars: project.star_count,
        forks: project.forks_count,
        can_push,
        is_hidden: matches!(code, HomeCode::Hidden),
        folder,
    })
}

fn clone_urls(cx: &PageCx, project: &Project) -> Vec<(&'static str, String)> {
    let full_path = project.full_path();
    let http = format!("{}.git", cx.origin.site.page(&full_path));
    let label = if http.starts_with("https:") { "HTTPS" } else { "HTTP" };
    let ssh = cx.origin.site.ssh_url(&full_path);
    let ssh = (!ssh.is_empty()).then_some(("SSH", ssh));
    [(label, http)].into_iter().chain(ssh).collect()
}
