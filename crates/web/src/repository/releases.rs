//! The releases of a project, and the form that changes the notes of a release.

use askama::Template;
use axum::body::Body;
use forge::{
    Unvalidated,
    browse::InProject,
    release_pages::{self, ReleaseList},
    tags::{self, TagWithRelease},
};
use model::{Commit, Time};

use crate::{
    context::PageCx,
    error::PageResult,
    form_errors::FormErrors,
    layout::{Layout, ProjectHead, Tab},
    links::ProjectLinks,
    paging::{self, Pager},
    preview, response,
    text::{
        self, Markup,
        markdown::{self, Source},
        references::ReferenceLinks,
    },
};

const RELEASES_PER_PAGE: i64 = 10;

#[derive(Template)]
#[template(path = "repository/releases.html")]
struct ReleasesTemplate {
    layout: Layout,
    head: ProjectHead,
    releases: Vec<ReleaseView>,
    can_edit: bool,
    pager: Pager,
}

struct ReleaseView {
    tag: String,
    created_at: Time,
    notes: Markup,
    commit: Option<Commit>,
    /// The names of the formats, and the URLs.
    archives: Vec<(&'static str, String)>,
}

#[derive(Template)]
#[template(path = "repository/edit_release.html")]
struct EditReleaseTemplate {
    layout: Layout,
    head: ProjectHead,
    tag: String,
    description: String,
    preview: Option<Markup>,
    errors: FormErrors,
}

/// Shows the releases.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    let (project, query) = (cx.project(), cx.query());
    let page = paging::requested(&query, RELEASES_PER_PAGE);
    let uri = cx.uri.clone();
    // Rendering Markdown may take long.
    let (viewer, (project, releases, can_edit, pager)) = cx
        .run_blocking(move |cx| {
            let InProject { project, value } = cx.read(|tx| release_pages::list(tx, &project, &page))?;
            let ReleaseList { releases, can_edit } = value;
            let links = ProjectLinks::new(&project.full_path());
            let source = Source::Project(links.clone());
            let pager = Pager::of(&uri, &query, &releases);
            let texts = releases.items.iter().map(|(release, _)| release.description.as_str());
            let references = ReferenceLinks::resolve(cx, &project, texts)?;
            let view = |(release, tag): (model::Release, Option<model::objects::Tag>)| ReleaseView {
                notes: markdown::render_with(&release.description, &source, &references),
                archives: if tag.is_some() { links.archives(&project.path, &release.tag_name) } else { Vec::new() },
                commit: tag.and_then(|tag| tag.commit),
                tag: release.tag_name,
                created_at: release.created_at,
            };
            let releases: Vec<ReleaseView> = releases.items.into_iter().map(view).collect();
            Ok((project, releases, can_edit, pager))
        })
        .await?;
    response::page(&ReleasesTemplate {
        head: ProjectHead::new(&project, Tab::Tags, &viewer),
        layout: Layout::new(&cx, viewer, format!("Releases · {}", project.full_path())),
        releases,
        can_edit,
        pager,
    })
}

/// Shows the form for the notes of a release.
pub(crate) async fn edit(cx: PageCx) -> PageResult {
    render_form(&cx, None, None, FormErrors::default()).await
}

/// Creates or changes the release of a tag.
pub(crate) async fn save(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let description = fields.get("description").replace("\r\n", "\n");
    if preview::is_requested(&fields) {
        let preview = Some(cx.preview(description.clone()).await?);
        return render_form(&cx, Some(description), preview, FormErrors::default()).await;
    }
    let (tag, text) = (cx.params.location.clone(), Unvalidated::valid(description.clone()));
    match tags::save_release(cx.forge(), cx.caller(), cx.project(), tag, text).await {
        Ok(_) => Ok(response::redirect(&ProjectLinks::new(&cx.params.subject).to("releases"))),
        Err(error) => render_form(&cx, Some(description), None, FormErrors::of(error, &["description"])?).await,
    }
}

async fn render_form(cx: &PageCx, typed: Option<String>, preview: Option<Markup>, errors: FormErrors) -> PageResult {
    let (project, tag) = (cx.project(), cx.params.location.clone());
    let (viewer, found) = cx.read(move |tx| release_pages::open_for_editing(tx, &project, &tag)).await?;
    let InProject { project, value: TagWithRelease { tag, release } } = found;
    let template = EditReleaseTemplate {
        head: ProjectHead::new(&project, Tab::Tags, &viewer),
        layout: Layout::new(cx, viewer, format!("Release {} · {}", tag.name, project.full_path())),
        tag: tag.name,
        description: typed.or_else(|| release.map(|release| release.description)).unwrap_or_default(),
        preview,
        errors,
    };
    response::page_with_status(template.errors.status(), &template)
}
