//! The form for a new group.

use askama::Template;
use axum::body::Body;
use forge::{Unvalidated, group_pages, groups};
use model::{Visibility, groups::NewGroup};

use super::new::visibility;
use crate::{
    context::PageCx, error::PageResult, form_errors::FormErrors, forms::Fields, layout::Layout, links, response,
};

#[derive(Template)]
#[template(path = "projects/new_group.html")]
struct NewGroupTemplate {
    layout: Layout,
    fields: Fields,
    errors: FormErrors,
}

/// Shows the form.
pub(crate) async fn form(cx: PageCx) -> PageResult {
    let fields = cx.query();
    render(&cx, fields, FormErrors::default()).await
}

/// Creates a group.
pub(crate) async fn create(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let (name, path) = (fields.text("name"), fields.text("path"));
    let new = Unvalidated::valid(NewGroup {
        name: if name.is_empty() { path.clone() } else { name },
        path,
        description: fields.text("description"),
        visibility: visibility(&fields).unwrap_or(Visibility::Private),
        lfs_enabled: None,
        request_access_enabled: false,
    });
    match cx.write(move |tx| groups::create(tx, &new)).await {
        Ok(group) => Ok(response::redirect(&links::page(&group.full_path))),
        Err(error) => {
            let errors = FormErrors::of(error, &["name", "path", "description", "visibility_level"])?;
            render(&cx, fields, errors).await
        }
    }
}

async fn render(cx: &PageCx, fields: Fields, errors: FormErrors) -> PageResult {
    let (viewer, ()) = cx.read(group_pages::open_for_creation).await?;
    let status = errors.status();
    response::page_with_status(
        status,
        &NewGroupTemplate { layout: Layout::new(cx, viewer, "New group"), fields, errors },
    )
}
