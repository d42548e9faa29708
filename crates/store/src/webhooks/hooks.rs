//! Hooks of projects and of the instance. Their URLs and tokens come and go sealed.

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool, Integer, Nullable},
};
use model::{
    Page, Slice, Time,
    hooks::{Pause, Switches},
};

use crate::{
    Conn, Result,
    conn::on,
    fragment::Fragment,
    schema::{hook_deliveries, hooks, issues, notes, projects},
    times::{from_micros, from_micros_opt, to_micros},
};

/// A hook as it is stored.
pub struct SealedHook {
    /// Number of the hook.
    pub id: i64,
    /// The project whose hook it is; `None` for one of the instance.
    pub project: Option<i64>,
    /// Where it leads, sealed.
    pub url: Vec<u8>,
    /// What the receiver knows the sender by, sealed.
    pub token: Option<Vec<u8>>,
    /// Host and port of the receiver.
    pub receiver: String,
    /// Whether the receiver has to prove who it is.
    pub verify: bool,
    /// What it wants to be told.
    pub switches: Switches,
    /// When it was made.
    pub created_at: Time,
    /// When it was last changed.
    pub updated_at: Time,
    /// When something is sent next, if something waits.
    pub due_at: Option<Time>,
    /// Why nothing is sent at present, if that is so.
    pub pause: Option<Pause>,
}

/// What is written down of a hook.
pub struct HookRecord<'a> {
    /// Where it leads, sealed.
    pub url: &'a [u8],
    /// What the receiver knows the sender by, sealed.
    pub token: Option<&'a [u8]>,
    /// Host and port of the receiver.
    pub receiver: &'a str,
    /// Whether the receiver has to prove who it is.
    pub verify: bool,
    /// What it wants to be told.
    pub switches: Switches,
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

impl From<Row> for SealedHook {
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
            id,
            project: project_id,
            url,
            token,
            receiver,
            verify: enable_ssl_verification,
            switches: Switches {
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
        let HookRecord { url, token, receiver, verify, switches } = *record;
        Self {
            url,
            token,
            receiver,
            enable_ssl_verification: verify,
            push_events: switches.push,
            tag_push_events: switches.tag_push,
            issues_events: switches.issues,
            confidential_issues_events: switches.confidential_issues,
            merge_requests_events: switches.merge_requests,
            note_events: switches.note,
            build_events: switches.build,
            pipeline_events: switches.pipeline,
            wiki_page_events: switches.wiki_page,
            updated_at: to_micros(now),
        }
    }
}

/// Whether a hook is one of a project, or else of the instance.
fn of(project: Option<i64>) -> Fragment<Bool> {
    match project {
        Some(project) => Fragment::new("hooks.project_id = ").number(project),
        None => Fragment::new("hooks.project_id IS NULL"),
    }
}

/// The hooks of a project, or of the instance, newest first.
pub fn list(db: &mut Conn, project: Option<i64>, page: Page) -> Result<Slice<SealedHook>> {
    let total = on!(db, conn => hooks::table.filter(of(project)).count().get_result(conn))?;
    let rows: Vec<Row> = on!(db, conn => hooks::table
        .filter(of(project))
        .order(hooks::id.desc())
        .limit(page.size)
        .offset(page.offset())
        .select(Row::as_select())
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(SealedHook::from).collect(), total, page })
}

/// One of the hooks of a project, or of the instance.
pub fn find(db: &mut Conn, project: Option<i64>, id: i64) -> Result<Option<SealedHook>> {
    let row: Option<Row> = on!(db, conn => hooks::table
        .filter(hooks::id.eq(id))
        .filter(of(project))
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(SealedHook::from))
}

/// The same as it is while the transaction lasts: on PostgreSQL nobody else changes it or takes its messages meanwhile.
pub fn find_to_change(db: &mut Conn, project: Option<i64>, id: i64) -> Result<Option<SealedHook>> {
    let row: Option<Row> = match db {
        Conn::Sqlite(conn) => {
            hooks::table.filter(hooks::id.eq(id)).filter(of(project)).select(Row::as_select()).first(conn).optional()?
        }
        Conn::Pg(conn) => hooks::table
            .filter(hooks::id.eq(id))
            .filter(of(project))
            .select(Row::as_select())
            .for_update()
            .first(conn)
            .optional()?,
    };
    Ok(row.map(SealedHook::from))
}

