//! The form for a new issue and for changing an issue.

use askama::Template;
use axum::{body::Body, http::StatusCode};
use forge::{
    Error, Unvalidated,
    browse::InProject,
    issue_pages::{self, IssueForm, IssueInput, ManagedFields},
};
use model::{IssueIid, MilestoneId, users::UserSummary};

use super::Section;
use crate::{
    context::PageCx,
    error::{PageError, PageResult},
    file_forms::FileForm,
    form_errors::FormErrors,
    forms::Fields,
    layout::{Layout, ProjectHead, Tab},
    links::ProjectLinks,
    response,
    text::{self, Markup},
};

#[derive(Template)]
#[template(path = "tracker/new_issue.html")]
struct NewIssueTemplate {
    layout: Layout,
    head: ProjectHead,
    section: Section,
    form: FormView,
}

#[derive(Template)]
#[template(path = "tracker/edit_issue.html")]
struct EditIssueTemplate {
    layout: Layout,
    head: ProjectHead,
    section: Section,
    iid: IssueIid,
    form: FormView,
    can_move: bool,
    can_remove: bool,
    /// The text to type before the issue is removed.
    full_reference: String,
    target: String,
    /// The current title and description, if the issue was changed after the form was opened.
    conflict: Option<(Markup, Markup)>,
}

/// The forms for an existing issue as they were submitted.
#[derive(Default)]
struct Edit {
    /// The fields of the issue; `None` if it is shown as it is stored.
    typed: Option<FileForm>,
    /// The path of the project to move the issue to.
    target: String,
    /// Whether the issue was changed after the form was opened.
    is_conflict: bool,
}

impl Edit {
    fn of(typed: FileForm) -> Self {
        Self { typed: Some(typed), ..Self::default() }
    }
}

/// The fields of the form.
struct FormView {
    title: String,
    description: String,
    /// `None` if the visitor may not change it.
    confidential: Option<bool>,
    managed: Option<ManagedView>,
    /// The version of the text that the visitor has seen; empty for a new issue.
    version: String,
    preview: Option<Markup>,
    errors: FormErrors,
}

/// The fields that only users who manage issues can set.
struct ManagedView {
    labels: Vec<LabelBox>,
    has_more_labels: bool,
    more_labels: String,
    assignee: String,
    members: Vec<UserSummary>,
    /// The id and the title of each milestone, and whether it is chosen.
    milestones: Vec<(MilestoneId, String, bool)>,
    due_on: String,
}

struct LabelBox {
    id: usize,
    title: String,
    name: Markup,
    is_checked: bool,
}

/// The fields of the form.
const FIELDS: [&str; 6] = ["title", "description", "assignee", "milestone_id", "due_date", "labels"];

/// Shows the form for a new issue. The query can set its fields.
pub(crate) async fn new(cx: PageCx) -> PageResult {
    render_new(&cx, cx.query().into()).await
}

/// Creates an issue.
pub(crate) async fn create(cx: PageCx, body: Body) -> PageResult {
    let form = cx.form_with_files(body).await?;
    if form.is_shown_again() {
        return render_new(&cx, form).await;
    }
    let (project, input) = (cx.project(), Unvalidated::valid(input(&form)));
    match cx.write(move |tx| issue_pages::create(tx, &project, &input)).await {
        Ok(issue) => Ok(response::redirect(&ProjectLinks::new(&cx.params.subject).issue(issue.iid))),
        Err(error) => render_new(&cx, form.with_errors(errors(error)?)).await,
    }
}

/// Shows the form of an issue.
pub(crate) async fn edit(cx: PageCx) -> PageResult {
    render_edit(&cx, Edit::default()).await
}

/// Changes an issue.
pub(crate) async fn update(cx: PageCx, body: Body) -> PageResult {
    let form = cx.form_with_files(body).await?;
    let iid = super::issue_number(&cx)?;
    if form.is_shown_again() {
        return render_edit(&cx, Edit::of(form)).await;
    }
    let (project, input) = (cx.project(), Unvalidated::valid(input(&form)));
    match cx.write(move |tx| issue_pages::update(tx, &project, iid, &input)).await {
        Ok(_) => Ok(response::redirect(&ProjectLinks::new(&cx.params.subject).issue(iid))),
        Err(Error::Conflicting(_)) => {
            let edit = Edit { typed: Some(form), is_conflict: true, ..Edit::default() };
            render_edit(&cx, edit).await
        }
        Err(error) => render_edit(&cx, Edit::of(form.with_errors(errors(error)?))).await,
    }
}

