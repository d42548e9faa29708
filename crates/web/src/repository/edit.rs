//! Forms that create, change, upload and delete a file.

use askama::Template;
use axum::{body::Body, http::StatusCode};
use forge::{
    Error,
    browse::InProject,
    edit_pages::{self, CurrentFile, EditableFile, FileAction, NewFilePlace, SaveFile},
};
use model::{Oid, Project};

use crate::{
    context::{PageCx, Viewer},
    error::{PageError, PageResult},
    file_forms::SmallFile,
    form_errors::FormErrors,
    forms::Fields,
    layout::{Layout, ProjectHead, Tab},
    links::ProjectLinks,
    preview, response,
    text::{self, Markup, line_endings, markdown, plain},
};

/// The maximum size of a text that a form shows, in bytes.
const MAX_TEXT_BYTES: usize = 512 << 10;

#[derive(Template)]
#[template(path = "repository/edit_file.html")]
struct EditTemplate {
    layout: Layout,
    head: ProjectHead,
    is_new: bool,
    /// The path that the form was opened with.
    opened_path: String,
    action: String,
    cancel_url: String,
    /// The blob that the form was opened with; empty for a new file.
    blob: String,
    form: FormValues,
    conflict: Option<Conflict>,
    can_preview: bool,
    delete_url: Option<String>,
}

/// The fields as they were typed, and what is wrong with them.
#[derive(Default)]
struct FormValues {
    path: String,
    /// `None` if the file cannot be edited as text.
    content: Option<String>,
    message: String,
    branch: String,
    /// The blob that the form was opened with; `None` if it was not submitted yet.
    blob: Option<String>,
    preview: Option<Markup>,
    errors: FormErrors,
}

/// What happened to the file since the form was opened.
enum Conflict {
    /// It has another content: the URL and the text.
    Changed(String, Markup),
    Deleted,
}

impl FormValues {
    fn typed(fields: &Fields) -> Self {
        Self {
            path: fields.get("path").trim().to_owned(),
            content: fields.has("content").then(|| fields.get("content").to_owned()),
            message: fields.get("message").replace("\r\n", "\n"),
            branch: fields.get("branch").trim().to_owned(),
            blob: Some(fields.get("blob").to_owned()),
            ..Self::default()
        }
    }

    /// Adds the preview of a file in a branch.
    async fn with_preview(mut self, cx: &PageCx, branch: &str) -> Result<Self, PageError> {
        let content = self.content.clone().unwrap_or_default().replace("\r\n", "\n");
        self.preview = Some(cx.preview_file(branch, &self.path, content).await?);
        Ok(self)
    }

    /// Adds why the form was not accepted; returns other errors.
    fn with_error(mut self, error: Error) -> Result<Self, PageError> {
        // The template says what was changed.
        if !matches!(error, Error::Conflicting(_)) {
            let errors = FormErrors::by_field(error)?.renamed("content", "file");
            self.errors = errors.beside(&["path", "file", "message", "branch"]);
        }
        Ok(self)
    }
}

/// Shows the form for a new file in a folder of a branch.
pub(crate) async fn new(cx: PageCx) -> PageResult {
    let (viewer, InProject { project, value }) = open_new(&cx).await?;
    let NewFilePlace { branch, folder } = value;
    let path = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    let form = FormValues { path, content: Some(String::new()), branch, ..FormValues::default() };
    render_new(&cx, viewer, &project, form)
}

/// Creates a file.
pub(crate) async fn create(cx: PageCx, body: Body) -> PageResult {
    let (fields, upload) = cx.form_with_file(body).await?;
    let (viewer, InProject { project, value: place }) = open_new(&cx).await?;
    let mut form = FormValues::typed(&fields);
    if let Some(SmallFile { name, .. }) = &upload
        && (form.path.is_empty() || form.path.ends_with('/'))
    {
        form.path.push_str(name);
    }
    if preview::is_requested(&fields) {
        let form = form.with_preview(&cx, &place.branch).await?;
        return render_new(&cx, viewer, &project, form);
    }
    let content = match upload {
        Some(file) => file.bytes,
        None => fields.get("content").replace("\r\n", "\n").into_bytes(),
    };
    let save = SaveFile {
        start_branch: place.branch,
        branch: form.branch.clone(),
        path: form.path.clone(),
        action: FileAction::Create(content),
        message: form.message.clone(),
    };
    match edit_pages::save(cx.forge(), cx.caller(), cx.project(), save).await {
        Ok(()) => {
            let links = ProjectLinks::new(&cx.params.subject);
            Ok(response::redirect(&links.blob(&form.branch, form.path.trim_matches('/'))))
        }
        Err(error) => render_new(&cx, viewer, &project, form.with_error(error)?),
    }
}

/// Shows the form that changes a file of a branch.
pub(crate) async fn edit(cx: PageCx) -> PageResult {
    let (viewer, InProject { project, value: file }) = open_file(&cx).await?;
    let current = file.current.as_ref().ok_or(StatusCode::NOT_FOUND)?;
    let content = current.content.as_deref().filter(|bytes| bytes.len() <= MAX_TEXT_BYTES);
    let form = FormValues {
        path: file.path.clone(),
        content: content.and_then(line_endings::editable).map(ToOwned::to_owned),
        message: format!("Update {}", file.path),
        branch: file.branch.clone(),
        ..FormValues::default()
    };
    render_edit(&cx, viewer, &project, &file, form, None)
}

