//! The form for a new project.

use askama::Template;
use axum::body::Body;
use forge::{Unvalidated, groups, project_pages, projects};
use model::{
    Namespace, Visibility,
    projects::{NamespaceRef, NewProject},
};

use crate::{
    context::PageCx, error::PageResult, form_errors::FormErrors, forms::Fields, layout::Layout, links, response,
};

const FIELDS: [&str; 6] = ["namespace", "name", "path", "description", "visibility_level", "import_url"];

#[derive(Template)]
#[template(path = "projects/new.html")]
struct NewProjectTemplate {
    layout: Layout,
    namespaces: Vec<Namespace>,
    fields: Fields,
    errors: FormErrors,
    can_create_group: bool,
}

/// Shows the form; the query can name a namespace.
pub(crate) async fn form(cx: PageCx) -> PageResult {
    let fields = cx.query();
    render(&cx, fields, FormErrors::default()).await
}

/// Creates a project.
pub(crate) async fn create(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let optional = |name: &str| Some(fields.text(name)).filter(|text| !text.is_empty());
    let new = Unvalidated::valid(NewProject {
        name: fields.text("name"),
        path: optional("path"),
        namespace: optional("namespace").map(NamespaceRef::Path),
        description: optional("description"),
        visibility: visibility(&fields),
        import_url: optional("import_url"),
        ..NewProject::default()
    });
    match cx.write(move |tx| projects::create(tx, &new)).await {
        Ok(detail) => Ok(response::redirect(&links::page(&detail.project.full_path()))),
        Err(error) => {
            let errors = FormErrors::of(error, &FIELDS)?;
            render(&cx, fields, errors).await
        }
    }
}

/// Returns the visibility that is chosen in a form.
pub(crate) fn visibility(fields: &Fields) -> Option<Visibility> {
    fields.get("visibility_level").parse().ok().and_then(Visibility::from_level)
}

async fn render(cx: &PageCx, fields: Fields, errors: FormErrors) -> PageResult {
    let wanted = fields.text("namespace");
    let (viewer, namespaces) = cx.read(move |tx| project_pages::target_namespaces(tx, &wanted)).await?;
    let can_create_group = viewer.user().is_some_and(groups::may_be_created_by);
    let layout = Layout::new(cx, viewer, "New project");
    let status = errors.status();
    let template = NewProjectTemplate { layout, namespaces, fields, errors, can_create_group };
    response::page_with_status(status, &template)
}