/// Adds a hook to a project, or to the instance.
pub fn insert(db: &mut Conn, project: Option<i64>, record: &HookRecord<'_>, now: Time) -> Result<SealedHook> {
    let columns = Columns::new(record, now);
    let row: Row = on!(db, conn => diesel::insert_into(hooks::table)
        .values((columns, hooks::project_id.eq(project), hooks::created_at.eq(to_micros(now))))
        .returning(Row::as_returning())
        .get_result(conn))?;
    Ok(row.into())
}

/// Writes a hook anew.
pub fn update(db: &mut Conn, id: i64, record: &HookRecord<'_>, now: Time) -> Result<()> {
    let columns = Columns::new(record, now);
    on!(db, conn => diesel::update(hooks::table.find(id)).set(columns).execute(conn))?;
    Ok(())
}

/// Ends the pause of a hook: what waits for it is tried at once, as if nothing had failed before.
pub fn wake(db: &mut Conn, id: i64, now: Time) -> Result<()> {
    let now = to_micros(now);
    on!(db, conn => diesel::update(hook_deliveries::table
        .filter(hook_deliveries::hook_id.eq(id))
        .filter(is_waiting())
        .filter(hook_deliveries::due_at.gt(now)))
        .set(hook_deliveries::due_at.eq(now))
        .execute(conn))?;
    // Nothing is due where nothing waits.
    let due_at =
        Fragment::<Nullable<BigInt>>::new("CASE WHEN EXISTS (SELECT 1 FROM hook_deliveries d WHERE d.hook_id = ")
            .number(id)
            .sql(" AND d.state = 0) THEN ")
            .number(now)
            .sql(" END");
    on!(db, conn => diesel::update(hooks::table.find(id))
        .set((
            // It counts as well again once a message has arrived.
            hooks::failures.eq(Fragment::<Integer>::new("CASE WHEN failures > 0 THEN 1 ELSE 0 END")),
            hooks::paused_at.eq(None::<i64>),
            hooks::pause_reason.eq(None::<String>),
            hooks::due_at.eq(due_at),
        ))
        .execute(conn))?;
    Ok(())
}

/// As a literal, for the index of those that wait.
fn is_waiting() -> Fragment<Bool> {
    Fragment::new("hook_deliveries.state = 0")
}

/// How many hooks a project has.
pub fn count(db: &mut Conn, project: i64) -> Result<i64> {
    Ok(on!(db, conn => hooks::table.filter(hooks::project_id.eq(project)).count().get_result(conn))?)
}

/// Removes a hook with all that waits for it, and its log.
pub fn delete(db: &mut Conn, id: i64) -> Result<()> {
    on!(db, conn => diesel::delete(hooks::table.find(id)).execute(conn))?;
    Ok(())
}

/// The newest issue of a project that everybody sees who sees its issues, or else the newest of the others.
pub fn newest_issue(db: &mut Conn, project: i64, confidential: bool) -> Result<Option<i64>> {
    Ok(on!(db, conn => issues::table
        .filter(issues::project_id.eq(project))
        .filter(issues::confidential.eq(confidential))
        .order(issues::id.desc())
        .select(issues::id)
        .first(conn)
        .optional())?)
}

/// The newest comment in a project on an issue that everybody sees who sees its issues; first the issue's number.
pub fn newest_note(db: &mut Conn, project: i64) -> Result<Option<(i64, i64)>> {
    Ok(on!(db, conn => notes::table
        .inner_join(issues::table)
        .filter(notes::project_id.eq(project))
        .filter(notes::system.eq(false))
        .filter(issues::confidential.eq(false))
        .order(notes::id.desc())
        .select((notes::issue_id, notes::id))
        .first(conn)
        .optional())?)
}

/// The newest project in which there is something.
pub fn newest_project(db: &mut Conn) -> Result<Option<i64>> {
    Ok(on!(db, conn => projects::table
        .filter(projects::default_branch.is_not_null())
        .filter(projects::deleted_at.is_null())
        .order(projects::id.desc())
        .select(projects::id)
        .first(conn)
        .optional())?)
}
