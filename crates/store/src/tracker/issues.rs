//! Single issues; for lists see [`crate::issue_lists`].

use std::collections::HashMap;

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool},
};
use jiff::civil::Date;
use model::{
    Change, Issue, IssueId, IssueIid, LabelId, MilestoneId, ProjectId, Time, UserId,
    issues::{IssueOrder, IssueState},
    members::{date_from_micros, start_of_day},
    text::fold_case,
};

use crate::{
    Conn, IssueVisibility, Result,
    conn::on,
    constant::constant,
    fragment::Fragment,
    milestones::Row as MilestoneRow,
    page_ids::{PageIds, in_order},
    schema::{
        issue_books, issue_labels, issue_subscriptions, issue_texts, issues, labels, milestones, namespaces, projects,
        users,
    },
    search::{END, SEPARATOR, escape_like},
    times::{from_micros, to_micros},
    users::SummaryRow,
};

/// An issue to insert.
#[derive(Clone, Debug)]
pub struct NewIssue<'a> {
    /// The project id.
    pub project: ProjectId,
    /// The number within the project, from [`next_iid`].
    pub iid: IssueIid,
    /// The author; `None` if the account was deleted.
    pub author: Option<UserId>,
    /// The title.
    pub title: &'a str,
    /// The description.
    pub description: Option<&'a str>,
    /// The assignee.
    pub assignee: Option<UserId>,
    /// The milestone.
    pub milestone: Option<MilestoneId>,
    /// The due date.
    pub due_on: Option<Date>,
    /// Whether the issue is confidential.
    pub confidential: bool,
    /// The time of creation.
    pub created_at: Time,
    /// The time of insertion, stored as the time of the last change.
    pub now: Time,
}

/// The fields of an issue to change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IssueUpdate<'a> {
    /// The title.
    pub title: Option<&'a str>,
    /// The description.
    pub description: Change<String>,
    /// Whether to close or reopen the issue.
    pub closed: Option<bool>,
    /// Whether the issue is confidential.
    pub confidential: Option<bool>,
    /// The assignee.
    pub assignee: Change<UserId>,
    /// The milestone.
    pub milestone: Change<MilestoneId>,
    /// The due date.
    pub due_on: Change<Date>,
    /// The id of the issue that replaces this one in another project.
    pub moved_to: Option<IssueId>,
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

/// An issue with the paths of namespace and project, author, assignee, milestone, and whether the user is subscribed.
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
        id: IssueId::new(id),
        iid: IssueIid::new(iid),
        project: ProjectId::new(project_id),
        project_path: format!("{namespace}/{path}"),
        title,
        description,
        state,
        confidential,
        author: author.map(Into::into),
        assignee: assignee.map(Into::into),
        milestone: milestone.map(Into::into),
        labels,
        due_on: due_on.map(date_from_micros),
        moved_to: moved_to_id.map(IssueId::new),
        user_notes,
        subscribed,
        created_at: from_micros(created_at),
        updated_at: from_micros(updated_at),
    }
}

