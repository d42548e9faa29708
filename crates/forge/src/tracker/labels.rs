//! Labels of projects.

use model::{
    Label, LabelId, Page, Project, Slice, UserId, Violations,
    labels::{self, LabelChanges, LabelRef, NewLabel},
};

use crate::{Error, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx, boards};

/// The maximum number of labels in a request; each may have to be looked up or created.
const MAX_LABELS: usize = 1000;

/// A label to change, and its changes.
#[derive(Clone, Debug)]
pub struct LabelEdit {
    /// The present title.
    pub title: String,
    /// The fields to change.
    pub changes: LabelChanges,
}

/// Lists the labels of a project by title.
pub fn list(tx: &mut ReadTx<'_>, project: &ProjectRef, page: &Unvalidated<Page>) -> Result<Slice<Label>> {
    let project = tx.project(project, ProjectAbility::ReadProject)?;
    let page = *page.validate()?;
    if !project.has_tracker() {
        return Ok(Slice::empty(page));
    }
    let visibility = tx.issue_visibility(&project);
    let found = store::labels::list(tx.db(), &visibility, project.id, page)?;
    Ok(found.map(|label| hide_counts_if_disabled(&project, label)))
}

/// Creates a label; the title must be unique within the project.
pub fn create(tx: &mut WriteTx<'_>, project: &ProjectRef, new: &Unvalidated<NewLabel>) -> Result<Label> {
    let project = open_for_update(tx.read(), project)?;
    let mut new = new.validate()?.clone();
    if find_by_title(tx.read(), &project, &new.title)?.is_some() {
        return Err(Error::Taken("Label already exists".to_owned()));
    }
    new.title = labels::clean_title(&new.title);
    new.color = labels::clean_color(&new.color);
    labels::check(&new.title, &new.color, new.description.as_deref(), new.priority)?;
    let now = tx.now();
    Ok(store::labels::insert(tx.db(), project.id, &new, now)?)
}

/// Updates a label; the title must be unique within the project.
pub fn edit(tx: &mut WriteTx<'_>, project: &ProjectRef, edit: &Unvalidated<LabelEdit>) -> Result<Label> {
    let project = open_for_update(tx.read(), project)?;
    let LabelEdit { title, changes } = edit.validate()?.clone();
    store::issues::lock_project(tx.db(), project.id)?;
    let label = find_by_title(tx.read(), &project, &title)?;
    // GitLab 8.14 answers "404 Label not found Not Found", and clients compare the text.
    let label = label.ok_or(Error::not_found("Label not found"))?;
    // The present title is kept as it is, even if it would be cleaned.
    let title = changes.title.filter(|title| *title != label.title);
    let new = NewLabel {
        title: title.map_or_else(|| label.title.clone(), |title| labels::clean_title(&title)),
        color: changes.color.map_or_else(|| label.color.clone(), |color| labels::clean_color(&color)),
        description: changes.description.apply_to(label.description.clone()),
        priority: changes.priority.apply_to(label.priority),
    };
    labels::check(&new.title, &new.color, new.description.as_deref(), new.priority)?;
    if new.title != label.title && find(tx.read(), &project, LabelRef::Title(new.title.clone()))?.is_some() {
        return Err(Violations::one("title", "has already been taken").into());
    }
    let now = tx.now();
    store::labels::update(tx.db(), label.id, &new, now)?;
    let NewLabel { title, color, description, priority } = new;
    Ok(Label { title, color, description, priority, ..label })
}

/// Deletes a label, removes it from issues and from the board, and returns it.
pub fn delete(tx: &mut WriteTx<'_>, project: &ProjectRef, title: &Unvalidated<String>) -> Result<Label> {
    let project = open_for_update(tx.read(), project)?;
    let title = title.validate()?.clone();
    store::issues::lock_project(tx.db(), project.id)?;
    let label = find_by_title(tx.read(), &project, &title)?.ok_or(Error::not_found("Label"))?;
    boards::remove_list_of_label(tx, &project, label.id)?;
    store::labels::delete(tx.db(), label.id)?;
    Ok(label)
}

/// Subscribes the caller to a label.
pub fn subscribe(tx: &mut WriteTx<'_>, project: &ProjectRef, label: &LabelRef) -> Result<Label> {
    let (me, label) = open_for_subscription(tx.read(), project, label)?;
    let now = tx.now();
    if !store::labels::subscribe(tx.db(), label.id, me, now)? {
        return Err(Error::Unchanged);
    }
    Ok(Label { subscribed: true, ..label })
}

