//! The milestones of a project: the list, a milestone with its issues, and the form of a milestone.

use askama::Template;
use axum::{body::Body, http::StatusCode};
use forge::{
    ProjectAbility, Unvalidated,
    browse::InProject,
    milestone_pages::{self, CountedMilestone, MilestoneInput, MilestonePage},
};
use model::{Milestone, MilestoneIid, Project};

use super::{Section, rows::IssueRow};
use crate::{
    context::{PageCx, Viewer},
    error::{PageError, PageResult},
    file_forms::FileForm,
    form_errors::FormErrors,
    layout::{Layout, ProjectHead, Tab},
    links::ProjectLinks,
    paging::{self, Pager},
    response,
    text::{
        self, Markup,
        markdown::{self, Source},
        references::ReferenceLinks,
    },
};

const MILESTONES_PER_PAGE: i64 = 20;
const ISSUES_PER_PAGE: i64 = 30;
/// The fields of the form.
const FIELDS: [&str; 4] = ["title", "description", "start_date", "due_date"];

/// The states to choose from: value, label, and whether only closed milestones are listed.
const STATES: [(&str, &str, Option<bool>); 3] =
    [("opened", "open", Some(false)), ("closed", "closed", Some(true)), ("all", "all", None)];

#[derive(Template)]
#[template(path = "tracker/milestones.html")]
struct MilestonesTemplate {
    layout: Layout,
    head: ProjectHead,
    section: Section,
    /// Value, label, and whether it is the current one.
    states: Vec<(&'static str, &'static str, bool)>,
    milestones: Vec<CountedMilestone>,
    can_change: bool,
    pager: Pager,
}

#[derive(Template)]
#[template(path = "tracker/milestone.html")]
struct MilestoneTemplate {
    layout: Layout,
    head: ProjectHead,
    section: Section,
    counted: CountedMilestone,
    description: Option<Markup>,
    issues: Vec<IssueRow>,
    can_change: bool,
    pager: Pager,
}

#[derive(Template)]
#[template(path = "tracker/milestone_form.html")]
struct MilestoneFormTemplate {
    layout: Layout,
    head: ProjectHead,
    section: Section,
    /// The number of the milestone to change; `None` for a new one.
    iid: Option<MilestoneIid>,
    title: String,
    description: String,
    start_on: String,
    due_on: String,
    preview: Option<Markup>,
    errors: FormErrors,
}

/// Lists the milestones.
pub(crate) async fn list(cx: PageCx) -> PageResult {
    let (project, query) = (cx.project(), cx.query());
    let page = paging::requested(&query, MILESTONES_PER_PAGE);
    let state = STATES.iter().find(|(value, ..)| *value == query.get("state")).unwrap_or(&STATES[0]);
    let closed = state.2;
    let (viewer, found) = cx.read(move |tx| milestone_pages::list(tx, &project, closed, &page)).await?;
    let InProject { project, value } = found;
    response::page(&MilestonesTemplate {
        head: ProjectHead::new(&project, Tab::Issues, &viewer),
        section: Section::Milestones,
        states: STATES.iter().map(|(value, label, _)| (*value, *label, *value == state.0)).collect(),
        can_change: may_change(&viewer, &project),
        layout: Layout::new(&cx, viewer, format!("Milestones · {}", project.full_path())),
        pager: Pager::of(&cx.uri, &query, &value),
        milestones: value.items,
    })
}

/// Shows a milestone with its issues.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    let (project, iid, query) = (cx.project(), number(&cx)?, cx.query());
    let page = paging::requested(&query, ISSUES_PER_PAGE);
    let (viewer, (project, page, description)) = cx
        .run_blocking(move |cx| {
            let InProject { project, value } = cx.read(|tx| milestone_pages::get(tx, &project, iid, &page))?;
            let links = ProjectLinks::new(&project.full_path());
            let text = value.milestone.milestone.description.as_deref().filter(|text| !text.trim().is_empty());
            let references = ReferenceLinks::resolve(cx, &project, text)?;
            let description = text.map(|text| markdown::render_with(text, &Source::Project(links), &references));
            Ok((project, value, description))
        })
        .await?;
    let MilestonePage { milestone, issues, labels } = page;
    response::page(&MilestoneTemplate {
        head: ProjectHead::new(&project, Tab::Issues, &viewer),
        section: Section::Milestones,
        can_change: may_change(&viewer, &project),
        layout: Layout::new(
            &cx,
            viewer,
            format!("{} · Milestones · {}", milestone.milestone.title, project.full_path()),
        ),
        description,
        pager: Pager::of(&cx.uri, &query, &issues),
        issues: IssueRow::of_project(issues.items, &labels),
        counted: milestone,
    })
}

fn may_change(viewer: &Viewer, project: &Project) -> bool {
    viewer.user().is_some() && viewer.can_in(project, ProjectAbility::AdministerMilestones)
}