/// Returns whether a user is subscribed: explicitly, or else as author, assignee or commenter.
fn is_subscribed(user: UserId) -> Fragment<Bool> {
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

/// The selection of all queries for issues.
macro_rules! full_rows {
    ($user:expr, $condition:expr) => {{
        let summary_columns = (users::id, users::username, users::name, users::state, users::avatar, users::created_at);
        issues::table
            .inner_join(projects::table.inner_join(namespaces::table))
            .left_join(AUTHORS.on(AUTHORS.field(users::id).nullable().eq(issues::author_id)))
            .left_join(ASSIGNEES.on(ASSIGNEES.field(users::id).nullable().eq(issues::assignee_id)))
            .left_join(milestones::table)
            .filter($condition)
            .select((
                Row::as_select(),
                (namespaces::full_path, projects::path),
                AUTHORS.fields(summary_columns).nullable(),
                ASSIGNEES.fields(summary_columns).nullable(),
                Option::<MilestoneRow>::as_select(),
                is_subscribed($user),
            ))
    }};
}

/// Loads the issues that meet a condition, as seen by a user, in no particular order, with two statements.
fn load_where(db: &mut Conn, user: UserId, condition: &Fragment<Bool>) -> Result<Vec<Issue>> {
    let rows = on!(db, conn => full_rows!(user, condition.clone()).load(conn))?;
    with_labels(db, rows)
}

/// Loads issues, as seen by a user, in no particular order, with two statements.
fn load_by_ids(db: &mut Conn, user: UserId, ids: &[i64]) -> Result<Vec<Issue>> {
    let condition = || Fragment::<Bool>::new("issues.id").in_ids(ids);
    let rows = on!(db, conn => constant!(full_rows!(user, condition())).load(conn))?;
    with_labels(db, rows)
}

/// Loads the labels of issues.
fn with_labels(db: &mut Conn, rows: Vec<FullRow>) -> Result<Vec<Issue>> {
    let ids: Vec<IssueId> = rows.iter().map(|(row, ..)| IssueId::new(row.id)).collect();
    let mut labels = labels_of_issues(db, &ids)?;
    let with_labels = |row: FullRow| {
        let own = labels.remove(&IssueId::new(row.0.id)).unwrap_or_default();
        to_issue(row, own.into_iter().map(|(_, title)| title).collect())
    };
    Ok(rows.into_iter().map(with_labels).collect())
}

/// Loads the issues on a page, as seen by a user. `order` is the order of the page.
pub(crate) fn load(db: &mut Conn, user: UserId, ids: PageIds, order: IssueOrder) -> Result<Vec<Issue>> {
    match ids.known_on_sqlite(db)? {
        PageIds::Known(ids) if ids.is_empty() => Ok(Vec::new()),
        PageIds::Known(ids) => {
            let found = load_by_ids(db, user, &ids)?;
            Ok(in_order(&ids, found, |issue| issue.id.get()))
        }
        PageIds::Query { query, .. } => {
            let mut found = load_where(db, user, &Fragment::new("issues.id").in_query(query))?;
            let key = |issue: &Issue| (if order.by_update { issue.updated_at } else { issue.created_at }, issue.id);
            found.sort_unstable_by_key(key);
            if !order.ascending {
                found.reverse();
            }
            Ok(found)
        }
    }
}

/// Returns the ids and titles of the labels of each issue, in alphabetical order.
fn labels_of_issues(db: &mut Conn, issues: &[IssueId]) -> Result<HashMap<IssueId, Vec<(LabelId, String)>>> {
    let mut found: HashMap<IssueId, Vec<(LabelId, String)>> = HashMap::new();
    if issues.is_empty() {
        return Ok(found);
    }
    let rows: Vec<(i64, i64, String)> = on!(db, conn => constant!(issue_labels::table
        .inner_join(labels::table)
        .filter(Fragment::<Bool>::new("issue_labels.issue_id").in_ids(issues))
        .select((issue_labels::issue_id, labels::id, labels::title)))
    .load(conn))?;
    for (issue, id, title) in rows {
        found.entry(IssueId::new(issue)).or_default().push((LabelId::new(id), title));
    }
    // An issue has few labels; sorting in SQL takes as long as finding them.
    for labels in found.values_mut().filter(|labels| labels.len() > 1) {
        labels.sort_by_cached_key(|(_, title)| (fold_case(title), title.clone()));
    }
    Ok(found)
}

/// Locks the issues of a project until the end of the transaction; on SQLite, where there is one writer at a time, does
/// nothing. Every transaction that writes issues of a project takes this lock first.
pub fn lock_project(db: &mut Conn, project: ProjectId) -> Result<()> {
    if let Conn::Pg(conn) = db {
        let _: Option<i64> = issue_books::table
            .find(project.get())
            .select(issue_books::project_id)
            .for_update()
            .first(conn)
            .optional()?;
    }
    Ok(())
}

/// Allocates the next iid of a project.
pub fn next_iid(db: &mut Conn, project: ProjectId) -> Result<IssueIid> {
    let iid = on!(db, conn => diesel::update(issue_books::table.find(project.get()))
        .set(issue_books::last_issue.eq(issue_books::last_issue + 1))
        .returning(issue_books::last_issue)
        .get_result(conn))?;
    Ok(IssueIid::new(iid))
}

/// Inserts an issue and returns its id.
pub fn insert(db: &mut Conn, new: &NewIssue<'_>) -> Result<IssueId> {
    let id: i64 = on!(db, conn => diesel::insert_into(issues::table)
        .values((
            issues::project_id.eq(new.project.get()),
            issues::iid.eq(new.iid.get()),
            issues::title.eq(new.title),
            issues::description.eq(new.description),
            issues::confidential.eq(new.confidential),
            issues::author_id.eq(new.author.map(UserId::get)),
            issues::assignee_id.eq(new.assignee.map(UserId::get)),
            issues::milestone_id.eq(new.milestone.map(MilestoneId::get)),
            issues::due_on.eq(new.due_on.map(start_of_day)),
            issues::created_at.eq(to_micros(new.created_at)),
            issues::updated_at.eq(to_micros(new.now)),
        ))
        .returning(issues::id)
        .get_result(conn))?;
    let text = search_text(new.title, new.description);
    on!(db, conn => diesel::insert_into(issue_texts::table)
        .values((issue_texts::issue_id.eq(id), issue_texts::search_text.eq(&text)))
        .execute(conn))?;
    Ok(IssueId::new(id))
}

/// Finds an issue of a project, if it is visible.
pub fn find(db: &mut Conn, visibility: &IssueVisibility, project: ProjectId, id: IssueId) -> Result<Option<Issue>> {
    find_where(db, visibility, project, &Fragment::new("issues.id = ").number(id))
}

/// Finds the issue of a project with this iid, if it is visible.
pub fn by_iid(db: &mut Conn, visibility: &IssueVisibility, project: ProjectId, iid: IssueIid) -> Result<Option<Issue>> {
    find_where(db, visibility, project, &Fragment::new("issues.iid = ").number(iid))
}

fn find_where(
    db: &mut Conn,
    visibility: &IssueVisibility,
    project: ProjectId,
    key_condition: &Fragment<Bool>,
) -> Result<Option<Issue>> {
    let condition = key_condition
        .clone()
        .sql(" AND issues.project_id = ")
        .number(project)
        .sql(" AND ")
        .append(visibility.filter("issues"));
    Ok(load_where(db, visibility.user, &condition)?.pop())
}

/// Returns the numbers of issues within their projects.
pub fn iids(db: &mut Conn, ids: &[IssueId]) -> Result<Vec<(IssueId, IssueIid)>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<(i64, i64)> = on!(db, conn => issues::table
        .filter(Fragment::<Bool>::new("issues.id").in_ids(ids))
        .select((issues::id, issues::iid))
        .load(conn))?;
    Ok(rows.into_iter().map(|(id, iid)| (IssueId::new(id), IssueIid::new(iid))).collect())
}

