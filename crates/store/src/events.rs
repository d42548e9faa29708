//! What happened in projects.
//!
//! A page costs at most four statements, however long the list is: which on this page and how many, those in full, and
//! the commits that came with them.

use std::collections::HashMap;

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool},
};
use jiff::SignedDuration;
use model::{
    Event, Oid, Page, Slice, Time,
    events::{Action, PushCommit, PushData},
    repository::Signature,
};

use crate::{
    Conn, Result,
    access::Viewer,
    conn::on,
    fragment::Fragment,
    schema::{events, projects, push_commits, push_events, users},
    times::{from_micros, to_micros},
    users::SummaryRow,
};

/// How often the last activity of a project moves at most.
const ACTIVITY_PAUSE: SignedDuration = SignedDuration::from_hours(1);

/// Something to be told.
#[derive(Clone, Debug)]
pub struct NewEvent<'a> {
    /// Where it happened.
    pub project: i64,
    /// Who did it.
    pub author: i64,
    /// What was done.
    pub action: Action,
    /// What kind of thing it was done to, if it was done to one.
    pub target_type: Option<&'a str>,
    /// The number of that thing.
    pub target_id: Option<i64>,
    /// What was pushed, if something was.
    pub push: Option<&'a PushData>,
    /// The push that has to happen before anybody sees it.
    pub intent: Option<i64>,
    /// When it happened.
    pub now: Time,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = events)]
struct Row {
    id: i64,
    project_id: i64,
    action: i32,
    target_type: Option<String>,
    target_id: Option<i64>,
    created_at: i64,
}

#[derive(Queryable, Selectable, Insertable)]
#[diesel(table_name = push_events)]
struct PushRow {
    event_id: i64,
    ref_name: String,
    before: String,
    after: String,
    total_commits: i64,
}

#[derive(Queryable, Selectable, Insertable)]
#[diesel(table_name = push_commits)]
struct CommitRow {
    event_id: i64,
    position: i32,
    sha: String,
    message: String,
    author_name: String,
    author_email: String,
    seconds: i64,
    offset_seconds: i32,
}

impl CommitRow {
    fn new(event_id: i64, position: i32, commit: &PushCommit) -> Self {
        let Signature { name, email, seconds, offset } = &commit.author;
        Self {
            event_id,
            position,
            sha: commit.id.to_string(),
            message: without_nul(&commit.message),
            author_name: without_nul(name),
            author_email: without_nul(email),
            seconds: *seconds,
            offset_seconds: *offset,
        }
    }

    fn into_commit(self) -> Option<PushCommit> {
        let Self { sha, message, author_name, author_email, seconds, offset_seconds, .. } = self;
        let author = Signature { name: author_name, email: author_email, seconds, offset: offset_seconds };
        Some(PushCommit { id: sha.parse().ok()?, message, author })
    }
}

/// Commits may hold any byte; PostgreSQL's texts hold all but this one.
fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// Tells that something happened; says its number.
pub fn insert(db: &mut Conn, new: &NewEvent<'_>) -> Result<i64> {
    let id = on!(db, conn => diesel::insert_into(events::table)
        .values((
            events::project_id.eq(new.project),
            events::author_id.eq(new.author),
            events::action.eq(new.action.code()),
            events::target_type.eq(new.target_type),
            events::target_id.eq(new.target_id),
            events::intent_id.eq(new.intent),
            events::created_at.eq(to_micros(new.now)),
        ))
        .returning(events::id)
        .get_result(conn))?;
    if let Some(push) = new.push {
        insert_push(db, id, push)?;
    }
    if new.intent.is_none() {
        note_activity(db, new.project, new.now)?;
    }
    Ok(id)
}

fn insert_push(db: &mut Conn, event: i64, push: &PushData) -> Result<()> {
    let digits = |oid: Option<Oid>| oid.map_or_else(|| Oid::ZERO.to_owned(), |oid| oid.to_string());
    let row = PushRow {
        event_id: event,
        ref_name: push.ref_name.clone(),
        before: digits(push.before),
        after: digits(push.after),
        total_commits: push.total_commits,
    };
    on!(db, conn => diesel::insert_into(push_events::table).values(&row).execute(conn))?;
    let commits: Vec<CommitRow> =
        (0..).zip(&push.commits).map(|(position, commit)| CommitRow::new(event, position, commit)).collect();
    if !commits.is_empty() {
        on!(db, conn => diesel::insert_into(push_commits::table).values(&commits).execute(conn))?;
    }
    Ok(())
}

/// Notes that something happened in a project, unless something did within the last hour.
pub(crate) fn note_activity(db: &mut Conn, project: i64, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(projects::table.find(project))
        .filter(projects::last_activity_at.le(to_micros(now - ACTIVITY_PAUSE)))
        .set(projects::last_activity_at.eq(to_micros(now)))
        .execute(conn))?;
    Ok(())
}

