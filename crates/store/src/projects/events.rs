//! Activity events.
//!
//! A page takes at most five statements: the total, the number of hidden events, the IDs on the page, the full rows and their
//! commits.
//!
//! Events of an issue require access to the issue. Few issues are confidential, so all events are counted by index and the
//! hidden ones are subtracted, instead of joining the issue of each event.

use std::collections::HashMap;

use diesel::{
    prelude::*,
    sql_types::{Array, BigInt, Bool, Integer, Text},
};
use jiff::SignedDuration;
use model::{
    CommitNote, CommitNoteId, Event, EventId, IssueId, MilestoneId, Note, NoteId, Oid, Page, ProjectId, Role, Slice,
    Time, Total, UserId,
    events::{EventAction, EventTarget, PushCommit, PushData},
    objects::Signature,
    users::UserSummary,
};

use crate::{
    Conn, IssueVisibility, Result,
    access::Viewer,
    commit_notes::{self as comments, Row as CommitNoteRow},
    conn::on,
    constant::constant,
    count_up_to::CountUpTo,
    fragment::Fragment,
    postgres::PgConnection,
    schema::{commit_notes, events, issues, milestones, notes, projects, push_commits, push_events, users},
    times::{from_micros, to_micros},
    users::SummaryRow,
};

/// The minimum interval between updates of the last activity of a project.
const ACTIVITY_INTERVAL: SignedDuration = SignedDuration::from_hours(1);

/// The maximum number of rows in one statement.
const BATCH_SIZE: usize = 1000;

/// An event to insert, other than a push.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// The ID of the project.
    pub project: ProjectId,
    /// The ID of the user who caused it.
    pub author: UserId,
    /// The action.
    pub action: EventAction,
    /// The object of the action, if it has one.
    pub target: Option<EventTarget>,
    /// The time of the event.
    pub now: Time,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = events)]
struct Row {
    id: i64,
    project_id: i64,
    action: i32,
    issue_id: Option<i64>,
    note_id: Option<i64>,
    milestone_id: Option<i64>,
    commit_note_id: Option<i64>,
    created_at: i64,
}

