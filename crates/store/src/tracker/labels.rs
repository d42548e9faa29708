//! Labels of projects.
//!
//! How many issues carry a label is counted by triggers. Who does not see the confidential ones gets the count without
//! those, and with the few of them that are their own.

use std::collections::HashMap;

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool},
};
use model::{
    Label, Page, Slice, Time,
    labels::{LabelRef, NewLabel},
    text::fold,
};

use crate::{
    Conn, Result, Sight,
    conn::on,
    fragment::Fragment,
    schema::{label_subscriptions, labels},
    times::to_micros,
};

/// How many titles one statement looks for; SQLite takes no more than some ten thousand values.
const TITLES_AT_ONCE: usize = 1000;

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

/// How many open and closed issues there are.
#[derive(Clone, Copy, Default)]
struct Counts {
    open: i64,
    closed: i64,
}

fn to_label((row, subscribed): (Row, bool), sight: &Sight, own: Counts) -> Label {
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
    let seen = |all: i64, confidential: i64, own: i64| if sight.confidential { all } else { all - confidential + own };
    Label {
        id,
        project: project_id,
        title,
        color,
        description,
        priority,
        open_issues: seen(open_issues, open_confidential, own.open),
        closed_issues: seen(closed_issues, closed_confidential, own.closed),
        subscribed,
    }
}

/// Whether a user follows the label.
fn subscribed(sight: &Sight) -> Fragment<Bool> {
    Fragment::new("EXISTS (SELECT 1 FROM label_subscriptions s WHERE s.label_id = labels.id AND s.user_id = ")
        .number(sight.user)
        .sql(")")
}

/// How many confidential issues with each label of a project somebody sees who does not see all of them.
fn own_confidential(db: &mut Conn, sight: &Sight, project: i64) -> Result<HashMap<i64, Counts>> {
    if sight.confidential {
        return Ok(HashMap::new());
    }
    // Left to itself, SQLite looks at all issues of the project instead of the few that are confidential.
    let counted = || {
        Fragment::<(BigInt, BigInt, BigInt)>::new(
            "SELECT l.label_id, count(*) FILTER (WHERE NOT i.closed), count(*) FILTER (WHERE i.closed) FROM issues i",
        )
        .either(" INDEXED BY issues_confidential_idx", "")
        .sql(" JOIN issue_labels l ON l.issue_id = i.id WHERE i.confidential AND i.project_id = ")
        .number(project)
        .sql(" AND ")
        .then(sight.sees("i"))
        .sql(" GROUP BY l.label_id")
    };
    let rows: Vec<(i64, i64, i64)> = on!(db, conn => counted().load(conn))?;
    Ok(rows.into_iter().map(|(label, open, closed)| (label, Counts { open, closed })).collect())
}

/// A page of the labels of a project, by title.
pub fn list(db: &mut Conn, sight: &Sight, project: i64, page: Page) -> Result<Slice<Label>> {
    let of_project = || labels::table.filter(labels::project_id.eq(project));
    let total = on!(db, conn => of_project().count().get_result(conn))?;
    let own = own_confidential(db, sight, project)?;
    let rows: Vec<(Row, bool)> = on!(db, conn => of_project()
        .order((labels::title_key, labels::title))
        .limit(page.size)
        .offset(page.offset())
        .select((Row::as_select(), subscribed(sight)))
        .load(conn))?;
    let shown = |row: (Row, bool)| {
        let own = own.get(&row.0.id).copied().unwrap_or_default();
        to_label(row, sight, own)
    };
    Ok(Slice { items: rows.into_iter().map(shown).collect(), total, page })
}