/// Returns the numbers and titles of the visible issues of a project with these iids, and whether they are closed.
pub fn titles(
    db: &mut Conn,
    visibility: &IssueVisibility,
    project: ProjectId,
    iids: &[IssueIid],
) -> Result<Vec<(IssueIid, String, bool)>> {
    let rows: Vec<(i64, String, bool)> = on!(db, conn => issues::table
        .filter(issues::project_id.eq(project.get()))
        .filter(Fragment::<Bool>::new("issues.iid").in_ids(iids))
        .filter(visibility.filter("issues"))
        .select((issues::iid, issues::title, issues::closed))
        .load(conn))?;
    Ok(rows.into_iter().map(|(iid, title, closed)| (IssueIid::new(iid), title, closed)).collect())
}

/// Returns the user who last changed an issue, if any and if the account still exists.
pub fn updated_by(db: &mut Conn, id: IssueId) -> Result<Option<UserId>> {
    let found: Option<Option<i64>> =
        on!(db, conn => issues::table.find(id.get()).select(issues::updated_by_id).first(conn).optional())?;
    Ok(found.flatten().map(UserId::new))
}

/// The columns of an update; `None` keeps a column, `Some(None)` sets it to `NULL`.
#[derive(AsChangeset)]
#[diesel(table_name = issues)]
struct Changeset<'a> {
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

