//! Labels of projects.
//!
//! Triggers count the issues of each label. For users who may not see all confidential issues, those are subtracted
//! from the count, and the few that are their own are added.

use std::collections::HashMap;

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool},
};
use model::{
    IssueId, Label, LabelId, Page, ProjectId, Slice, Time, UserId,
    labels::{LabelRef, LabelSummary, NewLabel},
    text::fold_case,
};

use crate::{
    Conn, IssueVisibility, Result,
    conn::on,
    fragment::Fragment,
    schema::{issue_labels, label_subscriptions, labels},
    times::to_micros,
};

/// The number of titles per statement; SQLite limits the number of bound values.
const TITLES_PER_STATEMENT: usize = 1000;

#[derive(Queryable, Selectable)]
#[diesel(table_name = labels)]
struct Row {
    id: i64,
    project_id: i64,
    title: String,
    color: String,
    description: Option<String>,
    priority: Option<i64>,
    open_issues: i64,
    closed_issues: i64,
    open_confidential: i64,
    closed_confidential: i64,
}

/// Numbers of open and closed issues.
#[derive(Clone, Copy, Default)]
struct IssueCounts {
    open: i64,
    closed: i64,
}

fn to_label((row, subscribed): (Row, bool), visibility: &IssueVisibility, own: IssueCounts) -> Label {
    let Row {
        id,
        project_id,
        title,
        color,
        description,
        priority,
        open_issues,
        closed_issues,
        open_confidential,
        closed_confidential,
    } = row;
    let visible_count =
        |all: i64, confidential: i64, own: i64| if visibility.confidential { all } else { all - confidential + own };
    Label {
        id: LabelId::new(id),
        project: ProjectId::new(project_id),
        title,
        color,
        description,
        priority,
        open_issues: visible_count(open_issues, open_confidential, own.open),
        closed_issues: visible_count(closed_issues, closed_confidential, own.closed),
        subscribed,
    }
}

/// Returns whether the user is subscribed to the label.
fn subscribed(visibility: &IssueVisibility) -> Fragment<Bool> {
    Fragment::new("EXISTS (SELECT 1 FROM label_subscriptions s WHERE s.label_id = labels.id AND s.user_id = ")
        .number(visibility.user)
        .sql(")")
}

/// Counts the confidential issues of each label that the user sees as author or assignee; empty if the user sees all.
fn own_confidential(
    db: &mut Conn,
    visibility: &IssueVisibility,
    project: ProjectId,
) -> Result<HashMap<LabelId, IssueCounts>> {
    if visibility.confidential {
        return Ok(HashMap::new());
    }
    // Without the hint, SQLite would scan all issues of the project instead of the few confidential ones.
    let counted = || {
        Fragment::<(BigInt, BigInt, BigInt)>::new(
            "SELECT l.label_id, count(*) FILTER (WHERE NOT i.closed), count(*) FILTER (WHERE i.closed) FROM issues i",
        )
        .per_engine(" INDEXED BY issues_confidential_idx", "")
        .sql(" JOIN issue_labels l ON l.issue_id = i.id WHERE i.confidential AND i.project_id = ")
        .number(project)
        .sql(" AND ")
        .append(visibility.filter("i"))
        .sql(" GROUP BY l.label_id")
    };
    let rows: Vec<(i64, i64, i64)> = on!(db, conn => counted().load(conn))?;
    Ok(rows.into_iter().map(|(label, open, closed)| (LabelId::new(label), IssueCounts { open, closed })).collect())
}

/// Lists the labels of a project by title.
pub fn list(db: &mut Conn, visibility: &IssueVisibility, project: ProjectId, page: Page) -> Result<Slice<Label>> {
    let of_project = || labels::table.filter(labels::project_id.eq(project.get()));
    let total: i64 = on!(db, conn => of_project().count().get_result(conn))?;
    let own = own_confidential(db, visibility, project)?;
    let rows: Vec<(Row, bool)> = on!(db, conn => of_project()
        .order((labels::title_key, labels::title))
        .limit(page.size)
        .offset(page.offset())
        .select((Row::as_select(), subscribed(visibility)))
        .load(conn))?;
    let convert = |row: (Row, bool)| {
        let own = own.get(&LabelId::new(row.0.id)).copied().unwrap_or_default();
        to_label(row, visibility, own)
    };
    Ok(Slice { items: rows.into_iter().map(convert).collect(), total: total.into(), page })
}

/// Finds a label of a project. A number refers to the label with this id or else to the one with this title.
pub fn find(
    db: &mut Conn,
    visibility: &IssueVisibility,
    project: ProjectId,
    label: &LabelRef,
) -> Result<Option<Label>> {
    let of_project = || labels::table.filter(labels::project_id.eq(project.get()));
    let (id, title) = match label {
        LabelRef::Number(id, title) => (Some(*id), title),
        LabelRef::Title(title) => (None, title),
    };
    let mut row: Option<(Row, bool)> = None;
    if let Some(id) = id {
        row = on!(db, conn => of_project()
            .filter(labels::id.eq(id.get()))
            .select((Row::as_select(), subscribed(visibility)))
            .first(conn)
            .optional())?;
    }
    if row.is_none() {
        row = on!(db, conn => of_project()
            .filter(labels::title.eq(title))
            .select((Row::as_select(), subscribed(visibility)))
            .first(conn)
            .optional())?;
    }
    let Some(row) = row else { return Ok(None) };
    let own = own_confidential(db, visibility, project)?.remove(&LabelId::new(row.0.id)).unwrap_or_default();
    Ok(Some(to_label(row, visibility, own)))
}

