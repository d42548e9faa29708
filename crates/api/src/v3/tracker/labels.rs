//! Labels of projects.

use axum::extract::State;
use forge::{
    Forge,
    labels::{self, LabelEdit},
};
use model::{
    Change, Label,
    labels::{LAST_PRIORITY, LabelChanges, NewLabel},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    App,
    extract::{Credentials, InProject, LabelName},
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, Done, Made, Reply},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/projects/{id}/labels", "Lists the labels of a project, by title", list)
        .post("/projects/{id}/labels", "Makes a label", create)
        .also(&[409])
        .put("/projects/{id}/labels", "Changes a label", edit)
        .delete("/projects/{id}/labels", "Removes a label, also from issues and from the board", delete)
        .post("/projects/{id}/labels/{label_id}/subscription", "Follows a label", subscribe)
        .also(&[304])
        .delete("/projects/{id}/labels/{label_id}/subscription", "Follows a label no more", unsubscribe)
        .also(&[304])
}

async fn list(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    paging: Paging,
) -> Reply<Paged<LabelJson>> {
    let page = paging.of_short_list();
    let found = forge.read(caller, move |tx| labels::list(tx, &project, &page)).await?;
    Ok(paging.answer(found.map(LabelJson::from)))
}

async fn create(
    State(app): State<App>,
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<CreateLabel>,
) -> Reply<Made<LabelJson>> {
    let new = given.map(|given| given.0);
    let label = forge.write(caller, move |tx| labels::create(tx, &project, &new)).await?;
    Ok(Made(app.dialect().label_made(), label.into()))
}

async fn edit(
    State(app): State<App>,
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<EditLabel>,
) -> Reply<Done<LabelJson>> {
    let needed = app.dialect().needed_in_label_edits();
    let edit = given.unless(|given| given.lacks(needed)).map(|given| given.0);
    let label = forge.write(caller, move |tx| labels::edit(tx, &project, &edit)).await?;
    Ok(Done(label.into()))
}

async fn delete(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<DeleteLabel>,
) -> Reply<Done<LabelJson>> {
    let title = given.map(|given| given.0);
    let label = forge.write(caller, move |tx| labels::delete(tx, &project, &title)).await?;
    Ok(Done(label.into()))
}

async fn subscribe(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    LabelName(label): LabelName,
) -> Reply<Created<LabelJson>> {
    let label = forge.write(caller, move |tx| labels::subscribe(tx, &project, &label)).await?;
    Ok(Created(label.into()))
}

async fn unsubscribe(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    LabelName(label): LabelName,
) -> Reply<Done<LabelJson>> {
    let label = forge.write(caller, move |tx| labels::unsubscribe(tx, &project, &label)).await?;
    Ok(Done(label.into()))
}

/// Reads the priority; one that no label can have is malformed.
fn priority(from: &mut ParamReader<'_>) -> Change<i64> {
    let priority = from.integer_change("priority", "The less, the more urgent; null for none");
    if priority.set().is_some_and(|priority| *priority > LAST_PRIORITY) {
        from.fault("priority");
    }
    priority
}

struct CreateLabel(NewLabel);

impl FromParams for CreateLabel {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let title = from.required_text("name", "What the label is called");
        let color = from.required_text("color", "Its color: # and six or three hexadecimal digits");
        let description = from.text("description", "What it stands for").filter(|text| !text.is_empty());
        let priority = priority(from).over(None);
        Self(NewLabel { title, color, description, priority })
    }
}

struct EditLabel(LabelEdit);

impl FromParams for EditLabel {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let title = from.required_text("name", "What the label is called so far");
        let changes = LabelChanges {
            title: from.text("new_name", "What it shall be called"),
            color: from.text("color", "Its color: # and six or three hexadecimal digits"),
            description: Change::from_text(from.text("description", "What it stands for")),
            priority: priority(from),
        };
        Self(LabelEdit { title, changes })
    }
}

impl EditLabel {
    /// The fault of an edit that brings none of the parameters of which it needs one.
    fn lacks(&self, needed: &[&str]) -> Option<String> {
        let LabelChanges { title, color, description, priority } = &self.0.changes;
        let brings = |name: &&str| match *name {
            "new_name" => title.is_some(),
            "color" => color.is_some(),
            "description" => *description != Change::Keep,
            _ => *priority != Change::Keep,
        };
        let lacks = !needed.iter().any(brings);
        lacks.then(|| format!("{} are missing, at least one parameter must be provided", needed.join(", ")))
    }
}

struct DeleteLabel(String);

impl FromParams for DeleteLabel {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.required_text("name", "What the label is called"))
    }
}

/// A label, as the caller sees it.
#[derive(Serialize, JsonSchema)]
struct LabelJson {
    id: i64,
    name: String,
    color: String,
    description: Option<String>,
    open_issues_count: i64,
    closed_issues_count: i64,
    open_merge_requests_count: i64,
    subscribed: bool,
    priority: Option<i64>,
}

impl From<Label> for LabelJson {
    fn from(label: Label) -> Self {
        let Label { id, project: _, title, color, description, priority, open_issues, closed_issues, subscribed } =
            label;
        Self {
            id,
            name: title,
            color,
            description,
            open_issues_count: open_issues,
            closed_issues_count: closed_issues,
            // There are no merge requests yet.
            open_merge_requests_count: 0,
            subscribed,
            priority,
        }
    }
}