/// Moves an issue to another project.
pub(crate) async fn move_to(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let (project, iid) = (cx.project(), super::issue_number(&cx)?);
    let typed = fields.get("target").to_owned();
    let target = Unvalidated::valid(typed.clone());
    match cx.write(move |tx| issue_pages::move_to(tx, &project, iid, &target)).await {
        Ok(copy) => Ok(response::redirect(&ProjectLinks::new(&copy.project_path).issue(copy.iid))),
        Err(error) => render_refused_action(&cx, FormErrors::of(error, &["target"])?, &typed).await,
    }
}

/// Removes an issue, if its reference was typed.
pub(crate) async fn delete(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let (project, iid) = (cx.project(), super::issue_number(&cx)?);
    if fields.get("confirmation").trim() != format!("{}#{iid}", cx.params.subject) {
        let errors = FormErrors::one("confirmation", "does not match");
        return render_refused_action(&cx, errors, "").await;
    }
    cx.write(move |tx| issue_pages::delete(tx, &project, iid)).await?;
    Ok(response::redirect(&ProjectLinks::new(&cx.params.subject).to("issues")))
}

/// Returns the messages beside the fields.
fn errors(error: Error) -> Result<FormErrors, PageError> {
    Ok(FormErrors::by_field(error)?.renamed("milestone", "milestone_id").beside(&FIELDS))
}

fn input(form: &FileForm) -> IssueInput {
    let fields = &form.fields;
    let managed = (fields.get("managed") == "1").then(|| ManagedFields {
        labels: label_titles(fields),
        assignee: fields.get("assignee").to_owned(),
        milestone: fields.get("milestone_id").parse().ok(),
        due_on: fields.get("due_date").to_owned(),
    });
    // A box that is not checked is not sent.
    let confidential = match (fields.get("confidential"), fields.get("has_confidential")) {
        ("1", _) => Some(true),
        (_, "1") => Some(false),
        _ => None,
    };
    IssueInput {
        title: fields.get("title").trim().to_owned(),
        description: form.text_with_links("description"),
        confidential,
        managed,
        seen_version: Some(fields.get("version").to_owned()).filter(|version| !version.is_empty()),
    }
}

/// Returns the titles of the checked labels and of those that were typed.
fn label_titles(fields: &Fields) -> Vec<String> {
    let typed = fields.get("more_labels").split(',').map(str::trim);
    let titles = fields.all("labels").chain(typed).filter(|title| !title.is_empty());
    titles.map(ToOwned::to_owned).collect()
}

async fn render_new(cx: &PageCx, typed: FileForm) -> PageResult {
    let project = cx.project();
    let (viewer, found) = cx.read(move |tx| issue_pages::open_for_creation(tx, &project)).await?;
    let InProject { project, value } = found;
    let preview = typed.preview_of(cx, "description").await?;
    let template = NewIssueTemplate {
        head: ProjectHead::new(&project, Tab::Issues, &viewer),
        layout: Layout::new(cx, viewer, format!("New issue · {}", project.full_path())),
        section: Section::List,
        form: FormView { preview, ..FormView::new(value, Some(typed)) },
    };
    response::page_with_status(template.form.errors.status(), &template)
}

async fn render_refused_action(cx: &PageCx, errors: FormErrors, target: &str) -> PageResult {
    // The issue itself is shown as it is stored.
    let typed = Some(FileForm::default().with_errors(errors));
    render_edit(cx, Edit { typed, target: target.to_owned(), ..Edit::default() }).await
}

