//! Issues, one by one; their lists are in [`crate::issue_lists`].

use std::collections::HashMap;

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool},
};
use jiff::civil::Date;
use model::{
    Change, Issue, Time,
    issues::IssueState,
    members::{day_from, start_of},
    text::fold,
};

use crate::{
    Conn, Result, Sight,
    conn::on,
    fragment::Fragment,
    milestones::Row as MilestoneRow,
    schema::{
        issue_books, issue_labels, issue_subscriptions, issue_texts, issues, labels, milestones, namespaces, projects,
        users,
    },
    search::{END, SEPARATOR, escape_like},
    times::{from_micros, to_micros},
    users::SummaryRow,
};

/// An issue that is about to be written.
#[derive(Clone, Debug)]
pub struct NewIssue<'a> {
    /// The project that it belongs to.
    pub project: i64,
    /// Its number there, from [`next_number`].
    pub iid: i64,
    /// Who writes it; `None` if they are gone.
    pub author: Option<i64>,
    /// What it is about, in short.
    pub title: &'a str,
    /// What it is about, at length.
    pub description: Option<&'a str>,
    /// Who shall work on it.
    pub assignee: Option<i64>,
    /// The milestone that it shall belong to.
    pub milestone: Option<i64>,
    /// The last day for it.
    pub due_on: Option<Date>,
    /// Whether only some may see it.
    pub confidential: bool,
    /// When it was written.
    pub created_at: Time,
    /// When it comes here.
    pub now: Time,
}

/// What becomes of an issue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update<'a> {
    /// What it is about, in short.
    pub title: Option<&'a str>,
    /// What it is about, at length.
    pub description: Change<String>,
    /// Whether it is closed; one that is opened again says so.
    pub closed: Option<bool>,
    /// Whether only some may see it.
    pub confidential: Option<bool>,
    /// Who works on it.
    pub assignee: Change<i64>,
    /// The milestone that it belongs to.
    pub milestone: Change<i64>,
    /// The last day for it.
    pub due_on: Change<Date>,
    /// What it became in another project.
    pub moved_to: Option<i64>,
}

diesel::alias! {
    const AUTHORS: Alias<Authors> = users as authors;
    const ASSIGNEES: Alias<Assignees> = users as assignees;
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = issues)]
struct Row {
    id: i64,
    iid: i64,
    project_id: i64,
    title: String,
    description: Option<String>,
    closed: bool,
    reopened: bool,
    confidential: bool,
    due_on: Option<i64>,
    moved_to_id: Option<i64>,
    user_notes: i64,
    created_at: i64,
    updated_at: i64,
}

/// An issue with the paths of namespace and project, its author, its assignee, its milestone, and whether it is followed.
type FullRow = (Row, (String, String), Option<SummaryRow>, Option<SummaryRow>, Option<MilestoneRow>, bool);

fn to_issue(row: FullRow, labels: Vec<String>) -> Issue {
    let (row, (namespace, path), author, assignee, milestone, subscribed) = row;
    let Row {
        id,
        iid,
        project_id,
        title,
        description,
        closed,
        reopened,
        confidential,
        due_on,
        moved_to_id,
        user_notes,
        created_at,
        updated_at,
    } = row;
    let state = match (closed, reopened) {
        (true, _) => IssueState::Closed,
        (false, true) => IssueState::Reopened,
        (false, false) => IssueState::Opened,
    };
    Issue {
        id,
        iid,
        project: project_id,
        project_path: format!("{namespace}/{path}"),
        title,
        description,
        state,
        confidential,
        author: author.map(Into::into),
        assignee: assignee.map(Into::into),
        milestone: milestone.map(Into::into),
        labels,
        due_on: due_on.map(day_from),
        moved_to: moved_to_id,
        user_notes,
        subscribed,
        created_at: from_micros(created_at),
        updated_at: from_micros(updated_at),
    }
}

