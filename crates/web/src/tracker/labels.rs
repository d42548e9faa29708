//! The labels of a project: the list, and the form of a label.

use askama::Template;
use axum::body::Body;
use forge::{ProjectAbility, Unvalidated, browse::InProject, label_pages};
use model::{
    Label, LabelId, Project,
    labels::{DEFAULT_COLOR, NewLabel},
};

use super::{Section, rows};
use crate::{
    context::{PageCx, Viewer},
    error::{PageError, PageResult},
    form_errors::FormErrors,
    forms::Fields,
    layout::{Layout, ProjectHead, Tab},
    links::ProjectLinks,
    paging::{self, Pager},
    response,
    text::{self, Markup},
};

const LABELS_PER_PAGE: i64 = 50;
/// The fields of the form.
const FIELDS: [&str; 4] = ["title", "color", "description", "priority"];

#[derive(Template)]
#[template(path = "tracker/labels.html")]
struct LabelsTemplate {
    layout: Layout,
    head: ProjectHead,
    section: Section,
    labels: Vec<LabelRow>,
    can_change: bool,
    can_subscribe: bool,
    pager: Pager,
}

struct LabelRow {
    name: Markup,
    issues_url: String,
    label: Label,
}

#[derive(Template)]
#[template(path = "tracker/label_form.html")]
struct LabelFormTemplate {
    layout: Layout,
    head: ProjectHead,
    section: Section,
    /// The label to change; `None` for a new one.
    label: Option<Label>,
    title: String,
    color: String,
    description: String,
    priority: String,
    errors: FormErrors,
}

/// Lists the labels.
pub(crate) async fn list(cx: PageCx) -> PageResult {
    let (project, query) = (cx.project(), cx.query());
    let page = paging::requested(&query, LABELS_PER_PAGE);
    let (viewer, found) = cx.read(move |tx| label_pages::list(tx, &project, &page)).await?;
    let InProject { project, value } = found;
    let links = ProjectLinks::new(&project.full_path());
    let row = |label: Label| LabelRow {
        name: text::labels::name(&label.title, &label.color),
        issues_url: rows::label_url(&links, &label.title),
        label,
    };
    response::page(&LabelsTemplate {
        head: ProjectHead::new(&project, Tab::Issues, &viewer),
        section: Section::Labels,
        can_change: viewer.user().is_some() && viewer.can_in(&project, ProjectAbility::AdministerLabels),
        can_subscribe: viewer.user().is_some(),
        layout: Layout::new(&cx, viewer, format!("Labels · {}", project.full_path())),
        pager: Pager::of(&cx.uri, &query, &value),
        labels: value.items.into_iter().map(row).collect(),
    })
}

/// Shows the form for a new label.
pub(crate) async fn new(cx: PageCx) -> PageResult {
    render_new(&cx, &Fields::default(), FormErrors::default()).await
}

/// Creates a label.
pub(crate) async fn create(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let (project, new) = (cx.project(), input(&fields));
    let result = match new {
        Ok(new) => cx.write(move |tx| label_pages::create(tx, &project, &new)).await.map(drop),
        Err(errors) => return render_new(&cx, &fields, errors).await,
    };
    match result {
        Ok(()) => Ok(to_list(&cx)),
        Err(error) => render_new(&cx, &fields, FormErrors::of(error, &FIELDS)?).await,
    }
}

/// Shows the form of a label.
pub(crate) async fn edit(cx: PageCx) -> PageResult {
    render_edit(&cx, None, FormErrors::default()).await
}

/// Changes a label.
pub(crate) async fn update(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let (project, label, new) = (cx.project(), label_id(&cx)?, input(&fields));
    let result = match new {
        Ok(new) => cx.write(move |tx| label_pages::update(tx, &project, label, &new)).await.map(drop),
        Err(errors) => return render_edit(&cx, Some(&fields), errors).await,
    };
    match result {
        Ok(()) => Ok(to_list(&cx)),
        Err(error) => render_edit(&cx, Some(&fields), FormErrors::of(error, &FIELDS)?).await,
    }
}