async fn render_edit(cx: &PageCx, edit: Edit) -> PageResult {
    let Edit { typed, target, is_conflict } = edit;
    let (project, iid) = (cx.project(), super::issue_number(cx)?);
    let (viewer, found) = cx.read(move |tx| issue_pages::open_for_editing(tx, &project, iid)).await?;
    let InProject { project, value } = found;
    let full_reference = format!("{}#{iid}", project.full_path());
    let preview = match &typed {
        Some(typed) => typed.preview_of(cx, "description").await?,
        None => None,
    };
    let stored = value.issue.as_ref();
    let version = stored.map(issue_pages::form_version).unwrap_or_default();
    // A form that is shown again still has the version that the visitor knows.
    let seen = typed.as_ref().map(|typed| typed.fields.get("version")).filter(|seen| !is_conflict && !seen.is_empty());
    let version = seen.map_or(version, ToOwned::to_owned);
    let conflict = stored.filter(|_| is_conflict).map(|issue| {
        let description = issue.description.as_deref().unwrap_or_default();
        (text::line(&issue.title), text::plain::preformatted(description))
    });
    let template = EditIssueTemplate {
        head: ProjectHead::new(&project, Tab::Issues, &viewer),
        layout: Layout::new(cx, viewer, format!("Edit issue {full_reference}")),
        section: Section::List,
        iid,
        can_move: value.can_move,
        can_remove: value.can_remove,
        form: FormView { version, preview, ..FormView::new(value, typed) },
        full_reference,
        target,
        conflict,
    };
    let status = if is_conflict { StatusCode::CONFLICT } else { template.form.errors.status() };
    response::page_with_status(status, &template)
}

impl FormView {
    /// Creates the fields with the values of the issue, or with what was typed.
    fn new(form: IssueForm, typed: Option<FileForm>) -> Self {
        let IssueForm { issue, choices, .. } = form;
        let errors = typed.as_ref().map(|typed| typed.errors.clone()).unwrap_or_default();
        // A refused action on an existing issue has none of the fields.
        let typed = typed.filter(|typed| issue.is_none() || typed.fields.get("form") == "issue");
        let text_of = |name: &str, stored: Option<String>| match &typed {
            Some(typed) => typed.fields.get(name).to_owned(),
            None => stored.unwrap_or_default(),
        };
        let may_publish = choices.is_some();
        let stored_confidential = issue.as_ref().is_some_and(|issue| issue.confidential);
        let confidential = match &typed {
            Some(typed) => typed.fields.get("confidential") == "1",
            None => stored_confidential,
        };
        let managed = choices.map(|choices| {
            let own = issue.as_ref().map(|issue| issue.labels.clone()).unwrap_or_default();
            let checked = typed
                .as_ref()
                .map_or_else(|| own.clone(), |typed| typed.fields.all("labels").map(ToOwned::to_owned).collect());
            let known = choices.labels.iter().map(|label| (label.title.clone(), label.color.clone()));
            let mut labels: Vec<(String, String)> = known.collect();
            for title in own.iter().chain(&checked) {
                if labels.iter().all(|(known, _)| known != title) {
                    labels.push((title.clone(), String::new()));
                }
            }
            let chosen = match &typed {
                Some(typed) => typed.fields.get("milestone_id").parse().ok(),
                None => issue.as_ref().and_then(|issue| issue.milestone.as_ref().map(|milestone| milestone.id)),
            };
            let mut milestones = choices.milestones;
            // The present milestone may be closed.
            if let Some(present) = issue.as_ref().and_then(|issue| issue.milestone.clone())
                && !milestones.contains(&present)
            {
                milestones.push(present);
            }
            let assignee = issue.as_ref().and_then(|issue| issue.assignee.as_ref());
            ManagedView {
                labels: labels
                    .into_iter()
                    .enumerate()
                    .map(|(id, (title, color))| LabelBox {
                        id,
                        name: text::labels::name(&title, &color),
                        is_checked: checked.contains(&title),
                        title,
                    })
                    .collect(),
                has_more_labels: choices.has_more_labels,
                more_labels: text_of("more_labels", None),
                assignee: text_of("assignee", assignee.map(|user| user.username.clone())),
                members: choices.members,
                milestones: milestones
                    .into_iter()
                    .map(|milestone| (milestone.id, milestone.title, Some(milestone.id) == chosen))
                    .collect(),
                due_on: text_of("due_date", issue.as_ref().and_then(|issue| issue.due_on).map(|day| day.to_string())),
            }
        });
        Self {
            title: text_of("title", issue.as_ref().map(|issue| issue.title.clone())),
            description: match &typed {
                Some(typed) => typed.text_with_links("description"),
                None => issue.as_ref().and_then(|issue| issue.description.clone()).unwrap_or_default(),
            },
            confidential: (may_publish || !stored_confidential).then_some(confidential),
            managed,
            version: String::new(),
            preview: None,
            errors,
        }
    }
}
