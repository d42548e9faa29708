//! Labels of projects.

use model::{
    Label, Page, Project, Slice, Violations,
    labels::{self, LabelChanges, LabelRef, NewLabel},
};

use crate::{Ability, Error, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx, boards};

/// How many labels one request may name. Each may have to be looked for or made, and there is room for many.
const MOST_AT_ONCE: usize = 1000;

/// Which label shall be changed, and how.
#[derive(Clone, Debug)]
pub struct LabelEdit {
    /// What it is called so far.
    pub title: String,
    /// What shall be other.
    pub changes: LabelChanges,
}

/// The labels of a project, by title.
pub fn list(tx: &mut ReadTx<'_>, project: &ProjectRef, page: &Unvalidated<Page>) -> Result<Slice<Label>> {
    tx.may(Ability::Browse)?;
    let project = tx.open(project, ProjectAbility::ReadProject)?;
    let page = *page.get()?;
    if !project.tracks_work() {
        return Ok(Slice::empty(page));
    }
    let sight = tx.sight_in(&project);
    let found = store::labels::list(tx.db(), &sight, project.id, page)?;
    Ok(found.map(|label| shown(&project, label)))
}

/// Adds a label; its title must be free in the project.
pub fn create(tx: &mut WriteTx<'_>, project: &ProjectRef, new: &Unvalidated<NewLabel>) -> Result<Label> {
    let project = open_to_change(tx, project)?;
    let mut new = new.get()?.clone();
    if find_titled(tx, &project, &new.title)?.is_some() {
        return Err(Error::Taken("Label already exists".to_owned()));
    }
    new.title = labels::clean_title(&new.title);
    new.color = labels::clean_color(&new.color);
    labels::check(&new.title, &new.color, new.description.as_deref(), new.priority)?;
    let now = tx.now();
    Ok(store::labels::insert(tx.db(), project.id, &new, now)?)
}

/// Changes a label; a new title must be free in the project.
pub fn edit(tx: &mut WriteTx<'_>, project: &ProjectRef, edit: &Unvalidated<LabelEdit>) -> Result<Label> {
    let project = open_to_change(tx, project)?;
    let LabelEdit { title, changes } = edit.get()?.clone();
    store::issues::hold(tx.db(), project.id)?;
    let label = find_titled(tx, &project, &title)?;
    // The original says it twice, and clients compare the text.
    let label = label.ok_or(Error::not_found("Label not found"))?;
    // The title that it has is one, whatever it looks like.
    let title = changes.title.filter(|title| *title != label.title);
    let new = NewLabel {
        title: title.map_or_else(|| label.title.clone(), |title| labels::clean_title(&title)),
        color: changes.color.map_or_else(|| label.color.clone(), |color| labels::clean_color(&color)),
        description: changes.description.over(label.description.clone()),
        priority: changes.priority.over(label.priority),
    };
    labels::check(&new.title, &new.color, new.description.as_deref(), new.priority)?;
    if new.title != label.title && find(tx, &project, LabelRef::Title(new.title.clone()))?.is_some() {
        return Err(Violations::one("title", "has already been taken").into());
    }
    let now = tx.now();
    store::labels::update(tx.db(), label.id, &new, now)?;
    let NewLabel { title, color, description, priority } = new;
    Ok(Label { title, color, description, priority, ..label })
}

/// Removes a label, also from issues and from the board. Answers what it was.
pub fn delete(tx: &mut WriteTx<'_>, project: &ProjectRef, title: &Unvalidated<String>) -> Result<Label> {
    let project = open_to_change(tx, project)?;
    let title = title.get()?.clone();
    store::issues::hold(tx.db(), project.id)?;
    let label = find_titled(tx, &project, &title)?.ok_or(Error::not_found("Label"))?;
    boards::forget_label(tx, &project, label.id)?;
    store::labels::delete(tx.db(), label.id)?;
    Ok(label)
}

/// Lets the caller follow a label.
pub fn subscribe(tx: &mut WriteTx<'_>, project: &ProjectRef, label: &LabelRef) -> Result<Label> {
    let (me, label) = open_to_follow(tx, project, label)?;
    let now = tx.now();
    if !store::labels::subscribe(tx.db(), label.id, me, now)? {
        return Err(Error::Unchanged);
    }
    Ok(Label { subscribed: true, ..label })
}