/// Whether a user follows an issue: what they said, or else whether they wrote it, work on it or talk about it.
fn follows(user: i64) -> Fragment<Bool> {
    Fragment::new(
        "coalesce((SELECT s.subscribed FROM issue_subscriptions s WHERE s.issue_id = issues.id AND s.user_id = ",
    )
    .number(user)
    .sql("), issues.author_id = ")
    .number(user)
    .sql(" OR issues.assignee_id = ")
    .number(user)
    .sql(" OR EXISTS (SELECT 1 FROM notes n WHERE n.issue_id = issues.id AND n.author_id = ")
    .number(user)
    .sql(" AND NOT n.system), FALSE)")
}

/// The issues for which something holds, as a user sees them and in whatever order: two statements, however many.
fn load_where(db: &mut Conn, user: i64, holds: &Fragment<Bool>) -> Result<Vec<Issue>> {
    let person = (users::id, users::username, users::name, users::state, users::created_at);
    let rows: Vec<FullRow> = on!(db, conn => issues::table
        .inner_join(projects::table.inner_join(namespaces::table))
        .left_join(AUTHORS.on(AUTHORS.field(users::id).nullable().eq(issues::author_id)))
        .left_join(ASSIGNEES.on(ASSIGNEES.field(users::id).nullable().eq(issues::assignee_id)))
        .left_join(milestones::table)
        .filter(holds.clone())
        .select((
            Row::as_select(),
            (namespaces::full_path, projects::path),
            AUTHORS.fields(person).nullable(),
            ASSIGNEES.fields(person).nullable(),
            Option::<MilestoneRow>::as_select(),
            follows(user),
        ))
        .load(conn))?;
    let ids: Vec<i64> = rows.iter().map(|(row, ..)| row.id).collect();
    let mut labels = labels_among(db, &ids)?;
    let whole = |row: FullRow| {
        let own = labels.remove(&row.0.id).unwrap_or_default();
        to_issue(row, own.into_iter().map(|(_, title)| title).collect())
    };
    Ok(rows.into_iter().map(whole).collect())
}

/// The issues with these numbers, in this order, as a user sees them.
pub(crate) fn load(db: &mut Conn, user: i64, ids: &[i64]) -> Result<Vec<Issue>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = load_where(db, user, &Fragment::new("issues.id").among(ids))?;
    let places: HashMap<i64, usize> = ids.iter().enumerate().map(|(at, id)| (*id, at)).collect();
    found.sort_by_key(|issue| places.get(&issue.id));
    Ok(found)
}

/// The numbers and titles of the labels of issues, in alphabetical order.
fn labels_among(db: &mut Conn, issues: &[i64]) -> Result<HashMap<i64, Vec<(i64, String)>>> {
    let mut found: HashMap<i64, Vec<(i64, String)>> = HashMap::new();
    if issues.is_empty() {
        return Ok(found);
    }
    let rows: Vec<(i64, i64, String)> = on!(db, conn => issue_labels::table
        .inner_join(labels::table)
        .filter(Fragment::<Bool>::new("issue_labels.issue_id").among(issues))
        .order((labels::title_key, labels::title))
        .select((issue_labels::issue_id, labels::id, labels::title))
        .load(conn))?;
    for (issue, id, title) in rows {
        found.entry(issue).or_default().push((id, title));
    }
    Ok(found)
}

/// Keeps everybody else from changing issues of a project while the transaction lasts; SQLite has one writer anyway.
/// Whoever writes to issues of a project asks for this first, so that they come one after the other.
pub fn hold(db: &mut Conn, project: i64) -> Result<()> {
    if let Conn::Pg(conn) = db {
        let _: Option<i64> =
            issue_books::table.find(project).select(issue_books::project_id).for_update().first(conn).optional()?;
    }
    Ok(())
}

/// The next number of an issue in a project.
pub fn next_number(db: &mut Conn, project: i64) -> Result<i64> {
    Ok(on!(db, conn => diesel::update(issue_books::table.find(project))
        .set(issue_books::last_issue.eq(issue_books::last_issue + 1))
        .returning(issue_books::last_issue)
        .get_result(conn))?)
}