/// Returns the ids and titles of the labels of a project with these titles.
pub fn by_titles(db: &mut Conn, project: ProjectId, titles: &[String]) -> Result<Vec<(LabelId, String)>> {
    let mut found = Vec::new();
    for batch in titles.chunks(TITLES_PER_STATEMENT) {
        let rows: Vec<(i64, String)> = on!(db, conn => labels::table
            .filter(labels::project_id.eq(project.get()))
            .filter(labels::title.eq_any(batch))
            .select((labels::id, labels::title))
            .load(conn))?;
        found.extend(rows.into_iter().map(|(id, title)| (LabelId::new(id), title)));
    }
    Ok(found)
}

fn to_summary((id, title, color): (i64, String, String)) -> LabelSummary {
    LabelSummary { id: LabelId::new(id), title, color }
}

/// Returns the first labels of a project in alphabetical order.
pub fn first(db: &mut Conn, project: ProjectId, limit: i64) -> Result<Vec<LabelSummary>> {
    let rows: Vec<(i64, String, String)> = on!(db, conn => labels::table
        .filter(labels::project_id.eq(project.get()))
        .order((labels::title_key, labels::title))
        .limit(limit)
        .select((labels::id, labels::title, labels::color))
        .load(conn))?;
    Ok(rows.into_iter().map(to_summary).collect())
}

/// Returns the labels of a project that have one of these ids or titles.
pub fn summaries(db: &mut Conn, project: ProjectId, ids: &[LabelId], titles: &[String]) -> Result<Vec<LabelSummary>> {
    let rows: Vec<(i64, String, String)> = on!(db, conn => labels::table
        .filter(labels::project_id.eq(project.get()))
        .filter(Fragment::<Bool>::new("labels.id").in_ids(ids).or(labels::title.eq_any(titles)))
        .select((labels::id, labels::title, labels::color))
        .load(conn))?;
    Ok(rows.into_iter().map(to_summary).collect())
}

/// Returns the labels of each issue, in alphabetical order.
pub fn of_issues(db: &mut Conn, issues: &[IssueId]) -> Result<HashMap<IssueId, Vec<LabelSummary>>> {
    let mut found: HashMap<IssueId, Vec<LabelSummary>> = HashMap::new();
    let rows: Vec<(i64, (i64, String, String))> = on!(db, conn => issue_labels::table
        .inner_join(labels::table)
        .filter(Fragment::<Bool>::new("issue_labels.issue_id").in_ids(issues))
        .order((labels::title_key, labels::title))
        .select((issue_labels::issue_id, (labels::id, labels::title, labels::color)))
        .load(conn))?;
    for (issue, label) in rows {
        found.entry(IssueId::new(issue)).or_default().push(to_summary(label));
    }
    Ok(found)
}

/// Returns whether a project has a label with this id.
pub fn exists(db: &mut Conn, project: ProjectId, id: LabelId) -> Result<bool> {
    let found: Option<i64> = on!(db, conn => labels::table
        .filter(labels::project_id.eq(project.get()))
        .filter(labels::id.eq(id.get()))
        .select(labels::id)
        .first(conn)
        .optional())?;
    Ok(found.is_some())
}

/// Inserts a label; the caller has checked that the title is not taken.
pub fn insert(db: &mut Conn, project: ProjectId, new: &NewLabel, now: Time) -> Result<Label> {
    let row: Row = on!(db, conn => diesel::insert_into(labels::table)
        .values((
            labels::project_id.eq(project.get()),
            labels::title.eq(&new.title),
            labels::title_key.eq(fold_case(&new.title)),
            labels::color.eq(&new.color),
            labels::description.eq(&new.description),
            labels::priority.eq(new.priority),
            labels::created_at.eq(to_micros(now)),
            labels::updated_at.eq(to_micros(now)),
        ))
        .returning(Row::as_returning())
        .get_result(conn))?;
    // A new label has no issues and no subscribers.
    Ok(to_label((row, false), &IssueVisibility { user: UserId::ANONYMOUS, confidential: true }, IssueCounts::default()))
}

/// Updates all fields of a label; the caller has checked that the title is not taken.
pub fn update(db: &mut Conn, id: LabelId, new: &NewLabel, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(labels::table.find(id.get()))
        .set((
            labels::title.eq(&new.title),
            labels::title_key.eq(fold_case(&new.title)),
            labels::color.eq(&new.color),
            labels::description.eq(&new.description),
            labels::priority.eq(new.priority),
            labels::updated_at.eq(to_micros(now)),
        ))
        .execute(conn))?;
    Ok(())
}

/// Deletes a label with its subscriptions and removes it from issues. The caller has removed its board list, which
/// would otherwise leave a gap in the positions.
pub fn delete(db: &mut Conn, id: LabelId) -> Result<()> {
    on!(db, conn => diesel::delete(labels::table.find(id.get())).execute(conn))?;
    Ok(())
}

/// Subscribes a user to a label; returns `false` if they already were.
pub fn subscribe(db: &mut Conn, id: LabelId, user: UserId, now: Time) -> Result<bool> {
    let added = on!(db, conn => diesel::insert_into(label_subscriptions::table)
        .values((
            label_subscriptions::label_id.eq(id.get()),
            label_subscriptions::user_id.eq(user.get()),
            label_subscriptions::created_at.eq(to_micros(now)),
        ))
        .on_conflict_do_nothing()
        .execute(conn))?;
    Ok(added > 0)
}

/// Unsubscribes a user from a label; returns `false` if they were not subscribed.
pub fn unsubscribe(db: &mut Conn, id: LabelId, user: UserId) -> Result<bool> {
    let removed =
        on!(db, conn => diesel::delete(label_subscriptions::table.find((id.get(), user.get()))).execute(conn))?;
    Ok(removed > 0)
}