/// One label of a project. A number finds the label with this number, or else the one that is called so.
pub fn find(db: &mut Conn, sight: &Sight, project: i64, label: &LabelRef) -> Result<Option<Label>> {
    let of_project = || labels::table.filter(labels::project_id.eq(project));
    let (id, title) = match label {
        LabelRef::Number(id, title) => (Some(*id), title),
        LabelRef::Title(title) => (None, title),
    };
    let mut row: Option<(Row, bool)> = None;
    if let Some(id) = id {
        row = on!(db, conn => of_project()
            .filter(labels::id.eq(id))
            .select((Row::as_select(), subscribed(sight)))
            .first(conn)
            .optional())?;
    }
    if row.is_none() {
        row = on!(db, conn => of_project()
            .filter(labels::title.eq(title))
            .select((Row::as_select(), subscribed(sight)))
            .first(conn)
            .optional())?;
    }
    let Some(row) = row else { return Ok(None) };
    let own = own_confidential(db, sight, project)?.remove(&row.0.id).unwrap_or_default();
    Ok(Some(to_label(row, sight, own)))
}

/// The numbers and titles of those labels of a project that have one of these titles.
pub fn among_titles(db: &mut Conn, project: i64, titles: &[String]) -> Result<Vec<(i64, String)>> {
    let mut found = Vec::new();
    for some in titles.chunks(TITLES_AT_ONCE) {
        let rows: Vec<(i64, String)> = on!(db, conn => labels::table
            .filter(labels::project_id.eq(project))
            .filter(labels::title.eq_any(some))
            .select((labels::id, labels::title))
            .load(conn))?;
        found.extend(rows);
    }
    Ok(found)
}

/// Whether a project has a label of this number.
pub fn is_there(db: &mut Conn, project: i64, id: i64) -> Result<bool> {
    let found: Option<i64> = on!(db, conn => labels::table
        .filter(labels::project_id.eq(project))
        .filter(labels::id.eq(id))
        .select(labels::id)
        .first(conn)
        .optional())?;
    Ok(found.is_some())
}

/// Adds a label; its title was found to be free.
pub fn insert(db: &mut Conn, project: i64, new: &NewLabel, now: Time) -> Result<Label> {
    let row: Row = on!(db, conn => diesel::insert_into(labels::table)
        .values((
            labels::project_id.eq(project),
            labels::title.eq(&new.title),
            labels::title_key.eq(fold(&new.title)),
            labels::color.eq(&new.color),
            labels::description.eq(&new.description),
            labels::priority.eq(new.priority),
            labels::created_at.eq(to_micros(now)),
            labels::updated_at.eq(to_micros(now)),
        ))
        .returning(Row::as_returning())
        .get_result(conn))?;
    // No issue carries it, and nobody follows it.
    Ok(to_label((row, false), &Sight { user: 0, confidential: true }, Counts::default()))
}

/// Makes a label another one; its title was found to be free.
pub fn update(db: &mut Conn, id: i64, new: &NewLabel, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(labels::table.find(id))
        .set((
            labels::title.eq(&new.title),
            labels::title_key.eq(fold(&new.title)),
            labels::color.eq(&new.color),
            labels::description.eq(&new.description),
            labels::priority.eq(new.priority),
            labels::updated_at.eq(to_micros(now)),
        ))
        .execute(conn))?;
    Ok(())
}

/// Removes a label, also from issues and from those who follow it. Its list was taken off the board before, so that it
/// leaves no gap.
pub fn delete(db: &mut Conn, id: i64) -> Result<()> {
    on!(db, conn => diesel::delete(labels::table.find(id)).execute(conn))?;
    Ok(())
}

/// Lets a user follow a label; says whether they did not before.
pub fn subscribe(db: &mut Conn, id: i64, user: i64, now: Time) -> Result<bool> {
    let added = on!(db, conn => diesel::insert_into(label_subscriptions::table)
        .values((
            label_subscriptions::label_id.eq(id),
            label_subscriptions::user_id.eq(user),
            label_subscriptions::created_at.eq(to_micros(now)),
        ))
        .on_conflict_do_nothing()
        .execute(conn))?;
    Ok(added > 0)
}

/// Lets a user follow a label no more; says whether they did.
pub fn unsubscribe(db: &mut Conn, id: i64, user: i64) -> Result<bool> {
    let removed = on!(db, conn => diesel::delete(label_subscriptions::table.find((id, user))).execute(conn))?;
    Ok(removed > 0)
}