/// Adds an issue; says its number.
pub fn insert(db: &mut Conn, new: &NewIssue<'_>) -> Result<i64> {
    let id = on!(db, conn => diesel::insert_into(issues::table)
        .values((
            issues::project_id.eq(new.project),
            issues::iid.eq(new.iid),
            issues::title.eq(new.title),
            issues::description.eq(new.description),
            issues::confidential.eq(new.confidential),
            issues::author_id.eq(new.author),
            issues::assignee_id.eq(new.assignee),
            issues::milestone_id.eq(new.milestone),
            issues::due_on.eq(new.due_on.map(start_of)),
            issues::created_at.eq(to_micros(new.created_at)),
            issues::updated_at.eq(to_micros(new.now)),
        ))
        .returning(issues::id)
        .get_result(conn))?;
    let text = search_text(new.title, new.description);
    on!(db, conn => diesel::insert_into(issue_texts::table)
        .values((issue_texts::issue_id.eq(id), issue_texts::search_text.eq(&text)))
        .execute(conn))?;
    Ok(id)
}

/// An issue of a project, as somebody sees it.
pub fn find(db: &mut Conn, sight: &Sight, project: i64, id: i64) -> Result<Option<Issue>> {
    one(db, sight, project, &Fragment::new("issues.id = ").number(id))
}

/// The issue of a project with this number there, as somebody sees it.
pub fn by_number(db: &mut Conn, sight: &Sight, project: i64, iid: i64) -> Result<Option<Issue>> {
    one(db, sight, project, &Fragment::new("issues.iid = ").number(iid))
}

fn one(db: &mut Conn, sight: &Sight, project: i64, is: &Fragment<Bool>) -> Result<Option<Issue>> {
    let holds = is.clone().sql(" AND issues.project_id = ").number(project).sql(" AND ").then(sight.sees("issues"));
    Ok(load_where(db, sight.user, &holds)?.pop())
}

/// Who changed an issue last, if anybody has and is still there.
pub fn updated_by(db: &mut Conn, id: i64) -> Result<Option<i64>> {
    let found: Option<Option<i64>> =
        on!(db, conn => issues::table.find(id).select(issues::updated_by_id).first(conn).optional())?;
    Ok(found.flatten())
}

/// The columns that an update touches; `None` leaves a column alone, `Some(None)` empties it.
#[derive(AsChangeset)]
#[diesel(table_name = issues)]
struct Columns<'a> {
    title: Option<&'a str>,
    description: Option<Option<&'a str>>,
    closed: Option<bool>,
    reopened: Option<bool>,
    confidential: Option<bool>,
    assignee_id: Option<Option<i64>>,
    milestone_id: Option<Option<i64>>,
    due_on: Option<Option<i64>>,
    moved_to_id: Option<i64>,
    updated_by_id: Option<Option<i64>>,
    updated_at: i64,
}

/// Changes an issue. Even if nothing is changed, it is from now on one that was changed now by this user.
pub fn update(db: &mut Conn, id: i64, update: &Update<'_>, by: Option<i64>, now: Time) -> Result<()> {
    let description = nullable(&update.description).map(|text| text.map(String::as_str));
    if update.title.is_some() || description.is_some() {
        let (old_title, old_description): (String, Option<String>) =
            on!(db, conn => issues::table.find(id).select((issues::title, issues::description)).first(conn))?;
        let (title, text) = (update.title.unwrap_or(&old_title), description.unwrap_or(old_description.as_deref()));
        let text = search_text(title, text);
        on!(db, conn => diesel::update(issue_texts::table.find(id))
            .set(issue_texts::search_text.eq(&text))
            .execute(conn))?;
    }
    let reopened = match update.closed {
        Some(false) => {
            let was: (bool, bool) =
                on!(db, conn => issues::table.find(id).select((issues::closed, issues::reopened)).first(conn))?;
            Some(was.0 || was.1)
        }
        _ => None,
    };
    let columns = Columns {
        title: update.title,
        description,
        closed: update.closed,
        reopened,
        confidential: update.confidential,
        assignee_id: nullable(&update.assignee).map(Option::<&i64>::copied),
        milestone_id: nullable(&update.milestone).map(Option::<&i64>::copied),
        due_on: nullable(&update.due_on).map(|day| day.copied().map(start_of)),
        moved_to_id: update.moved_to,
        updated_by_id: Some(by),
        updated_at: to_micros(now),
    };
    on!(db, conn => diesel::update(issues::table.find(id)).set(&columns).execute(conn))?;
    Ok(())
}

