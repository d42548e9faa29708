//! Hooks of projects and system hooks. URLs and tokens are stored encrypted.

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool, Integer, Nullable},
};
use model::{
    HookId, IssueId, NoteId, Page, ProjectId, Slice, Time,
    hooks::{Pause, SubscribedEvents},
};

use crate::{
    Conn, Result,
    conn::on,
    fragment::Fragment,
    schema::{hook_deliveries, hooks, issues, notes, projects},
    times::{from_micros, from_micros_opt, to_micros},
};

/// A hook as it is stored.
pub struct EncryptedHook {
    /// Id of the hook.
    pub id: HookId,
    /// The project of the hook; `None` for a system hook.
    pub project: Option<ProjectId>,
    /// The URL, encrypted.
    pub url: Vec<u8>,
    /// The secret token, encrypted.
    pub token: Option<Vec<u8>>,
    /// Host and port of the URL.
    pub receiver: String,
    /// Whether the TLS certificate of the receiver is verified.
    pub verify_tls: bool,
    /// The kinds of events that it receives.
    pub events: SubscribedEvents,
    /// When it was created.
    pub created_at: Time,
    /// When it was last changed.
    pub updated_at: Time,
    /// When its queue is next processed, if deliveries are pending.
    pub due_at: Option<Time>,
    /// Set while the hook is paused.
    pub pause: Option<Pause>,
}

/// The columns of a hook that an insert or an update sets.
pub struct HookRecord<'a> {
    /// The URL, encrypted.
    pub url: &'a [u8],
    /// The secret token, encrypted.
    pub token: Option<&'a [u8]>,
    /// Host and port of the URL.
    pub receiver: &'a str,
    /// Whether the TLS certificate of the receiver is verified.
    pub verify_tls: bool,
    /// The kinds of events that it receives.
    pub events: SubscribedEvents,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = hooks)]
struct Row {
    id: i64,
    project_id: Option<i64>,
    url: Vec<u8>,
    token: Option<Vec<u8>>,
    receiver: String,
    enable_ssl_verification: bool,
    push_events: bool,
    tag_push_events: bool,
    issues_events: bool,
    confidential_issues_events: bool,
    merge_requests_events: bool,
    note_events: bool,
    build_events: bool,
    pipeline_events: bool,
    wiki_page_events: bool,
    created_at: i64,
    updated_at: i64,
    due_at: Option<i64>,
    paused_at: Option<i64>,
    pause_reason: Option<String>,
}

impl From<Row> for EncryptedHook {
    fn from(row: Row) -> Self {
        let Row {
            id,
            project_id,
            url,
            token,
            receiver,
            enable_ssl_verification,
            push_events,
            tag_push_events,
            issues_events,
            confidential_issues_events,
            merge_requests_events,
            note_events,
            build_events,
            pipeline_events,
            wiki_page_events,
            created_at,
            updated_at,
            due_at,
            paused_at,
            pause_reason,
        } = row;
        let due_at = from_micros_opt(due_at);
        let pause = paused_at.map(|since| Pause {
            since: from_micros(since),
            reason: pause_reason.unwrap_or_default(),
            next_attempt_at: due_at,
        });
        Self {
            id: HookId::new(id),
            project: project_id.map(ProjectId::new),
            url,
            token,
            receiver,
            verify_tls: enable_ssl_verification,
            events: SubscribedEvents {
                push: push_events,
                tag_push: tag_push_events,
                issues: issues_events,
                confidential_issues: confidential_issues_events,
                merge_requests: merge_requests_events,
                note: note_events,
                build: build_events,
                pipeline: pipeline_events,
                wiki_page: wiki_page_events,
            },
            created_at: from_micros(created_at),
            updated_at: from_micros(updated_at),
            due_at,
            pause,
        }
    }
}

/// The columns that an insert and an update have in common.
#[derive(Insertable, AsChangeset)]
#[diesel(table_name = hooks)]
#[diesel(treat_none_as_null = true)]
struct Columns<'a> {
    url: &'a [u8],
    token: Option<&'a [u8]>,
    receiver: &'a str,
    enable_ssl_verification: bool,
    push_events: bool,
    tag_push_events: bool,
    issues_events: bool,
    confidential_issues_events: bool,
    merge_requests_events: bool,
    note_events: bool,
    build_events: bool,
    pipeline_events: bool,
    wiki_page_events: bool,
    updated_at: i64,
}

impl<'a> Columns<'a> {
    fn new(record: &HookRecord<'a>, now: Time) -> Self {
        let HookRecord { url, token, receiver, verify_tls, events } = *record;
        Self {
            url,
            token,
            receiver,
            enable_ssl_verification: verify_tls,
            push_events: events.push,
            tag_push_events: events.tag_push,
            issues_events: events.issues,
            confidential_issues_events: events.confidential_issues,
            merge_requests_events: events.merge_requests,
            note_events: events.note,
            build_events: events.build,
            pipeline_events: events.pipeline,
            wiki_page_events: events.wiki_page,
            updated_at: to_micros(now),
        }
    }
}

/// Matches the hooks of a project, or the system hooks.
fn belongs_to(project: Option<ProjectId>) -> Fragment<Bool> {
    match project {
        Some(project) => Fragment::new("hooks.project_id = ").number(project),
        None => Fragment::new("hooks.project_id IS NULL"),
    }
}

/// Returns the hooks of a project, or the system hooks, newest first.
pub fn list(db: &mut Conn, project: Option<ProjectId>, page: Page) -> Result<Slice<EncryptedHook>> {
    let total: i64 = on!(db, conn => hooks::table.filter(belongs_to(project)).count().get_result(conn))?;
    let rows: Vec<Row> = on!(db, conn => hooks::table
        .filter(belongs_to(project))
        .order(hooks::id.desc())
        .limit(page.size)
        .offset(page.offset())
        .select(Row::as_select())
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(EncryptedHook::from).collect(), total: total.into(), page })
}