/// Changes a file.
pub(crate) async fn update(cx: PageCx, body: Body) -> PageResult {
    let (fields, upload) = cx.form_with_file(body).await?;
    let (viewer, InProject { project, value: file }) = open_file(&cx).await?;
    let form = FormValues::typed(&fields);
    if preview::is_requested(&fields) {
        let form = form.with_preview(&cx, &file.branch).await?;
        return render_edit(&cx, viewer, &project, &file, form, None);
    }
    let original = file.current.as_ref().and_then(|current| current.content.as_deref()).unwrap_or_default();
    let content = match (upload, &form.content) {
        (Some(file), _) => Some(file.bytes),
        (None, Some(text)) => Some(line_endings::restore(original, text)),
        (None, None) => None,
    };
    let action = match &file.current {
        // The visitor knows that the file was deleted, and restores it.
        None if fields.get("blob").is_empty() => FileAction::Create(content.unwrap_or_default()),
        _ => FileAction::Change { previous_path: file.path.clone(), previous_blob: opened_blob(&fields)?, content },
    };
    save_existing(&cx, (viewer, project, file), form, action).await
}

/// Deletes a file.
pub(crate) async fn delete(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let (viewer, InProject { project, value: file }) = open_file(&cx).await?;
    let content = file.current.as_ref().and_then(|current| current.content.as_deref());
    let form = FormValues {
        path: file.path.clone(),
        content: content.and_then(line_endings::editable).map(ToOwned::to_owned),
        ..FormValues::typed(&fields)
    };
    let action = FileAction::Delete { previous_blob: opened_blob(&fields)? };
    save_existing(&cx, (viewer, project, file), form, action).await
}

async fn save_existing(
    cx: &PageCx,
    (viewer, project, file): (Viewer, Project, EditableFile),
    form: FormValues,
    action: FileAction,
) -> PageResult {
    let is_deletion = matches!(action, FileAction::Delete { .. });
    let save = SaveFile {
        start_branch: file.branch.clone(),
        branch: form.branch.clone(),
        path: form.path.clone(),
        action,
        message: form.message.clone(),
    };
    let links = ProjectLinks::new(&project.full_path());
    match edit_pages::save(cx.forge(), cx.caller(), cx.project(), save).await {
        Ok(()) if is_deletion => Ok(response::redirect(&links.tree(&form.branch, ""))),
        Ok(()) => Ok(response::redirect(&links.blob(&form.branch, form.path.trim_matches('/')))),
        Err(error) => {
            let is_conflict = matches!(error, Error::Conflicting(_));
            let form = form.with_error(error)?;
            // The file may have been changed since it was read.
            let (viewer, file) = if is_conflict {
                let (viewer, InProject { value, .. }) = open_file(cx).await?;
                (viewer, value)
            } else {
                (viewer, file)
            };
            let conflict = is_conflict.then(|| Conflict::of(&links, &file));
            render_edit(cx, viewer, &project, &file, form, conflict)
        }
    }
}

impl Conflict {
    fn of(links: &ProjectLinks, file: &EditableFile) -> Self {
        let Some(current) = &file.current else { return Self::Deleted };
        let text = current.content.as_deref().filter(|bytes| bytes.len() <= MAX_TEXT_BYTES).and_then(text::decode);
        let text = text.unwrap_or_else(|| "The content cannot be shown here.".to_owned());
        Self::Changed(links.blob(&file.branch, &file.path), plain::preformatted(&text))
    }
}

/// Returns the blob that a form was opened with.
fn opened_blob(fields: &Fields) -> Result<Oid, PageError> {
    fields.get("blob").parse().map_err(|_| PageError::Status(StatusCode::UNPROCESSABLE_ENTITY))
}

async fn open_new(cx: &PageCx) -> forge::Result<(Viewer, InProject<NewFilePlace>)> {
    let (project, location) = (cx.project(), cx.params.location.clone());
    cx.read(move |tx| edit_pages::open_for_creation(tx, &project, &location)).await
}

async fn open_file(cx: &PageCx) -> forge::Result<(Viewer, InProject<EditableFile>)> {
    let (project, location) = (cx.project(), cx.params.location.clone());
    cx.read(move |tx| edit_pages::open_for_editing(tx, &project, &location)).await
}

fn render_new(cx: &PageCx, viewer: Viewer, project: &Project, form: FormValues) -> PageResult {
    let links = ProjectLinks::new(&project.full_path());
    let template = EditTemplate {
        head: ProjectHead::new(project, Tab::Code, &viewer),
        layout: Layout::new(cx, viewer, format!("New file · {}", project.full_path())),
        is_new: true,
        opened_path: String::new(),
        action: links.new_file(&cx.params.location, ""),
        cancel_url: links.home().to_owned(),
        blob: String::new(),
        form,
        conflict: None,
        can_preview: true,
        delete_url: None,
    };
    response::page_with_status(template.form.errors.status(), &template)
}

fn render_edit(
    cx: &PageCx,
    viewer: Viewer,
    project: &Project,
    file: &EditableFile,
    form: FormValues,
    conflict: Option<Conflict>,
) -> PageResult {
    let links = ProjectLinks::new(&project.full_path());
    let blob = file.current.as_ref().map(|CurrentFile { entry, .. }| entry.id.to_string());
    let template = EditTemplate {
        head: ProjectHead::new(project, Tab::Code, &viewer),
        layout: Layout::new(cx, viewer, format!("Edit {} · {}", file.path, project.full_path())),
        is_new: false,
        opened_path: file.path.clone(),
        action: links.edit(&file.branch, &file.path),
        cancel_url: links.blob(&file.branch, &file.path),
        delete_url: blob.is_some().then(|| links.delete(&file.branch, &file.path)),
        // A form that is shown again still has the version that the visitor knows.
        blob: form.blob.clone().filter(|_| conflict.is_none()).or(blob).unwrap_or_default(),
        can_preview: form.content.is_some() && markdown::is_markdown(&form.path),
        form,
        conflict,
    };
    let status =
        if template.conflict.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { template.form.errors.status() };
    response::page_with_status(status, &template)
}