/// Lets the caller follow a label no more.
pub fn unsubscribe(tx: &mut WriteTx<'_>, project: &ProjectRef, label: &LabelRef) -> Result<Label> {
    let (me, label) = open_to_follow(tx, project, label)?;
    if !store::labels::unsubscribe(tx.db(), label.id, me)? {
        return Err(Error::Unchanged);
    }
    Ok(Label { subscribed: false, ..label })
}

/// The numbers and titles of labels by their titles, for an issue that shall carry them. Those that are missing are made
/// if the actor may make labels, and left out if not.
pub(crate) fn find_or_make(tx: &mut WriteTx<'_>, project: &Project, titles: &[String]) -> Result<Vec<(i64, String)>> {
    refuse_too_many(titles)?;
    let mut found = store::labels::among_titles(tx.db(), project.id, titles)?;
    // What is called so to the letter comes first: a title may look like one that has yet to be cleaned.
    let mut missing: Vec<String> = Vec::new();
    for title in titles.iter().filter(|title| found.iter().all(|(_, known)| known != *title)) {
        let title = labels::clean_title(title);
        if !title.is_empty() && !title.contains(',') && !missing.contains(&title) {
            missing.push(title);
        }
    }
    let cleaned = store::labels::among_titles(tx.db(), project.id, &missing)?;
    missing.retain(|title| cleaned.iter().all(|(_, known)| known != title));
    found.extend(cleaned);
    found.sort_unstable();
    found.dedup();
    if !tx.can(project, ProjectAbility::AdministerLabels) {
        return Ok(found);
    }
    // Told as a fault of the labels: the title is that of the issue.
    let mut violations = Violations::new();
    if let Some(longest) = missing.iter().max_by_key(|title| title.chars().count()) {
        violations.longest("labels", longest, labels::LONGEST);
    }
    violations.into_result()?;
    let now = tx.now();
    for title in missing {
        let new = NewLabel { title, color: labels::DEFAULT_COLOR.to_owned(), description: None, priority: None };
        let made = store::labels::insert(tx.db(), project.id, &new, now)?;
        found.push((made.id, made.title));
    }
    Ok(found)
}

/// Refuses more labels at once than anybody means.
pub(crate) fn refuse_too_many(titles: &[String]) -> Result<()> {
    let text = || format!("are too many (maximum is {MOST_AT_ONCE} labels)");
    if titles.len() > MOST_AT_ONCE { Err(Violations::one("labels", text()).into()) } else { Ok(()) }
}

/// Opens a project whose labels the actor may change.
fn open_to_change(tx: &mut ReadTx<'_>, project: &ProjectRef) -> Result<Project> {
    tx.may(Ability::Browse)?;
    let project = tx.open(project, ProjectAbility::AdministerLabels)?;
    if project.tracks_work() { Ok(project) } else { Err(Error::Forbidden(None)) }
}

/// Finds a label that the actor may follow, and who that is.
fn open_to_follow(tx: &mut ReadTx<'_>, project: &ProjectRef, label: &LabelRef) -> Result<(i64, Label)> {
    let me = tx.my_id(Ability::Browse)?;
    let project = tx.open(project, ProjectAbility::ReadProject)?;
    let found = match label {
        _ if !project.tracks_work() => None,
        LabelRef::Number(..) => find(tx, &project, label.clone())?,
        LabelRef::Title(title) => find_titled(tx, &project, title)?,
    };
    Ok((me, found.ok_or(Error::not_found("Label"))?))
}

/// The label that somebody names by its title: as it is kept, or in a way that would be cleaned to that.
fn find_titled(tx: &mut ReadTx<'_>, project: &Project, title: &str) -> Result<Option<Label>> {
    match find(tx, project, LabelRef::Title(title.to_owned()))? {
        Some(label) => Ok(Some(label)),
        None => find(tx, project, LabelRef::Title(labels::clean_title(title))),
    }
}

/// One label as the actor sees it.
fn find(tx: &mut ReadTx<'_>, project: &Project, label: LabelRef) -> Result<Option<Label>> {
    let sight = tx.sight_in(project);
    let found = store::labels::find(tx.db(), &sight, project.id, &label)?;
    Ok(found.map(|label| shown(project, label)))
}

/// A label as it is shown: of issues that are switched off, nobody sees how many there are.
fn shown(project: &Project, label: Label) -> Label {
    if project.switches.issues_enabled { label } else { Label { open_issues: 0, closed_issues: 0, ..label } }
}