/// Updates an issue. The time and the user of the last change are set even if no field changes.
pub fn update(db: &mut Conn, id: IssueId, update: &IssueUpdate<'_>, by: Option<UserId>, now: Time) -> Result<()> {
    let description = nullable(&update.description).map(|text| text.map(String::as_str));
    if update.title.is_some() || description.is_some() {
        let (old_title, old_description): (String, Option<String>) =
            on!(db, conn => issues::table.find(id.get()).select((issues::title, issues::description)).first(conn))?;
        let (title, text) = (update.title.unwrap_or(&old_title), description.unwrap_or(old_description.as_deref()));
        let text = search_text(title, text);
        on!(db, conn => diesel::update(issue_texts::table.find(id.get()))
            .set(issue_texts::search_text.eq(&text))
            .execute(conn))?;
    }
    let reopened = match update.closed {
        Some(false) => {
            let was: (bool, bool) =
                on!(db, conn => issues::table.find(id.get()).select((issues::closed, issues::reopened)).first(conn))?;
            Some(was.0 || was.1)
        }
        _ => None,
    };
    let columns = Changeset {
        title: update.title,
        description,
        closed: update.closed,
        reopened,
        confidential: update.confidential,
        assignee_id: nullable(&update.assignee).map(|user| user.copied().map(UserId::get)),
        milestone_id: nullable(&update.milestone).map(|milestone| milestone.copied().map(MilestoneId::get)),
        due_on: nullable(&update.due_on).map(|day| day.copied().map(start_of_day)),
        moved_to_id: update.moved_to.map(IssueId::get),
        updated_by_id: Some(by.map(UserId::get)),
        updated_at: to_micros(now),
    };
    on!(db, conn => diesel::update(issues::table.find(id.get())).set(&columns).execute(conn))?;
    Ok(())
}

/// Converts a change of a nullable column to the form that Diesel expects.
#[expect(clippy::option_option, reason = "Diesel distinguishes keeping a column from setting it to NULL this way")]
fn nullable<T>(change: &Change<T>) -> Option<Option<&T>> {
    match change {
        Change::Keep => None,
        Change::Clear => Some(None),
        Change::Set(value) => Some(Some(value)),
    }
}

/// Deletes an issue with its notes, events and subscriptions.
pub fn delete(db: &mut Conn, id: IssueId) -> Result<()> {
    on!(db, conn => diesel::delete(issues::table.find(id.get())).execute(conn))?;
    Ok(())
}

/// Returns the ids and titles of the labels of an issue, in alphabetical order.
pub fn labels_of(db: &mut Conn, issue: IssueId) -> Result<Vec<(LabelId, String)>> {
    Ok(labels_of_issues(db, &[issue])?.remove(&issue).unwrap_or_default())
}

/// Adds labels to an issue; labels of other projects are ignored.
pub fn add_labels(db: &mut Conn, issue: IssueId, labels: &[LabelId]) -> Result<()> {
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
        .in_ids(labels)
        .sql(" ORDER BY l.id ON CONFLICT DO NOTHING")
    };
    on!(db, conn => add().execute(conn))?;
    Ok(())
}

/// Removes labels from an issue.
pub fn remove_labels(db: &mut Conn, issue: IssueId, labels: &[LabelId]) -> Result<()> {
    if labels.is_empty() {
        return Ok(());
    }
    on!(db, conn => diesel::delete(issue_labels::table
        .filter(issue_labels::issue_id.eq(issue.get()))
        .filter(Fragment::<Bool>::new("issue_labels.label_id").in_ids(labels)))
        .execute(conn))?;
    Ok(())
}

/// Subscribes a user to an issue, or unsubscribes them.
pub fn set_subscribed(db: &mut Conn, issue: IssueId, user: UserId, subscribed: bool) -> Result<()> {
    on!(db, conn => diesel::insert_into(issue_subscriptions::table)
        .values((
            issue_subscriptions::issue_id.eq(issue.get()),
            issue_subscriptions::user_id.eq(user.get()),
            issue_subscriptions::subscribed.eq(subscribed),
        ))
        .on_conflict((issue_subscriptions::issue_id, issue_subscriptions::user_id))
        .do_update()
        .set(issue_subscriptions::subscribed.eq(subscribed))
        .execute(conn))?;
    Ok(())
}

/// Copies the notes of an issue to another one, except system notes that start with the word `except`.
pub fn copy_notes(db: &mut Conn, from: IssueId, to: IssueId, project: ProjectId, except: &str) -> Result<()> {
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
        .text(format!("{} %", escape_like(except)))
        .sql(" ESCAPE '\\') ORDER BY id")
    };
    on!(db, conn => copy().execute(conn))?;
    Ok(())
}

/// Returns the text to search; the separator prevents matches across title and description.
fn search_text(title: &str, description: Option<&str>) -> String {
    fold_case(&[title, description.unwrap_or_default()].join(SEPARATOR)) + END
}
