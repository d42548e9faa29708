//! Labels of projects.

use axum::extract::State;
use forge::labels::{self, LabelEdit};
use model::{
    Change, Label,
    labels::{LabelChanges, MAX_PRIORITY, NewLabel},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    App,
    context::ProjectCx,
    extract::LabelInPath,
    openapi::Tag,
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, OkJson, Reply, WithStatus},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Labels)
        .get("/projects/{id}/labels", "List the labels of a project, sorted by title", list)
        .post("/projects/{id}/labels", "Create a label", create)
        .with_statuses(&[409])
        .put("/projects/{id}/labels", "Update a label", edit)
        .delete("/projects/{id}/labels", "Delete a label and remove it from issues and the board", delete)
        .post("/projects/{id}/labels/{label_id}/subscription", "Subscribe to a label", subscribe)
        .with_statuses(&[304])
        .delete("/projects/{id}/labels/{label_id}/subscription", "Unsubscribe from a label", unsubscribe)
        .with_statuses(&[304])
}

async fn list(cx: ProjectCx, paging: Paging) -> Reply<Paged<LabelJson>> {
    let page = paging.page_of_short_list();
    let reply = cx.read_list(move |tx, project| {
        let found = labels::list(tx, project, &page)?;
        Ok(paging.reply(found, LabelJson::from))
    });
    Ok(reply.await?)
}

async fn create(
    State(app): State<App>,
    cx: ProjectCx,
    Params(params): Params<CreateLabel>,
) -> Reply<WithStatus<LabelJson>> {
    let new = params.map(|params| params.0);
    let label = cx.write(move |tx, project| labels::create(tx, project, &new)).await?;
    Ok(WithStatus(app.dialect().label_created_status(), label.into()))
}

async fn edit(State(app): State<App>, cx: ProjectCx, Params(params): Params<EditLabel>) -> Reply<OkJson<LabelJson>> {
    let required = app.dialect().required_in_label_edits();
    let edit = params.reject_if(|params| params.missing_parameters(required)).map(|params| params.0);
    let label = cx.write(move |tx, project| labels::edit(tx, project, &edit)).await?;
    Ok(OkJson(label.into()))
}

async fn delete(cx: ProjectCx, Params(params): Params<DeleteLabel>) -> Reply<OkJson<LabelJson>> {
    let title = params.map(|params| params.0);
    let label = cx.write(move |tx, project| labels::delete(tx, project, &title)).await?;
    Ok(OkJson(label.into()))
}

async fn subscribe(cx: ProjectCx, LabelInPath(label): LabelInPath) -> Reply<Created<LabelJson>> {
    let label = cx.write(move |tx, project| labels::subscribe(tx, project, &label)).await?;
    Ok(Created(label.into()))
}

async fn unsubscribe(cx: ProjectCx, LabelInPath(label): LabelInPath) -> Reply<OkJson<LabelJson>> {
    let label = cx.write(move |tx, project| labels::unsubscribe(tx, project, &label)).await?;
    Ok(OkJson(label.into()))
}

/// Reads the priority; a value above the maximum is malformed.
fn priority(from: &mut ParamReader<'_>) -> Change<i64> {
    let priority = from.integer_change("priority", "The priority, from 0 (most urgent) to 2147483647; null for none");
    if priority.set().is_some_and(|priority| *priority > MAX_PRIORITY) {
        from.reject("priority");
    }
    priority
}

struct CreateLabel(NewLabel);

impl FromParams for CreateLabel {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let title = from.required_text("name", "The title of the label");
        let color = from.required_text("color", "The color: # and three or six hexadecimal digits");
        let description = from.text("description", "The description").filter(|text| !text.is_empty());
        let priority = priority(from).apply_to(None);
        Self(NewLabel { title, color, description, priority })
    }
}

struct EditLabel(LabelEdit);

impl FromParams for EditLabel {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let title = from.required_text("name", "The current title of the label");
        let changes = LabelChanges {
            title: from.text("new_name", "The new title"),
            color: from.text("color", "The color: # and three or six hexadecimal digits"),
            description: Change::from_text(from.text("description", "The description")),
            priority: priority(from),
        };
        Self(LabelEdit { title, changes })
    }
}

impl EditLabel {
    /// Returns an error text if none of the required parameters is present.
    fn missing_parameters(&self, required: &[&str]) -> Option<String> {
        let LabelChanges { title, color, description, priority } = &self.0.changes;
        let is_present = |name: &&str| match *name {
            "new_name" => title.is_some(),
            "color" => color.is_some(),
            "description" => *description != Change::Keep,
            _ => *priority != Change::Keep,
        };
        let none_present = !required.iter().any(is_present);
        none_present.then(|| format!("{} are missing, at least one parameter must be provided", required.join(", ")))
    }
}

struct DeleteLabel(String);

impl FromParams for DeleteLabel {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.required_text("name", "The title of the label"))
    }
}

/// A label; the counts include only issues that the caller can see.
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
            id: id.get(),
            name: title,
            color,
            description,
            open_issues_count: open_issues,
            closed_issues_count: closed_issues,
            // Merge requests are not implemented yet.
            open_merge_requests_count: 0,
            subscribed,
            priority,
        }
    }
}
