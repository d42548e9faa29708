//! What happened in projects.
//!
//! A page costs at most five statements, however long the list is: how many there are, how many of them are hidden,
//! which are on this page, those in full, and the commits that came with them.
//!
//! What is about an issue is for those who see the issue. Few issues are confidential, so all events are counted by
//! their index and what is about hidden issues is taken off, instead of asking for the issue of each event.

use std::collections::HashMap;

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool},
};
use jiff::SignedDuration;
use model::{
    CommitNote, Event, Note, Oid, Page, Role, Slice, Time,
    events::{Action, PushCommit, PushData, Target},
    objects::Signature,
    users::UserSummary,
};

use crate::{
    Conn, Result, Sight,
    access::Viewer,
    commit_notes::{self as comments, Row as CommitNoteRow},
    conn::on,
    fragment::Fragment,
    schema::{commit_notes, events, issues, milestones, notes, projects, push_commits, push_events, users},
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
    /// What it was done to, if it was done to something.
    pub target: Option<Target>,
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
    issue_id: Option<i64>,
    note_id: Option<i64>,
    milestone_id: Option<i64>,
    commit_note_id: Option<i64>,
    created_at: i64,
}

impl Row {
    fn target(&self) -> Option<Target> {
        match (self.issue_id, self.note_id) {
            (Some(issue), Some(note)) => Some(Target::Note { note, issue }),
            (Some(issue), None) => Some(Target::Issue(issue)),
            (None, _) => {
                let milestone = self.milestone_id.map(Target::Milestone);
                milestone.or_else(|| self.commit_note_id.map(Target::CommitNote))
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
    /// The note; whoever wrote it is whoever the event is about, and both go together.
    fn into_note(self, author: &UserSummary) -> Note {
        let Self { id, issue_id, body, system, created_at, updated_at } = self;
        let (created_at, updated_at) = (from_micros(created_at), from_micros(updated_at));
        Note { id, issue: issue_id, body, author: Some(author.clone()), system, created_at, updated_at }
    }
}

/// Commits may hold any byte; PostgreSQL's texts hold all but this one.
fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// Tells that something happened; says its number.
pub fn insert(db: &mut Conn, new: &NewEvent<'_>) -> Result<i64> {
    let (issue, note, milestone, commit_note) = match new.target {
        None => (None, None, None, None),
        Some(Target::Issue(issue)) => (Some(issue), None, None, None),
        Some(Target::Note { note, issue }) => (Some(issue), Some(note), None, None),
        Some(Target::Milestone(milestone)) => (None, None, Some(milestone), None),
        Some(Target::CommitNote(note)) => (None, None, None, Some(note)),
    };
    let id = on!(db, conn => diesel::insert_into(events::table)
        .values((
            events::project_id.eq(new.project),
            events::author_id.eq(new.author),
            events::action.eq(new.action.code()),
            events::target_type.eq(new.target.map(Target::kind)),
            events::target_id.eq(new.target.map(Target::id)),
            events::issue_id.eq(issue),
            events::note_id.eq(note),
            events::milestone_id.eq(milestone),
            events::commit_note_id.eq(commit_note),
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

/// What happened in a project, newest first; with or without what is about its code, and what is about the issues that
/// somebody sees, if they see any.
pub fn of_project(db: &mut Conn, project: i64, code: bool, sight: Option<&Sight>, page: Page) -> Result<Slice<Event>> {
    let there = || {
        let kinds = if code { Fragment::<Bool>::new("TRUE") } else { not_pushed() };
        events::table.filter(events::project_id.eq(project)).filter(events::intent_id.is_null()).filter(kinds)
    };
    let mut total: i64 = on!(db, conn => there().count().get_result(conn))?;
    let mut is_seen = Fragment::<Bool>::new("TRUE");
    if let Some(hidden) = hidden_in(project, code, sight) {
        let count = || Fragment::<BigInt>::new("SELECT count(*) FROM (").then(hidden.clone()).sql(") h");
        let hidden_ones: i64 = on!(db, conn => count().get_result(conn))?;
        total -= hidden_ones;
        is_seen = match (hidden_ones, sight, code) {
            (0, ..) => is_seen,
            (_, None, true) => Fragment::new("events.issue_id IS NULL"),
            (_, None, false) => Fragment::new("events.issue_id IS NULL AND events.commit_note_id IS NULL"),
            (_, Some(_), _) => Fragment::new("events.id NOT IN (").then(hidden).sql(")"),
        };
    }
    let ids: Vec<i64> = on!(db, conn => there()
        .filter(is_seen.clone())
        .order(events::id.desc())
        .limit(page.size)
        .offset(page.offset())
        .select(events::id)
        .load(conn))?;
    Ok(Slice { items: load(db, &ids)?, total, page })
}

/// The numbers of the events of a project that are about issues somebody does not see, and about commits if they do not
/// read the code; `None` if they see all of that. Such events never wait for a push.
fn hidden_in(project: i64, code: bool, sight: Option<&Sight>) -> Option<Fragment<BigInt>> {
    let about = |issues: Fragment<Bool>| {
        Fragment::new("SELECT e.id FROM issues i")
            .then(issues)
            .sql(" CROSS JOIN events e WHERE e.issue_id = i.id AND i.project_id = ")
            .number(project)
    };
    let issues = match sight {
        None => Some(about(Fragment::new(""))),
        Some(sight) if sight.confidential => None,
        Some(sight) => Some(about(by_confidential()).sql(" AND ").then(is_hidden(sight))),
    };
    let commits = (!code).then(|| {
        Fragment::new(
            "SELECT e.id FROM commit_notes c CROSS JOIN events e WHERE e.commit_note_id = c.id AND c.project_id = ",
        )
        .number(project)
    });
    match (issues, commits) {
        (Some(issues), Some(commits)) => Some(issues.sql(" UNION ALL ").then(commits)),
        (issues, commits) => issues.or(commits),
    }
}

/// How the issue `i` is found if it is confidential. Left to itself, SQLite looks at all issues of a project instead.
fn by_confidential() -> Fragment<Bool> {
    Fragment::new("").either(" INDEXED BY issues_confidential_idx", "")
}

/// Whether the issue `i` is a secret to somebody who does not see all of them.
fn is_hidden(sight: &Sight) -> Fragment<Bool> {
    Fragment::new("i.confidential AND NOT coalesce(").then(sight.sees("i")).sql(", FALSE)")
}

fn not_pushed() -> Fragment<Bool> {
    Fragment::new(format!("events.action <> {}", Action::Pushed.code()))
}

/// What a user did, newest first, as far as the viewer sees it: pushes and comments on commits only where the viewer reads
/// the code, and what is about issues only where those are switched on and the viewer sees the issue.
pub fn of_user(db: &mut Conn, viewer: &Viewer, user: i64, page: Page) -> Result<Slice<Event>> {
    // Of all projects there are, only those matter where the user did something; and what was done there is counted by
    // the way.
    let seen = Fragment::<(BigInt, BigInt)>::new(
        "WITH done AS (SELECT project_id, action, count(*) AS amount FROM events WHERE intent_id IS NULL AND author_id = ",
    )
    .number(user)
    .sql(
        " GROUP BY project_id, action), \
         seen AS MATERIALIZED (SELECT d.project_id, d.action, d.amount, p.issues_enabled AS issues \
         FROM done d CROSS JOIN projects p WHERE p.id = d.project_id AND p.deleted_at IS NULL AND CASE WHEN d.action = ",
    )
    .number(Action::Pushed.code().into())
    .sql(" THEN ")
    .then(viewer.reads_code())
    .sql(" ELSE ")
    .then(viewer.knows())
    .sql(" END), hidden AS MATERIALIZED (")
    .then(hidden_of(viewer, user))
    .sql(") SELECT ");
    let total = || {
        Fragment::<BigInt>::new("CAST(coalesce((SELECT sum(amount) FROM seen), 0) AS BIGINT)")
            .sql(" - (SELECT count(*) FROM hidden) - (SELECT count(*) FROM (")
            .then(about_issues(user, Fragment::new("NOT issues"), Fragment::new("")))
            .sql(") o)")
    };
    let on_page = || {
        seen.clone()
            .sql("e.id, ")
            .then(total())
            .sql(" FROM events e WHERE e.intent_id IS NULL AND e.author_id = ")
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
    let rows: Vec<(i64, i64)> = on!(db, conn => on_page().load(conn))?;
    let total = match rows.first() {
        Some((_, total)) => *total,
        None if page.offset() == 0 => 0,
        // Beyond the end of the list no row is there to tell.
        None => {
            let count = || seen.clone().sql("CAST(0 AS BIGINT), ").then(total());
            let (_, total): (i64, i64) = on!(db, conn => count().get_result(conn))?;
            total
        }
    };
    let ids: Vec<i64> = rows.into_iter().map(|(id, _)| id).collect();
    Ok(Slice { items: load(db, &ids)?, total, page })
}

/// The numbers of the events of a user that are about issues in some of the projects that are `seen`; `way` is how those
/// issues are found.
fn about_issues(user: i64, places: Fragment<Bool>, way: Fragment<Bool>) -> Fragment<BigInt> {
    Fragment::new("SELECT e.id FROM (SELECT DISTINCT project_id FROM seen WHERE ")
        .then(places)
        .sql(") s CROSS JOIN issues i")
        .then(way)
        .sql(" CROSS JOIN events e WHERE i.project_id = s.project_id AND e.issue_id = i.id AND e.author_id = ")
        .number(user)
}

/// Those of them that are about issues the viewer does not see, where issues are switched on, and comments on commits
/// where the viewer does not read the code.
fn hidden_of(viewer: &Viewer, user: i64) -> Fragment<BigInt> {
    if viewer.admin {
        return Fragment::new("SELECT e.id FROM events e WHERE FALSE");
    }
    let places = Fragment::new("issues AND project_id NOT IN (");
    let sight = Sight { user: viewer.user, confidential: false };
    let places = places.then(viewer.my_projects_as(Role::Reporter, "")).sql(")");
    about_issues(user, places, by_confidential())
        .sql(" AND ")
        .then(is_hidden(&sight))
        .sql(" UNION ALL SELECT e.id FROM (SELECT d.project_id FROM seen d CROSS JOIN projects p WHERE d.action = ")
        .number(Action::Commented.code().into())
        .sql(" AND p.id = d.project_id AND NOT ")
        .then(viewer.reads_code())
        .sql(
            ") s CROSS JOIN commit_notes c CROSS JOIN events e \
             WHERE c.project_id = s.project_id AND e.commit_note_id = c.id AND c.author_id = ",
        )
        .number(user)
}

/// What an event is loaded with: who did it, what was pushed, the titles of the issue and of the milestone, and the
/// note, be it on an issue or on a commit.
type FullRow =
    (Row, SummaryRow, Option<PushRow>, Option<String>, Option<String>, Option<NoteRow>, Option<CommitNoteRow>);

/// The events with these numbers, newest first.
fn load(db: &mut Conn, ids: &[i64]) -> Result<Vec<Event>> {
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
        .filter(Fragment::<Bool>::new("events.id").among(ids))
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
    let whole = |(row, author, push, issue, milestone, note, commit_note): FullRow| {
        let target = row.target();
        let Row { id, project_id, action, created_at, .. } = row;
        let commits = commits.remove(&id).unwrap_or_default();
        // A number that is unknown can only come from a newer version; there is no word for it here.
        let action = Action::from_code(action).unwrap_or(Action::Updated);
        let push = push.map(|push| to_push(push, commits));
        let (author, created_at) = (UserSummary::from(author), from_micros(created_at));
        let note = note.map(|note| note.into_note(&author));
        // Whoever wrote it is whoever the event is about, as with notes.
        let by = |note: CommitNote| CommitNote { author: Some(author.clone()), ..note };
        let commit_note = commit_note.map(|row| by(comments::to_note((row, None))));
        let title = issue.or(milestone);
        Event { id, project: project_id, author, action, target, title, note, commit_note, push, created_at }
    };
    Ok(rows.into_iter().map(whole).collect())
}

fn to_push(row: PushRow, commits: Vec<PushCommit>) -> PushData {
    let PushRow { ref_name, before, after, total_commits, .. } = row;
    let oid = |digits: &str| digits.parse().ok().filter(|_| digits != Oid::ZERO);
    PushData { before: oid(&before), after: oid(&after), ref_name, commits, total_commits }
}