/// Shows the form for a new milestone.
pub(crate) async fn new(cx: PageCx) -> PageResult {
    render_new(&cx, None).await
}

/// Creates a milestone.
pub(crate) async fn create(cx: PageCx, body: Body) -> PageResult {
    let form = cx.form_with_files(body).await?;
    if form.is_shown_again() {
        return render_new(&cx, Some(form)).await;
    }
    let (project, input) = (cx.project(), input(&form));
    match cx.write(move |tx| milestone_pages::create(tx, &project, &input)).await {
        Ok(milestone) => Ok(to_milestone(&cx, milestone.iid)),
        Err(error) => render_new(&cx, Some(form.with_errors(FormErrors::of(error, &FIELDS)?))).await,
    }
}

/// Shows the form of a milestone.
pub(crate) async fn edit(cx: PageCx) -> PageResult {
    render_edit(&cx, None).await
}

/// Changes a milestone.
pub(crate) async fn update(cx: PageCx, body: Body) -> PageResult {
    let form = cx.form_with_files(body).await?;
    if form.is_shown_again() {
        return render_edit(&cx, Some(form)).await;
    }
    let (project, iid, input) = (cx.project(), number(&cx)?, input(&form));
    match cx.write(move |tx| milestone_pages::update(tx, &project, iid, &input)).await {
        Ok(milestone) => Ok(to_milestone(&cx, milestone.iid)),
        Err(error) => render_edit(&cx, Some(form.with_errors(FormErrors::of(error, &FIELDS)?))).await,
    }
}

/// Closes or reopens a milestone.
pub(crate) async fn set_state(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let (project, iid) = (cx.project(), number(&cx)?);
    let closed = match fields.get("state") {
        "close" => true,
        "reopen" => false,
        _ => return Err(StatusCode::UNPROCESSABLE_ENTITY.into()),
    };
    cx.write(move |tx| milestone_pages::set_closed(tx, &project, iid, closed)).await?;
    Ok(to_milestone(&cx, iid))
}

fn to_milestone(cx: &PageCx, iid: MilestoneIid) -> axum::response::Response {
    response::redirect(&ProjectLinks::new(&cx.params.subject).milestone(iid))
}

fn number(cx: &PageCx) -> Result<MilestoneIid, PageError> {
    cx.number("iid").map(MilestoneIid::new)
}

fn input(form: &FileForm) -> Unvalidated<MilestoneInput> {
    Unvalidated::valid(MilestoneInput {
        title: form.fields.get("title").to_owned(),
        description: form.text_with_links("description"),
        start_on: form.fields.get("start_date").to_owned(),
        due_on: form.fields.get("due_date").to_owned(),
    })
}

async fn render_new(cx: &PageCx, typed: Option<FileForm>) -> PageResult {
    let project = cx.project();
    let (viewer, project) = cx.read(move |tx| milestone_pages::open_for_creation(tx, &project)).await?;
    let title = format!("New milestone · {}", project.full_path());
    render(cx, &project, viewer, title, None, typed).await
}

async fn render_edit(cx: &PageCx, typed: Option<FileForm>) -> PageResult {
    let (project, iid) = (cx.project(), number(cx)?);
    let (viewer, found) = cx.read(move |tx| milestone_pages::open_for_editing(tx, &project, iid)).await?;
    let InProject { project, value: milestone } = found;
    let title = format!("Edit milestone {} · {}", milestone.title, project.full_path());
    render(cx, &project, viewer, title, Some(milestone), typed).await
}

async fn render(
    cx: &PageCx,
    project: &Project,
    viewer: Viewer,
    page_title: String,
    milestone: Option<Milestone>,
    typed: Option<FileForm>,
) -> PageResult {
    let stored = milestone.as_ref();
    let preview = match &typed {
        Some(typed) => typed.preview_of(cx, "description").await?,
        None => None,
    };
    let text = |name: &str, stored: Option<String>| match &typed {
        Some(typed) => typed.fields.get(name).to_owned(),
        None => stored.unwrap_or_default(),
    };
    let description = match &typed {
        Some(typed) => typed.text_with_links("description"),
        None => stored.and_then(|milestone| milestone.description.clone()).unwrap_or_default(),
    };
    let template = MilestoneFormTemplate {
        head: ProjectHead::new(project, Tab::Issues, &viewer),
        layout: Layout::new(cx, viewer, page_title),
        section: Section::Milestones,
        iid: stored.map(|milestone| milestone.iid),
        title: text("title", stored.map(|milestone| milestone.title.clone())),
        description,
        start_on: text("start_date", stored.and_then(|milestone| milestone.start_on).map(|day| day.to_string())),
        due_on: text("due_date", stored.and_then(|milestone| milestone.due_on).map(|day| day.to_string())),
        preview,
        errors: typed.map(|typed| typed.errors).unwrap_or_default(),
    };
    response::page_with_status(template.errors.status(), &template)
}