/// Unsubscribes the caller from a label.
pub fn unsubscribe(tx: &mut WriteTx<'_>, project: &ProjectRef, label: &LabelRef) -> Result<Label> {
    let (me, label) = open_for_subscription(tx.read(), project, label)?;
    if !store::labels::unsubscribe(tx.db(), label.id, me)? {
        return Err(Error::Unchanged);
    }
    Ok(Label { subscribed: false, ..label })
}

/// Returns the ids and titles of the labels with these titles. Missing labels are created if the caller may create
/// labels, and left out otherwise.
pub(crate) fn find_or_create(
    tx: &mut WriteTx<'_>,
    project: &Project,
    titles: &[String],
) -> Result<Vec<(LabelId, String)>> {
    check_label_count(titles)?;
    let mut found = store::labels::by_titles(tx.db(), project.id, titles)?;
    // Exact matches come first: a stored title may look like one that is not cleaned yet.
    let mut missing: Vec<String> = Vec::new();
    for title in titles.iter().filter(|title| found.iter().all(|(_, known)| known != *title)) {
        let title = labels::clean_title(title);
        if !title.is_empty() && !title.contains(',') && !missing.contains(&title) {
            missing.push(title);
        }
    }
    let cleaned = store::labels::by_titles(tx.db(), project.id, &missing)?;
    missing.retain(|title| cleaned.iter().all(|(_, known)| known != title));
    found.extend(cleaned);
    found.sort_unstable();
    found.dedup();
    if !tx.can(project, ProjectAbility::AdministerLabels) {
        return Ok(found);
    }
    // Reported on the parameter `labels`; `title` is the title of the issue.
    let mut violations = Violations::new();
    if let Some(longest) = missing.iter().max_by_key(|title| title.chars().count()) {
        violations.max_length("labels", longest, labels::MAX_LENGTH);
    }
    violations.into_result()?;
    let now = tx.now();
    for title in missing {
        let new = NewLabel { title, color: labels::DEFAULT_COLOR.to_owned(), description: None, priority: None };
        let created = store::labels::insert(tx.db(), project.id, &new, now)?;
        found.push((created.id, created.title));
    }
    Ok(found)
}

/// Rejects a request with too many labels.
pub(crate) fn check_label_count(titles: &[String]) -> Result<()> {
    let text = || format!("are too many (maximum is {MAX_LABELS} labels)");
    if titles.len() > MAX_LABELS { Err(Violations::one("labels", text()).into()) } else { Ok(()) }
}

/// Returns a project whose labels the caller may change.
fn open_for_update(tx: &mut ReadTx<'_>, project: &ProjectRef) -> Result<Project> {
    let project = tx.project(project, ProjectAbility::AdministerLabels)?;
    if project.has_tracker() { Ok(project) } else { Err(Error::Forbidden(None)) }
}

/// Returns the id of the caller and a label that they may subscribe to.
fn open_for_subscription(tx: &mut ReadTx<'_>, project: &ProjectRef, label: &LabelRef) -> Result<(UserId, Label)> {
    let project = tx.project(project, ProjectAbility::ReadProject)?;
    let me = tx.user_id()?;
    let found = match label {
        _ if !project.has_tracker() => None,
        LabelRef::Number(..) => find(tx, &project, label.clone())?,
        LabelRef::Title(title) => find_by_title(tx, &project, title)?,
    };
    Ok((me, found.ok_or(Error::not_found("Label"))?))
}

/// Finds a label by its stored title, or by a title that cleaning turns into it.
fn find_by_title(tx: &mut ReadTx<'_>, project: &Project, title: &str) -> Result<Option<Label>> {
    match find(tx, project, LabelRef::Title(title.to_owned()))? {
        Some(label) => Ok(Some(label)),
        None => find(tx, project, LabelRef::Title(labels::clean_title(title))),
    }
}

/// Finds a label, as seen by the caller.
fn find(tx: &mut ReadTx<'_>, project: &Project, label: LabelRef) -> Result<Option<Label>> {
    let visibility = tx.issue_visibility(project);
    let found = store::labels::find(tx.db(), &visibility, project.id, &label)?;
    Ok(found.map(|label| hide_counts_if_disabled(project, label)))
}

/// Hides the numbers of issues if issues are disabled.
fn hide_counts_if_disabled(project: &Project, label: Label) -> Label {
    if project.features.issues_enabled { label } else { Label { open_issues: 0, closed_issues: 0, ..label } }
}
