//! The home page of a project: its root folder, README and clone URLs, or how to push to it.

use askama::Template;
use axum::body::Body;
use forge::{
    Ability, Error, ProjectAbility,
    browse::{self, HomeCode, ProjectHome},
    explore, history_pages, pipeline_pages, projects,
};
use model::{
    Project,
    imports::{ImportState, ImportStatus},
};

use crate::{
    context::{PageCx, Viewer},
    error::PageResult,
    layout::{Layout, ProjectHead, Tab},
    links::{self, ProjectLinks},
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
    avatar: Option<String>,
    description: Option<String>,
    stars: i64,
    forks: i64,
    fork_source: Option<(String, String)>,
    clone_urls: Vec<(&'static str, String)>,
    can_push: bool,
    can_star: bool,
    can_fork: bool,
    is_starred: bool,
    /// The progress or the failure of an import.
    import_text: Option<String>,
    is_hidden: bool,
    folder: Option<FolderView>,
}

pub(crate) async fn show(cx: PageCx) -> PageResult {
    match project_home(&cx).await {
        // A path of several segments may also be that of a group, or of a page in its form without `/-/`.
        Err(Error::NotFound(_)) => {
            let (path, page) = (cx.params.subject.clone(), paging::requested(&cx.query(), ENTRIES_PER_PAGE));
            match cx.read_list(move |tx| explore::group(tx, &path, &page)).await {
                Ok((viewer, group)) => namespaces::group_page(&cx, viewer, group),
                Err(Error::NotFound(what)) => match routes::current_form(cx.uri.path()) {
                    Some(path) => {
                        let query = cx.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
                        Ok(response::moved(&format!("{path}{query}")))
                    }
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
                    let folder = FolderView::new(cx, &home.project, *folder, history, &uri)?;
                    Some(FolderView { pipeline, ..folder })
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
    let ProjectHome { project, can_push, is_starred, code } = home;
    if let Some(folder) = &mut folder {
        folder.offer_new_file(&project, &viewer);
    }
    Ok(HomeTemplate {
        head: ProjectHead::new(&project, Tab::Code, &viewer),
        avatar: project.avatar_path(),
        can_star: viewer.user().is_some() && viewer.can_in(&project, ProjectAbility::StarProject),
        can_fork: can_fork(&viewer, &project),
        is_starred,
        import_text: project.import.as_ref().and_then(import_text),
        layout: Layout::new(cx, viewer, format!("{} / {}", project.namespace.name, project.name)),
        clone_urls: clone_urls(cx, &project),
        fork_source: project.forked_from.as_ref().map(|source| {
            let path = source.full_path();
            (links::page(&path), path)
        }),
        description: project.description.filter(|text| !text.trim().is_empty()),
        stars: project.star_count,
        forks: project.forks_count,
        can_push,
        is_hidden: matches!(code, HomeCode::Hidden),
        folder,
    })
}

/// Stars or unstars the project.
pub(crate) async fn star(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let (project, is_starred) = (cx.project(), fields.is_checked("starred"));
    let changed = cx
        .write(move |tx| if is_starred { projects::star(tx, &project) } else { projects::unstar(tx, &project) })
        .await;
    match changed {
        Ok(_) | Err(Error::Unchanged) => Ok(response::redirect(&links::page(&cx.params.subject))),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether the visitor may fork a project that the page shows.
pub(crate) fn can_fork(viewer: &Viewer, project: &Project) -> bool {
    viewer.can(Ability::Create) && viewer.can_in(project, ProjectAbility::DownloadCode)
}

/// Describes an import that is not complete.
fn import_text(import: &ImportStatus) -> Option<String> {
    match import.state {
        ImportState::Scheduled | ImportState::Started => {
            Some("The repository is being imported. Reload the page to see whether it is complete.".to_owned())
        }
        ImportState::Failed => {
            let reason = import.error.as_deref().unwrap_or("the server log says why");
            Some(format!("The import of the repository failed: {reason}"))
        }
        ImportState::None | ImportState::Finished => None,
    }
}

fn clone_urls(cx: &PageCx, project: &Project) -> Vec<(&'static str, String)> {
    let full_path = project.full_path();
    let http = format!("{}.git", cx.origin.site.page(&full_path));
    let label = if http.starts_with("https:") { "HTTPS" } else { "HTTP" };
    let ssh = cx.origin.site.ssh_url(&full_path);
    let ssh = (!ssh.is_empty()).then_some(("SSH", ssh));
    [(label, http)].into_iter().chain(ssh).collect()
}