impl Row {
    fn target(&self) -> Option<EventTarget> {
        match (self.issue_id.map(IssueId::new), self.note_id.map(NoteId::new)) {
            (Some(issue), Some(note)) => Some(EventTarget::Note { note, issue }),
            (Some(issue), None) => Some(EventTarget::Issue(issue)),
            (None, _) => {
                let milestone = self.milestone_id.map(MilestoneId::new).map(EventTarget::Milestone);
                milestone.or_else(|| self.commit_note_id.map(CommitNoteId::new).map(EventTarget::CommitNote))
            }
        }
    }
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
    fn new(event: EventId, position: i32, commit: &PushCommit) -> Self {
        let Signature { name, email, seconds, offset } = &commit.author;
        Self {
            event_id: event.get(),
            position,
            sha: commit.id.to_string(),
            message: replace_nul(&commit.message),
            author_name: replace_nul(name),
            author_email: replace_nul(email),
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

#[derive(Queryable, Selectable)]
#[diesel(table_name = notes)]
struct NoteRow {
    id: i64,
    issue_id: i64,
    body: String,
    system: bool,
    created_at: i64,
    updated_at: i64,
}

impl NoteRow {
    /// Converts the row; the author of the note is the author of the event.
    fn into_note(self, author: &UserSummary) -> Note {
        let Self { id, issue_id, body, system, created_at, updated_at } = self;
        let (created_at, updated_at) = (from_micros(created_at), from_micros(updated_at));
        Note {
            id: NoteId::new(id),
            issue: IssueId::new(issue_id),
            body,
            author: Some(author.clone()),
            system,
            created_at,
            updated_at,
        }
    }
}

/// Commits may contain NUL, which PostgreSQL cannot store in texts.
fn replace_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// Inserts an event; returns its ID.
pub fn insert(db: &mut Conn, new: &NewEvent) -> Result<EventId> {
    let (issue, note, milestone, commit_note) = match new.target {
        None => (None, None, None, None),
        Some(EventTarget::Issue(issue)) => (Some(issue), None, None, None),
        Some(EventTarget::Note { note, issue }) => (Some(issue), Some(note), None, None),
        Some(EventTarget::Milestone(milestone)) => (None, None, Some(milestone), None),
        Some(EventTarget::CommitNote(note)) => (None, None, None, Some(note)),
    };
    let id = on!(db, conn => diesel::insert_into(events::table)
        .values((
            events::project_id.eq(new.project.get()),
            events::author_id.eq(new.author.get()),
            events::action.eq(new.action.code()),
            events::target_type.eq(new.target.map(EventTarget::kind)),
            events::target_id.eq(new.target.map(EventTarget::number)),
            events::issue_id.eq(issue.map(IssueId::get)),
            events::note_id.eq(note.map(NoteId::get)),
            events::milestone_id.eq(milestone.map(MilestoneId::get)),
            events::commit_note_id.eq(commit_note.map(CommitNoteId::get)),
            events::created_at.eq(to_micros(new.now)),
        ))
        .returning(events::id)
        .get_result(conn))?;
    update_last_activity(db, new.project, new.now)?;
    Ok(EventId::new(id))
}

/// Inserts the events of a push, one for each ref; returns their IDs.
pub fn insert_pushes(
    db: &mut Conn,
    project: ProjectId,
    author: UserId,
    pushes: &[&PushData],
    now: Time,
) -> Result<Vec<EventId>> {
    let mut inserted = Vec::with_capacity(pushes.len());
    let push_row = |push: &PushData| {
        let oid_text = |oid: Option<Oid>| oid.map_or_else(|| Oid::ZERO.to_owned(), |oid| oid.to_string());
        PushRow {
            event_id: 0,
            ref_name: push.ref_name.clone(),
            before: oid_text(push.before),
            after: oid_text(push.after),
            total_commits: push.total_commits,
        }
    };
    for batch in pushes.chunks(BATCH_SIZE) {
        let rows: Vec<PushRow> = batch.iter().map(|push| push_row(push)).collect();
        let ids = match db {
            Conn::Sqlite(conn) => insert_push_rows(conn, project, author, rows, now)?,
            Conn::Pg(conn) => insert_push_rows_at_once(conn, project, author, rows, now)?,
        };
        let commits: Vec<CommitRow> = ids
            .iter()
            .zip(batch)
            .flat_map(|(id, push)| {
                (0..).zip(&push.commits).map(move |(position, commit)| CommitRow::new(*id, position, commit))
            })
            .collect();
        for commits in commits.chunks(BATCH_SIZE) {
            on!(db, conn => diesel::insert_into(push_commits::table).values(commits).execute(conn))?;
        }
        inserted.extend(ids);
    }
    update_last_activity(db, project, now)?;
    Ok(inserted)
}

/// Inserts events of pushes one by one, which is fast in an embedded database; returns their IDs.
fn insert_push_rows(
    conn: &mut SqliteConnection,
    project: ProjectId,
    author: UserId,
    rows: Vec<PushRow>,
    now: Time,
) -> Result<Vec<EventId>> {
    let mut ids = Vec::with_capacity(rows.len());
    for mut row in rows {
        row.event_id = diesel::insert_into(events::table)
            .values((
                events::project_id.eq(project.get()),
                events::author_id.eq(author.get()),
                events::action.eq(EventAction::Pushed.code()),
                events::created_at.eq(to_micros(now)),
            ))
            .returning(events::id)
            .get_result(conn)?;
        ids.push(EventId::new(row.event_id));
        diesel::insert_into(push_events::table).values(&row).execute(conn)?;
    }
    Ok(ids)
}

/// Inserts events of pushes with one statement, because each takes a round trip; returns their IDs in the order of the rows.
fn insert_push_rows_at_once(
    conn: &mut PgConnection,
    project: ProjectId,
    author: UserId,
    rows: Vec<PushRow>,
    now: Time,
) -> Result<Vec<EventId>> {
    let (mut names, mut before, mut after, mut totals) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        names.push(row.ref_name);
        before.push(row.before);
        after.push(row.after);
        totals.push(row.total_commits);
    }
    let ids: Vec<InsertedId> = constant!(
        diesel::sql_query(
            "WITH pushes AS MATERIALIZED ( \
             SELECT nextval(pg_get_serial_sequence('events', 'id')) AS id, p.* \
             FROM unnest($1, $2, $3, $4) WITH ORDINALITY AS p (ref_name, before, after, total, number) \
         ), inserted AS ( \
             INSERT INTO events (id, project_id, author_id, action, created_at) SELECT id, $5, $6, $7, $8 FROM pushes \
         ), details AS ( \
             INSERT INTO push_events (event_id, ref_name, before, after, total_commits) \
             SELECT id, ref_name, before, after, total FROM pushes \
         ) SELECT id FROM pushes ORDER BY number",
        )
        .bind::<Array<Text>, _>(names)
        .bind::<Array<Text>, _>(before)
        .bind::<Array<Text>, _>(after)
        .bind::<Array<BigInt>, _>(totals)
        .bind::<BigInt, _>(project.get())
        .bind::<BigInt, _>(author.get())
        .bind::<Integer, _>(EventAction::Pushed.code())
        .bind::<BigInt, _>(to_micros(now))
    )
    .load(conn)?;
    Ok(ids.into_iter().map(|row| EventId::new(row.id)).collect())
}

#[derive(QueryableByName)]
struct InsertedId {
    #[diesel(sql_type = BigInt)]
    id: i64,
}

/// Updates the last activity of a project, unless it is less than an hour old.
pub fn update_last_activity(db: &mut Conn, project: ProjectId, now: Time) -> Result<()> {
    on!(db, conn => constant!(diesel::update(projects::table.find(project.get()))
        .filter(projects::last_activity_at.le(to_micros(now - ACTIVITY_INTERVAL)))
        .set(projects::last_activity_at.eq(to_micros(now))))
        .execute(conn))?;
    Ok(())
}

/// Returns an event of a project.
pub fn find(db: &mut Conn, project: ProjectId, event: EventId) -> Result<Option<Event>> {
    Ok(load(db, &[event])?.into_iter().find(|event| event.project == project))
}

/// Lists the events of a project, newest first: those about its code only if `code` is set, and those about issues only as far
/// as the viewer can see the issues; `None` if the viewer can see none.
pub fn of_project(
    db: &mut Conn,
    project: ProjectId,
    code: bool,
    visibility: Option<&IssueVisibility>,
    page: Page,
) -> Result<Slice<Event>> {
    let in_project = || {
        let kinds = if code { Fragment::<Bool>::new("TRUE") } else { is_not_push() };
        events::table.filter(events::project_id.eq(project.get())).filter(events::intent_id.is_null()).filter(kinds)
    };
    let (mut hidden_count, mut is_visible) = (0_i64, Fragment::<Bool>::new("TRUE"));
    if let Some(hidden) = hidden_in(project, code, visibility) {
        let count = || Fragment::<BigInt>::new("SELECT count(*) FROM (").append(hidden.clone()).sql(") h");
        hidden_count = on!(db, conn => count().get_result(conn))?;
        is_visible = match (hidden_count, visibility, code) {
            (0, ..) => is_visible,
            (_, None, true) => Fragment::new("events.issue_id IS NULL"),
            (_, None, false) => Fragment::new("events.issue_id IS NULL AND events.commit_note_id IS NULL"),
            (_, Some(_), _) => Fragment::new("events.id NOT IN (").append(hidden).sql(")"),
        };
    }
    let limit = page.count_limit();
    let all = || CountUpTo::new(in_project().select(events::id), limit.saturating_add(hidden_count));
    let total = Total::counted(on!(db, conn => all().count(conn))? - hidden_count, limit);
    let ids: Vec<i64> = on!(db, conn => in_project()
        .filter(is_visible.clone())
        .order(events::id.desc())
        .limit(page.size)
        .offset(page.offset())
        .select(events::id)
        .load(conn))?;
    let ids: Vec<EventId> = ids.into_iter().map(EventId::new).collect();
    Ok(Slice { items: load(db, &ids)?, total, page })
}

/// The IDs of the events of a project that the viewer must not see: those about hidden issues, and those about commits unless
/// `code` is set; `None` if there are none. Such events never wait for a push.
fn hidden_in(project: ProjectId, code: bool, visibility: Option<&IssueVisibility>) -> Option<Fragment<BigInt>> {
    let about = |issues: Fragment<Bool>| {
        Fragment::new("SELECT e.id FROM issues i")
            .append(issues)
            .sql(" CROSS JOIN events e WHERE e.issue_id = i.id AND i.project_id = ")
            .number(project)
    };
    let issues = match visibility {
        None => Some(about(Fragment::new(""))),
        Some(visibility) if visibility.confidential => None,
        Some(visibility) => Some(about(confidential_index_hint()).sql(" AND ").append(is_hidden(visibility))),
    };
    let commits = (!code).then(|| {
        Fragment::new(
            "SELECT e.id FROM commit_notes c CROSS JOIN events e WHERE e.commit_note_id = c.id AND c.project_id = ",
        )
        .number(project)
    });
    match (issues, commits) {
        (Some(issues), Some(commits)) => Some(issues.sql(" UNION ALL ").append(commits)),
        (issues, commits) => issues.or(commits),
    }
}

/// Makes SQLite find confidential issues `i` by their index; otherwise it scans all issues of a project.
fn confidential_index_hint() -> Fragment<Bool> {
    Fragment::new("").per_engine(" INDEXED BY issues_confidential_idx", "")
}

/// Condition: the issue `i` is confidential and hidden from a viewer who cannot see all confidential issues.
fn is_hidden(visibility: &IssueVisibility) -> Fragment<Bool> {
    Fragment::new("i.confidential AND NOT coalesce(").append(visibility.filter("i")).sql(", FALSE)")
}

fn is_not_push() -> Fragment<Bool> {
    Fragment::new(format!("events.action <> {}", EventAction::Pushed.code()))
}

/// Lists the events of a user that the viewer can see, newest first. Pushes and comments on commits require access to the
/// code; events of issues require that issues are enabled and access to the issue.
pub fn of_user(db: &mut Conn, viewer: &Viewer, user: UserId, page: Page) -> Result<Slice<Event>> {
    let limit = page.count_limit();
    let (mut ids, counted, is_complete) = page_of_user(db, viewer, user, page, Some(limit))?;
    let total = if is_complete {
        Total::Exact(counted)
    } else if counted > page.offset().saturating_add(page.size) {
        Total::AtLeast(counted)
    } else {
        // Of the newest events, the viewer can see too few to know whether there is a next page.
        let (all_ids, counted, _) = page_of_user(db, viewer, user, page, None)?;
        ids = all_ids;
        Total::Exact(counted)
    };
    Ok(Slice { items: load(db, &ids)?, total, page })
}

/// Returns a page of the newest `limit` events of a user (all, if it is `None`) that the viewer can see, their number, and
/// whether these are all events of the user.
fn page_of_user(
    db: &mut Conn,
    viewer: &Viewer,
    user: UserId,
    page: Page,
    limit: Option<i64>,
) -> Result<(Vec<EventId>, i64, bool)> {
    let of_user = || Fragment::<Bool>::new("intent_id IS NULL AND author_id = ").number(user);
    let oldest = match limit {
        None => Fragment::<BigInt>::new("SELECT CAST(NULL AS BIGINT)"),
        Some(limit) => Fragment::new("SELECT id FROM events WHERE ")
            .append(of_user())
            .sql(" ORDER BY id DESC LIMIT 1 OFFSET ")
            .number(limit - 1),
    };
    // Only projects with events of the user matter; the events are counted in the same pass.
    let visible_projects = Fragment::<(BigInt, BigInt, Bool)>::new("WITH oldest AS MATERIALIZED (SELECT coalesce((")
        .append(oldest)
        .sql("), 0) AS id), done AS (SELECT project_id, action, count(*) AS amount FROM events")
        .per_engine(" INDEXED BY events_author_idx", "")
        .sql(" WHERE id >= (SELECT id FROM oldest) AND ")
        .append(of_user())
        .sql(
            " GROUP BY project_id, action), \
             seen AS MATERIALIZED (SELECT d.project_id, d.action, d.amount, p.issues_enabled AS issues \
             FROM done d CROSS JOIN projects p WHERE p.id = d.project_id AND p.deleted_at IS NULL AND CASE WHEN d.action = ",
        )
        .number(EventAction::Pushed.code())
        .sql(" THEN ")
        .append(viewer.can_read_code())
        .sql(" ELSE ")
        .append(viewer.may_see())
        .sql(" END), hidden AS MATERIALIZED (")
        .append(hidden_of(viewer, user))
        .sql(") SELECT ");
    let numbers = || {
        Fragment::<BigInt>::new("CAST(coalesce((SELECT sum(amount) FROM seen), 0) AS BIGINT)")
            .sql(" - (SELECT count(*) FROM hidden) - (SELECT count(*) FROM (")
            .append(about_issues(user, Fragment::new("NOT issues"), Fragment::new("")))
            .sql(") o), (SELECT id = 0 FROM oldest)")
    };
    let page_query = || {
        visible_projects
            .clone()
            .sql("e.id, ")
            .append(numbers())
            .sql(" FROM events e WHERE e.id >= (SELECT id FROM oldest) AND e.intent_id IS NULL AND e.author_id = ")
            .number(user)
            .sql(
                " AND (e.project_id, e.action) IN (SELECT project_id, action FROM seen) \
                 AND (e.project_id IN (SELECT project_id FROM seen WHERE issues) OR e.issue_id IS NULL) \
                 AND e.id NOT IN (SELECT id FROM hidden) ORDER BY e.id DESC LIMIT ",
            )
            .number(page.size)
            .sql(" OFFSET ")
            .number(page.offset())
    };
    let rows: Vec<(i64, i64, bool)> = on!(db, conn => page_query().load(conn))?;
    let (total, is_complete) = if let Some((_, total, is_complete)) = rows.first() {
        (*total, *is_complete)
    } else {
        // A page beyond the end has no row that carries the numbers.
        let count = || visible_projects.clone().sql("CAST(0 AS BIGINT), ").append(numbers());
        let (_, total, is_complete): (i64, i64, bool) = on!(db, conn => count().get_result(conn))?;
        (total, is_complete)
    };
    Ok((rows.into_iter().map(|(id, ..)| EventId::new(id)).collect(), total, is_complete))
}

/// The number of microseconds in a day.
const DAY_MICROS: i64 = 86_400_000_000;

/// Counts the events of a user that the viewer can see, under the same rules as [`of_user`], by the number of the day since
/// 1970. Only the newest `limit` events of the user are considered, so the time it takes is bounded.
pub fn count_by_day(db: &mut Conn, viewer: &Viewer, user: UserId, since: Time, limit: i64) -> Result<Vec<(i64, i64)>> {
    let trusted = if viewer.admin { Fragment::<Bool>::new("TRUE") } else { viewer.has_role(Role::Reporter) };
    let own = IssueVisibility { user: viewer.user, confidential: false };
    let query = || {
        Fragment::<(BigInt, BigInt)>::new(
            "WITH recent AS MATERIALIZED (SELECT project_id, action, issue_id, commit_note_id, created_at FROM events \
             WHERE intent_id IS NULL AND author_id = ",
        )
        .number(user)
        .sql(" ORDER BY id DESC LIMIT ")
        .number(limit)
        .sql("), places AS MATERIALIZED (SELECT p.id AS id, p.issues_enabled AS issues, ")
        .append(viewer.can_read_code())
        .sql(" AS code, ")
        .append(trusted.clone())
        .sql(
            " AS trusted FROM (SELECT DISTINCT project_id FROM recent) d CROSS JOIN projects p \
             WHERE p.id = d.project_id AND p.deleted_at IS NULL AND ",
        )
        .append(viewer.may_see())
        .sql(") SELECT r.created_at / ")
        .number(DAY_MICROS)
        .sql(" AS day, count(*) FROM recent r JOIN places s ON s.id = r.project_id LEFT JOIN issues i ON i.id = r.issue_id")
        .sql(" WHERE r.created_at >= ")
        .number(to_micros(since))
        .sql(format!(" AND (s.code OR (r.action <> {} AND r.commit_note_id IS NULL))", EventAction::Pushed.code()))
        .sql(" AND (r.issue_id IS NULL OR (s.issues AND (s.trusted OR coalesce(")
        .append(own.filter("i"))
        .sql(", FALSE)))) GROUP BY 1 ORDER BY 1")
    };
    Ok(on!(db, conn => query().load(conn))?)
}

/// The IDs of the counted events of a user about issues, in those projects of the CTE `seen` that match `projects_filter`;
/// `index_hint` applies to the table of issues.
fn about_issues(user: UserId, projects_filter: Fragment<Bool>, index_hint: Fragment<Bool>) -> Fragment<BigInt> {
    Fragment::new("SELECT e.id FROM (SELECT DISTINCT project_id FROM seen WHERE ")
        .append(projects_filter)
        .sql(") s CROSS JOIN issues i")
        .append(index_hint)
        .sql(" CROSS JOIN events e WHERE i.project_id = s.project_id AND e.issue_id = i.id AND ")
        .append(counted_events_of(user))
}

/// Condition: the event `e` is one of the user's that are counted.
fn counted_events_of(user: UserId) -> Fragment<Bool> {
    Fragment::new("e.id >= (SELECT id FROM oldest) AND e.author_id = ").number(user)
}

/// The IDs of the events that the viewer must not see: those about hidden issues in projects with issues enabled, and
/// comments on commits where the viewer cannot read the code.
fn hidden_of(viewer: &Viewer, user: UserId) -> Fragment<BigInt> {
    if viewer.admin {
        return Fragment::new("SELECT e.id FROM events e WHERE FALSE");
    }
    let projects_filter = Fragment::new("issues AND NOT EXISTS (SELECT 1 FROM projects p WHERE p.id = project_id AND ");
    let visibility = IssueVisibility { user: viewer.user, confidential: false };
    let projects_filter = projects_filter.append(viewer.has_role(Role::Reporter)).sql(")");
    about_issues(user, projects_filter, confidential_index_hint())
        .sql(" AND ")
        .append(is_hidden(&visibility))
        .sql(" UNION ALL SELECT e.id FROM (SELECT d.project_id FROM seen d CROSS JOIN projects p WHERE d.action = ")
        .number(EventAction::Commented.code())
        .sql(" AND p.id = d.project_id AND NOT ")
        .append(viewer.can_read_code())
        .sql(
            ") s CROSS JOIN commit_notes c CROSS JOIN events e \
             WHERE c.project_id = s.project_id AND e.commit_note_id = c.id AND c.author_id = ",
        )
        .number(user)
        .sql(" AND ")
        .append(counted_events_of(user))
}

/// An event with its author, its push, the titles of its issue and milestone, and its note on an issue or a commit.
type FullRow =
    (Row, SummaryRow, Option<PushRow>, Option<String>, Option<String>, Option<NoteRow>, Option<CommitNoteRow>);

/// Returns the events with these IDs, newest first.
fn load(db: &mut Conn, ids: &[EventId]) -> Result<Vec<Event>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<FullRow> = on!(db, conn => events::table
        .inner_join(users::table)
        .left_join(push_events::table)
        .left_join(issues::table.on(events::issue_id.eq(issues::id.nullable())))
        .left_join(milestones::table.on(events::milestone_id.eq(milestones::id.nullable())))
        .left_join(notes::table.on(events::note_id.eq(notes::id.nullable())))
        .left_join(commit_notes::table.on(events::commit_note_id.eq(commit_notes::id.nullable())))
        .filter(Fragment::<Bool>::new("events.id").in_ids(ids))
        .order(events::id.desc())
        .select((
            Row::as_select(),
            SummaryRow::as_select(),
            Option::<PushRow>::as_select(),
            issues::title.nullable(),
            milestones::title.nullable(),
            Option::<NoteRow>::as_select(),
            Option::<CommitNoteRow>::as_select(),
        ))
        .load(conn))?;
    let commit_rows: Vec<CommitRow> = on!(db, conn => push_commits::table
        .filter(Fragment::<Bool>::new("push_commits.event_id").in_ids(ids))
        .order((push_commits::event_id, push_commits::position))
        .select(CommitRow::as_select())
        .load(conn))?;
    let mut commits: HashMap<EventId, Vec<PushCommit>> = HashMap::new();
    for row in commit_rows {
        let event = EventId::new(row.event_id);
        commits.entry(event).or_default().extend(row.into_commit());
    }
    let to_event = |(row, author, push, issue, milestone, note, commit_note): FullRow| {
        let target = row.target();
        let Row { id, project_id, action, created_at, .. } = row;
        let (id, project) = (EventId::new(id), ProjectId::new(project_id));
        let commits = commits.remove(&id).unwrap_or_default();
        // An unknown action comes from a newer version.
        let action = EventAction::from_code(action).unwrap_or(EventAction::Updated);
        let push = push.map(|push| to_push(push, commits));
        let (author, created_at) = (UserSummary::from(author), from_micros(created_at));
        let note = note.map(|note| note.into_note(&author));
        // The author of the comment is the author of the event.
        let by = |note: CommitNote| CommitNote { author: Some(author.clone()), ..note };
        let commit_note = commit_note.map(|row| by(comments::to_note((row, None))));
        let title = issue.or(milestone);
        Event { id, project, author, action, target, title, note, commit_note, push, created_at }
    };
    Ok(rows.into_iter().map(to_event).collect())
}

fn to_push(row: PushRow, commits: Vec<PushCommit>) -> PushData {
    let PushRow { ref_name, before, after, total_commits, .. } = row;
    let oid = |oid_text: &str| oid_text.parse().ok().filter(|_| oid_text != Oid::ZERO);
    PushData { before: oid(&before), after: oid(&after), ref_name, commits, total_commits }
}