/// A change of a column that may be empty, as Diesel reads it.
#[expect(clippy::option_option, reason = "Diesel tells leaving alone from emptying by it")]
fn nullable<T>(change: &Change<T>) -> Option<Option<&T>> {
    match change {
        Change::Keep => None,
        Change::Clear => Some(None),
        Change::Set(value) => Some(Some(value)),
    }
}

/// Removes an issue with all that hangs on it.
pub fn delete(db: &mut Conn, id: i64) -> Result<()> {
    on!(db, conn => diesel::delete(issues::table.find(id)).execute(conn))?;
    Ok(())
}

/// The labels of an issue with their numbers, in alphabetical order.
pub fn labels_of(db: &mut Conn, issue: i64) -> Result<Vec<(i64, String)>> {
    Ok(labels_among(db, &[issue])?.remove(&issue).unwrap_or_default())
}

/// Puts labels of its project onto an issue.
pub fn add_labels(db: &mut Conn, issue: i64, labels: &[i64]) -> Result<()> {
    if labels.is_empty() {
        return Ok(());
    }
    let add = || {
        Fragment::<BigInt>::new(
            "INSERT INTO issue_labels (issue_id, label_id) SELECT i.id, l.id FROM issues i \
             JOIN labels l ON l.project_id = i.project_id WHERE i.id = ",
        )
        .number(issue)
        .sql(" AND l.id")
        .among(labels)
        .sql(" ORDER BY l.id ON CONFLICT DO NOTHING")
    };
    on!(db, conn => add().execute(conn))?;
    Ok(())
}

/// Takes labels off an issue.
pub fn remove_labels(db: &mut Conn, issue: i64, labels: &[i64]) -> Result<()> {
    if labels.is_empty() {
        return Ok(());
    }
    on!(db, conn => diesel::delete(issue_labels::table
        .filter(issue_labels::issue_id.eq(issue))
        .filter(Fragment::<Bool>::new("issue_labels.label_id").among(labels)))
        .execute(conn))?;
    Ok(())
}

/// Notes whether somebody wants to follow an issue.
pub fn set_subscribed(db: &mut Conn, issue: i64, user: i64, subscribed: bool) -> Result<()> {
    on!(db, conn => diesel::insert_into(issue_subscriptions::table)
        .values((
            issue_subscriptions::issue_id.eq(issue),
            issue_subscriptions::user_id.eq(user),
            issue_subscriptions::subscribed.eq(subscribed),
        ))
        .on_conflict((issue_subscriptions::issue_id, issue_subscriptions::user_id))
        .do_update()
        .set(issue_subscriptions::subscribed.eq(subscribed))
        .execute(conn))?;
    Ok(())
}

/// Copies what was said about an issue to another one, the service's own notes included, save those that begin with a word.
pub fn copy_notes(db: &mut Conn, from: i64, to: i64, project: i64, except: &str) -> Result<()> {
    let copy = || {
        Fragment::<BigInt>::new(
            "INSERT INTO notes \
             (project_id, issue_id, author_id, updated_by_id, body, system, created_at, updated_at) SELECT ",
        )
        .number(project)
        .sql(", ")
        .number(to)
        .sql(", author_id, updated_by_id, body, system, created_at, updated_at FROM notes WHERE issue_id = ")
        .number(from)
        .sql(" AND NOT (system AND body LIKE ")
        .words(format!("{} %", escape_like(except)))
        .sql(" ESCAPE '\\') ORDER BY id")
    };
    on!(db, conn => copy().execute(conn))?;
    Ok(())
}

/// What a search looks into; the separator keeps it from matching across the parts.
fn search_text(title: &str, description: Option<&str>) -> String {
    fold(&[title, description.unwrap_or_default()].join(SEPARATOR)) + END
}
