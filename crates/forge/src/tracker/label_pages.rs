//! What the pages of labels show and change. A page names a label by its id.

use model::{
    Change, Label, LabelId, Page, Project, Slice,
    labels::{LabelChanges, LabelRef, NewLabel},
};

use crate::{
    Error, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx,
    browse::InProject,
    labels::{self, LabelEdit},
};

/// Lists the labels of a project by title, with the numbers of issues that the visitor can see.
pub fn list(tx: &mut ReadTx<'_>, project: &ProjectRef, page: &Unvalidated<Page>) -> Result<InProject<Slice<Label>>> {
    let project = tx.project(project, ProjectAbility::ViewIssues)?;
    let (page, visibility) = (*page.validate()?, tx.issue_visibility(&project));
    let value = store::labels::list(tx.db(), &visibility, project.id, page)?;
    Ok(InProject { project, value })
}

/// Returns a project in which the visitor may create labels.
pub fn open_for_creation(tx: &mut ReadTx<'_>, project: &ProjectRef) -> Result<Project> {
    let project = tx.project(project, ProjectAbility::AdministerLabels)?;
    tx.authorize_project(&project, ProjectAbility::ViewIssues)?;
    Ok(project)
}

/// Returns a label that the visitor may change.
pub fn open_for_editing(tx: &mut ReadTx<'_>, project: &ProjectRef, id: LabelId) -> Result<InProject<Label>> {
    let project = open_for_creation(tx, project)?;
    let value = find(tx, &project, id)?;
    Ok(InProject { project, value })
}

/// Creates a label.
pub fn create(tx: &mut WriteTx<'_>, project: &ProjectRef, new: &Unvalidated<NewLabel>) -> Result<Label> {
    labels::create(tx, project, new).map_err(|error| match error {
        Error::Taken(_) => model::Violations::one("title", "has already been taken").into(),
        other => other,
    })
}

/// Changes all fields of a label.
pub fn update(tx: &mut WriteTx<'_>, project: &ProjectRef, id: LabelId, new: &Unvalidated<NewLabel>) -> Result<Label> {
    let label = open_for_editing(tx.read(), project, id)?.value;
    let new = new.validate()?.clone();
    let changes = LabelChanges {
        title: Some(new.title),
        color: Some(new.color),
        description: new.description.map_or(Change::Clear, Change::Set),
        priority: new.priority.map_or(Change::Clear, Change::Set),
    };
    labels::edit(tx, project, &Unvalidated::valid(LabelEdit { title: label.title, changes }))
}

/// Deletes a label.
pub fn delete(tx: &mut WriteTx<'_>, project: &ProjectRef, id: LabelId) -> Result<Label> {
    let label = open_for_editing(tx.read(), project, id)?.value;
    labels::delete(tx, project, &Unvalidated::valid(label.title))
}

/// Subscribes the user to a label, or unsubscribes them. Nothing happens if they already are as wanted.
pub fn set_subscribed(tx: &mut WriteTx<'_>, project: &ProjectRef, id: LabelId, subscribed: bool) -> Result<()> {
    let found = tx.project(project, ProjectAbility::ReadIssues)?;
    let label = LabelRef::Title(find(tx.read(), &found, id)?.title);
    let result =
        if subscribed { labels::subscribe(tx, project, &label) } else { labels::unsubscribe(tx, project, &label) };
    match result {
        Ok(_) | Err(Error::Unchanged) => Ok(()),
        Err(error) => Err(error),
    }
}

fn find(tx: &mut ReadTx<'_>, project: &Project, id: LabelId) -> Result<Label> {
    let visibility = tx.issue_visibility(project);
    let found = store::labels::find(tx.db(), &visibility, project.id, &LabelRef::Number(id, id.to_string()))?;
    // The number may also be the title of another label.
    found.filter(|label| label.id == id).ok_or(Error::NotFound(None))
}