/// Deletes a label, if its title was typed.
pub(crate) async fn delete(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let (project, id) = (cx.project(), label_id(&cx)?);
    let opened = project.clone();
    let (_, found) = cx.read(move |tx| label_pages::open_for_editing(tx, &opened, id)).await?;
    if fields.get("confirmation").trim() != found.value.title.trim() {
        return render_edit(&cx, None, FormErrors::one("confirmation", "does not match")).await;
    }
    cx.write(move |tx| label_pages::delete(tx, &project, id)).await?;
    Ok(to_list(&cx))
}

/// Subscribes the user to a label, or unsubscribes them.
pub(crate) async fn subscribe(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let (project, label) = (cx.project(), label_id(&cx)?);
    let subscribed = fields.get("subscribed") == "1";
    cx.write(move |tx| label_pages::set_subscribed(tx, &project, label, subscribed)).await?;
    Ok(to_list(&cx))
}

fn to_list(cx: &PageCx) -> axum::response::Response {
    response::redirect(&ProjectLinks::new(&cx.params.subject).to("labels"))
}

fn label_id(cx: &PageCx) -> Result<LabelId, PageError> {
    cx.number("label").map(LabelId::new)
}

fn input(fields: &Fields) -> Result<Unvalidated<NewLabel>, FormErrors> {
    let priority = match fields.get("priority").trim() {
        "" => None,
        text => {
            let number = text.parse().ok().filter(|number| *number <= model::labels::MAX_PRIORITY);
            Some(number.ok_or_else(|| FormErrors::one("priority", "is not a number"))?)
        }
    };
    Ok(Unvalidated::valid(NewLabel {
        title: fields.get("title").to_owned(),
        color: fields.get("color").trim().to_owned(),
        description: Some(fields.text("description")).filter(|text| !text.is_empty()),
        priority,
    }))
}

async fn render_new(cx: &PageCx, fields: &Fields, errors: FormErrors) -> PageResult {
    let project = cx.project();
    let (viewer, project) = cx.read(move |tx| label_pages::open_for_creation(tx, &project)).await?;
    let mut template = template(cx, &project, viewer, format!("New label · {}", project.full_path()));
    template.fill(fields);
    if errors.is_empty() {
        DEFAULT_COLOR.clone_into(&mut template.color);
    }
    template.errors = errors;
    response::page_with_status(template.errors.status(), &template)
}

async fn render_edit(cx: &PageCx, typed: Option<&Fields>, errors: FormErrors) -> PageResult {
    let (project, id) = (cx.project(), label_id(cx)?);
    let (viewer, found) = cx.read(move |tx| label_pages::open_for_editing(tx, &project, id)).await?;
    let InProject { project, value: label } = found;
    let title = format!("Edit label {} · {}", label.title, project.full_path());
    let mut template = template(cx, &project, viewer, title);
    if let Some(fields) = typed {
        template.fill(fields);
    } else {
        template.title.clone_from(&label.title);
        template.color.clone_from(&label.color);
        template.description = label.description.clone().unwrap_or_default();
        template.priority = label.priority.map(|priority| priority.to_string()).unwrap_or_default();
    }
    template.label = Some(label);
    template.errors = errors;
    response::page_with_status(template.errors.status(), &template)
}

fn template(cx: &PageCx, project: &Project, viewer: Viewer, title: String) -> LabelFormTemplate {
    LabelFormTemplate {
        head: ProjectHead::new(project, Tab::Issues, &viewer),
        layout: Layout::new(cx, viewer, title),
        section: Section::Labels,
        label: None,
        title: String::new(),
        color: String::new(),
        description: String::new(),
        priority: String::new(),
        errors: FormErrors::default(),
    }
}

impl LabelFormTemplate {
    fn fill(&mut self, fields: &Fields) {
        fields.get("title").clone_into(&mut self.title);
        fields.get("color").clone_into(&mut self.color);
        fields.get("description").clone_into(&mut self.description);
        fields.get("priority").clone_into(&mut self.priority);
    }
}