/// Returns a hook of a project, or a system hook.
pub fn find(db: &mut Conn, project: Option<ProjectId>, id: HookId) -> Result<Option<EncryptedHook>> {
    let row: Option<Row> = on!(db, conn => hooks::table
        .filter(hooks::id.eq(id.get()))
        .filter(belongs_to(project))
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(EncryptedHook::from))
}

/// Like [`find`], with the row locked on PostgreSQL.
pub fn find_for_update(db: &mut Conn, project: Option<ProjectId>, id: HookId) -> Result<Option<EncryptedHook>> {
    let row: Option<Row> = match db {
        Conn::Sqlite(conn) => hooks::table
            .filter(hooks::id.eq(id.get()))
            .filter(belongs_to(project))
            .select(Row::as_select())
            .first(conn)
            .optional()?,
        Conn::Pg(conn) => hooks::table
            .filter(hooks::id.eq(id.get()))
            .filter(belongs_to(project))
            .select(Row::as_select())
            .for_update()
            .first(conn)
            .optional()?,
    };
    Ok(row.map(EncryptedHook::from))
}

/// Adds a hook to a project, or a system hook.
pub fn insert(db: &mut Conn, project: Option<ProjectId>, record: &HookRecord<'_>, now: Time) -> Result<EncryptedHook> {
    let columns = Columns::new(record, now);
    let row: Row = on!(db, conn => diesel::insert_into(hooks::table)
        .values((columns, hooks::project_id.eq(project.map(ProjectId::get)), hooks::created_at.eq(to_micros(now))))
        .returning(Row::as_returning())
        .get_result(conn))?;
    Ok(row.into())
}

/// Replaces the settings of a hook.
pub fn update(db: &mut Conn, id: HookId, record: &HookRecord<'_>, now: Time) -> Result<()> {
    let columns = Columns::new(record, now);
    on!(db, conn => diesel::update(hooks::table.find(id.get())).set(columns).execute(conn))?;
    Ok(())
}

/// Ends the pause of a hook and makes its pending deliveries due now.
pub fn resume(db: &mut Conn, id: HookId, now: Time) -> Result<()> {
    let now = to_micros(now);
    on!(db, conn => diesel::update(hook_deliveries::table
        .filter(hook_deliveries::hook_id.eq(id.get()))
        .filter(is_pending())
        .filter(hook_deliveries::due_at.gt(now)))
        .set(hook_deliveries::due_at.eq(now))
        .execute(conn))?;
    // An empty queue has no due time.
    let due_at =
        Fragment::<Nullable<BigInt>>::new("CASE WHEN EXISTS (SELECT 1 FROM hook_deliveries d WHERE d.hook_id = ")
            .number(id)
            .sql(" AND d.state = 0) THEN ")
            .number(now)
            .sql(" END");
    on!(db, conn => diesel::update(hooks::table.find(id.get()))
        .set((
            // The next successful delivery resets the count.
            hooks::failures.eq(Fragment::<Integer>::new("CASE WHEN failures > 0 THEN 1 ELSE 0 END")),
            hooks::paused_at.eq(None::<i64>),
            hooks::pause_reason.eq(None::<String>),
            hooks::due_at.eq(due_at),
        ))
        .execute(conn))?;
    Ok(())
}

/// A literal, so that the partial index applies.
fn is_pending() -> Fragment<Bool> {
    Fragment::new("hook_deliveries.state = 0")
}

/// Returns the number of hooks of a project.
pub fn count(db: &mut Conn, project: ProjectId) -> Result<i64> {
    Ok(on!(db, conn => hooks::table.filter(hooks::project_id.eq(project.get())).count().get_result(conn))?)
}

/// Deletes a hook with its deliveries.
pub fn delete(db: &mut Conn, id: HookId) -> Result<()> {
    on!(db, conn => diesel::delete(hooks::table.find(id.get())).execute(conn))?;
    Ok(())
}

/// Returns the newest issue of a project that is, or is not, confidential.
pub fn newest_issue(db: &mut Conn, project: ProjectId, confidential: bool) -> Result<Option<IssueId>> {
    let id: Option<i64> = on!(db, conn => issues::table
        .filter(issues::project_id.eq(project.get()))
        .filter(issues::confidential.eq(confidential))
        .order(issues::id.desc())
        .select(issues::id)
        .first(conn)
        .optional())?;
    Ok(id.map(IssueId::new))
}

/// Returns the newest comment on an issue of a project that is not confidential, as the ids of the issue and the
/// comment.
pub fn newest_note(db: &mut Conn, project: ProjectId) -> Result<Option<(IssueId, NoteId)>> {
    let ids: Option<(i64, i64)> = on!(db, conn => notes::table
        .inner_join(issues::table)
        .filter(notes::project_id.eq(project.get()))
        .filter(notes::system.eq(false))
        .filter(issues::confidential.eq(false))
        .order(notes::id.desc())
        .select((notes::issue_id, notes::id))
        .first(conn)
        .optional())?;
    Ok(ids.map(|(issue, note)| (IssueId::new(issue), NoteId::new(note))))
}

/// Returns the newest project that has a default branch.
pub fn newest_project(db: &mut Conn) -> Result<Option<ProjectId>> {
    let id: Option<i64> = on!(db, conn => projects::table
        .filter(projects::default_branch.is_not_null())
        .filter(projects::deleted_at.is_null())
        .order(projects::id.desc())
        .select(projects::id)
        .first(conn)
        .optional())?;
    Ok(id.map(ProjectId::new))
}