/// What happened in a project, newest first; with or without what was pushed.
pub fn of_project(db: &mut Conn, project: i64, pushes: bool, page: Page) -> Result<Slice<Event>> {
    let visible = || {
        let kinds = if pushes { Fragment::<Bool>::new("TRUE") } else { not_pushed() };
        events::table.filter(events::project_id.eq(project)).filter(events::intent_id.is_null()).filter(kinds)
    };
    let total = on!(db, conn => visible().count().get_result(conn))?;
    let ids: Vec<i64> = on!(db, conn => visible()
        .order(events::id.desc())
        .limit(page.size)
        .offset(page.offset())
        .select(events::id)
        .load(conn))?;
    Ok(Slice { items: load(db, &ids)?, total, page })
}

fn not_pushed() -> Fragment<Bool> {
    Fragment::new(format!("events.action <> {}", Action::Pushed.code()))
}

/// What a user did, newest first, as far as the viewer sees it: pushes only where the viewer reads the code.
pub fn of_user(db: &mut Conn, viewer: &Viewer, user: i64, page: Page) -> Result<Slice<Event>> {
    // Of all projects there are, only those matter where the user did something; and what was done there is counted by
    // the way.
    let seen = Fragment::<(BigInt, BigInt)>::new(
        "WITH done AS (SELECT project_id, action, count(*) AS amount FROM events WHERE intent_id IS NULL AND author_id = ",
    )
    .number(user)
    .sql(
        " GROUP BY project_id, action), seen AS MATERIALIZED (SELECT d.project_id, d.action, d.amount \
         FROM done d CROSS JOIN projects p WHERE p.id = d.project_id AND p.deleted_at IS NULL AND CASE WHEN d.action = ",
    )
    .number(Action::Pushed.code().into())
    .sql(" THEN ")
    .then(viewer.reads_code())
    .sql(" ELSE ")
    .then(viewer.knows())
    .sql(" END) SELECT ");
    let total = "CAST(coalesce((SELECT sum(amount) FROM seen), 0) AS BIGINT)";
    let on_page = || {
        seen.clone()
            .sql(format!("e.id, {total} FROM events e WHERE e.intent_id IS NULL AND e.author_id = "))
            .number(user)
            .sql(" AND (e.project_id, e.action) IN (SELECT project_id, action FROM seen) ORDER BY e.id DESC LIMIT ")
            .number(page.size)
            .sql(" OFFSET ")
            .number(page.offset())
    };
    let rows: Vec<(i64, i64)> = on!(db, conn => on_page().load(conn))?;
    let total = match rows.first() {
        Some((_, total)) => *total,
        None if page.offset() == 0 => 0,
        // Beyond the end of the list no row is there to tell.
        None => {
            let count = || seen.clone().sql(format!("CAST(0 AS BIGINT), {total}"));
            let (_, total): (i64, i64) = on!(db, conn => count().get_result(conn))?;
            total
        }
    };
    let ids: Vec<i64> = rows.into_iter().map(|(id, _)| id).collect();
    Ok(Slice { items: load(db, &ids)?, total, page })
}

/// The events with these numbers, newest first.
fn load(db: &mut Conn, ids: &[i64]) -> Result<Vec<Event>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<(Row, SummaryRow, Option<PushRow>)> = on!(db, conn => events::table
        .inner_join(users::table)
        .left_join(push_events::table)
        .filter(Fragment::<Bool>::new("events.id").among(ids))
        .order(events::id.desc())
        .select((Row::as_select(), SummaryRow::as_select(), Option::<PushRow>::as_select()))
        .load(conn))?;
    let came: Vec<CommitRow> = on!(db, conn => push_commits::table
        .filter(Fragment::<Bool>::new("push_commits.event_id").among(ids))
        .order((push_commits::event_id, push_commits::position))
        .select(CommitRow::as_select())
        .load(conn))?;
    let mut commits: HashMap<i64, Vec<PushCommit>> = HashMap::new();
    for row in came {
        let event = row.event_id;
        commits.entry(event).or_default().extend(row.into_commit());
    }
    let whole = |(row, author, push): (Row, SummaryRow, Option<PushRow>)| {
        let Row { id, project_id, action, target_type, target_id, created_at } = row;
        let commits = commits.remove(&id).unwrap_or_default();
        // A number that is unknown can only come from a newer version; there is no word for it here.
        let action = Action::from_code(action).unwrap_or(Action::Updated);
        let push = push.map(|push| to_push(push, commits));
        let (author, created_at) = (author.into(), from_micros(created_at));
        Event { id, project: project_id, author, action, target_type, target_id, push, created_at }
    };
    Ok(rows.into_iter().map(whole).collect())
}

fn to_push(row: PushRow, commits: Vec<PushCommit>) -> PushData {
    let PushRow { ref_name, before, after, total_commits, .. } = row;
    let oid = |digits: &str| digits.parse().ok().filter(|_| digits != Oid::ZERO);
    PushData { before: oid(&before), after: oid(&after), ref_name, commits, total_commits }
}
