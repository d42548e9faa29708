//! Pushes that are about to happen.
//!
//! An intent is written before refs move. Once they have moved, [`finish`] makes what it carries visible and removes it,
//! in one transaction; what a crash left over is found by [`pending`] and finished or dropped as the repository tells.

use std::collections::{HashMap, HashSet};

use diesel::{prelude::*, sql_types::Bool};
use model::{Change, Protection, RefChange, RefName, Time};

use crate::{
    Conn, Result,
    conn::on,
    events::note_activity,
    fragment::Fragment,
    projects::set_default_branch,
    protections::{self, to_level},
    releases,
    schema::{events, push_events, ref_intent_changes, ref_intents},
    times::{from_micros, to_micros},
    webhook_events,
};

/// How many rows go into one statement; engines have a limit.
const AT_ONCE: usize = 1000;

/// A push about to be written down.
#[derive(Clone, Debug)]
pub struct NewIntent<'a> {
    /// Whose refs move.
    pub project: i64,
    /// Who pushes, if it is a user.
    pub user: Option<i64>,
    /// How they move.
    pub changes: &'a [RefChange],
    /// The default branch afterwards: [`Change::Clear`] if the last branch goes.
    pub default_branch: Change<String>,
    /// A rule that shall hold afterwards, unless its branch then has one; the name is that of a branch.
    pub protection: Option<Protection>,
    /// When.
    pub now: Time,
}

/// A push that is written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Number of the intent.
    pub id: i64,
    /// Whose refs move.
    pub project: i64,
    /// Who pushes, if it is a user who is still there.
    pub user: Option<i64>,
    /// How they move.
    pub changes: Vec<RefChange>,
    /// The default branch afterwards.
    pub default_branch: Change<String>,
    /// A rule that shall hold afterwards.
    pub protection: Option<Protection>,
    /// When it was written down.
    pub created_at: Time,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = ref_intents)]
struct Row {
    id: i64,
    project_id: i64,
    user_id: Option<i64>,
    head: Option<String>,
    protect_name: Option<String>,
    protect_push: Option<i32>,
    protect_merge: Option<i32>,
    created_at: i64,
}

#[derive(Queryable, Selectable, Insertable)]
#[diesel(table_name = ref_intent_changes)]
struct ChangeRow {
    intent_id: i64,
    position: i32,
    ref_name: String,
    old_oid: Option<String>,
    new_oid: Option<String>,
}

impl ChangeRow {
    /// The change; a name that is none can only come from a newer version, and then the ref is left alone.
    fn into_change(self) -> Option<RefChange> {
        let Self { ref_name, old_oid, new_oid, .. } = self;
        let oid = |text: Option<String>| text.map(|text| text.parse()).transpose().ok();
        Some(RefChange { name: RefName::new(&ref_name)?, old: oid(old_oid)?, new: oid(new_oid)? })
    }
}

/// Writes a push down; says its number.
pub fn insert(db: &mut Conn, new: &NewIntent<'_>) -> Result<i64> {
    let head = match &new.default_branch {
        Change::Keep => None,
        Change::Clear => Some(""),
        Change::Set(branch) => Some(branch.as_str()),
    };
    let rule = new.protection.as_ref();
    let id = on!(db, conn => diesel::insert_into(ref_intents::table)
        .values((
            ref_intents::project_id.eq(new.project),
            ref_intents::user_id.eq(new.user),
            ref_intents::head.eq(head),
            ref_intents::protect_name.eq(rule.map(|rule| &rule.name)),
            ref_intents::protect_push.eq(rule.map(|rule| rule.push.level())),
            ref_intents::protect_merge.eq(rule.map(|rule| rule.merge.level())),
            ref_intents::created_at.eq(to_micros(new.now)),
        ))
        .returning(ref_intents::id)
        .get_result(conn))?;
    let rows: Vec<ChangeRow> = (0..)
        .zip(new.changes)
        .map(|(position, change)| ChangeRow {
            intent_id: id,
            position,
            ref_name: change.name.as_str().to_owned(),
            old_oid: change.old.map(|oid| oid.to_string()),
            new_oid: change.new.map(|oid| oid.to_string()),
        })
        .collect();
    for some in rows.chunks(AT_ONCE) {
        on!(db, conn => diesel::insert_into(ref_intent_changes::table).values(some).execute(conn))?;
    }
    Ok(id)
}

/// The pushes of a project that are written down, oldest first.
pub fn pending_of(db: &mut Conn, project: i64) -> Result<Vec<Intent>> {
    let rows: Vec<Row> = on!(db, conn => ref_intents::table
        .filter(ref_intents::project_id.eq(project))
        .order(ref_intents::id)
        .select(Row::as_select())
        .load(conn))?;
    with_changes(db, rows)
}

/// Some of the pushes of all projects that are written down, oldest first, beginning after a number.
pub fn pending(db: &mut Conn, after: i64, most: i64) -> Result<Vec<Intent>> {
    let rows: Vec<Row> = on!(db, conn => ref_intents::table
        .filter(ref_intents::id.gt(after))
        .order(ref_intents::id)
        .limit(most)
        .select(Row::as_select())
        .load(conn))?;
    with_changes(db, rows)
}

fn with_changes(db: &mut Conn, rows: Vec<Row>) -> Result<Vec<Intent>> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    let of_these: Vec<ChangeRow> = on!(db, conn => ref_intent_changes::table
        .filter(Fragment::<Bool>::new("ref_intent_changes.intent_id").among(&ids))
        .order((ref_intent_changes::intent_id, ref_intent_changes::position))
        .select(ChangeRow::as_select())
        .load(conn))?;
    let mut changes: HashMap<i64, Vec<RefChange>> = HashMap::new();
    for row in of_these {
        let intent = row.intent_id;
        changes.entry(intent).or_default().extend(row.into_change());
    }
    let whole = |row: Row| {
        let Row { id, project_id, user_id, head, protect_name, protect_push, protect_merge, created_at } = row;
        let protection = match (protect_name, protect_push, protect_merge) {
            (Some(name), Some(push), Some(merge)) => {
                Some(Protection { name, push: to_level(push), merge: to_level(merge) })
            }
            _ => None,
        };
        Intent {
            id,
            project: project_id,
            user: user_id,
            changes: changes.remove(&id).unwrap_or_default(),
            default_branch: Change::from_text(head),
            protection,
            created_at: from_micros(created_at),
        }
    };
    Ok(rows.into_iter().map(whole).collect())
}

/// Makes visible what a push carries, for the refs that moved, and removes the intent; pipelines that were not shown before
/// go with it. Whoever knows more of the
/// repository by now may have changed `default_branch` and `protection` of the intent.
///
/// A default branch or a rule is not for a branch that should have moved and did not; and the default branch does not
/// go unless all moved. Once the intent is gone, nothing happens any more.
pub fn finish(db: &mut Conn, intent: &Intent, moved: &[RefName], now: Time) -> Result<()> {
    if !hold(db, intent.id)? {
        return Ok(());
    }
    let moved: HashSet<&RefName> = moved.iter().collect();
    let stuck = |branch: &str| {
        intent.changes.iter().any(|change| change.name.as_branch() == Some(branch) && !moved.contains(&change.name))
    };
    let all = intent.changes.iter().all(|change| moved.contains(&change.name));
    match &intent.default_branch {
        Change::Set(branch) if !stuck(branch) => set_default_branch(db, intent.project, Some(branch), now)?,
        Change::Clear if all => set_default_branch(db, intent.project, None, now)?,
        Change::Keep | Change::Clear | Change::Set(_) => {}
    }
    if let Some(rule) = intent.protection.as_ref().filter(|rule| !stuck(&rule.name))
        && !protections::of_project(db, intent.project)?.iter().any(|known| known.matches(&rule.name))
    {
        protections::put(db, intent.project, rule, now)?;
    }
    let has_moved = |change: &&RefChange| moved.contains(&change.name);
    let removed_tags: Vec<&str> = intent
        .changes
        .iter()
        .filter(has_moved)
        .filter(|change| change.new.is_none())
        .filter_map(|change| change.name.as_tag())
        .collect();
    releases::delete_all(db, intent.project, &removed_tags)?;
    if !all {
        forget_stuck(db, intent.id, &moved)?;
    }
    show_events(db, intent.id)?;
    webhook_events::release(db, intent.id)?;
    if !moved.is_empty() {
        note_activity(db, intent.project, now)?;
    }
    drop(db, intent.id)
}

/// Removes an intent with the events and pipelines that nobody has seen.
pub fn drop(db: &mut Conn, id: i64) -> Result<()> {
    on!(db, conn => diesel::delete(ref_intents::table.find(id)).execute(conn))?;
    Ok(())
}

/// Whether the intent is still there; on PostgreSQL nobody else finishes it meanwhile.
pub fn hold(db: &mut Conn, id: i64) -> Result<bool> {
    let row = || ref_intents::table.find(id).select(ref_intents::id);
    let found: Option<i64> = match db {
        Conn::Sqlite(conn) => row().first(conn).optional()?,
        Conn::Pg(conn) => row().for_update().first(conn).optional()?,
    };
    Ok(found.is_some())
}

/// Removes the events of refs that did not move.
fn forget_stuck(db: &mut Conn, intent: i64, moved: &HashSet<&RefName>) -> Result<()> {
    let carried: Vec<(i64, String)> = on!(db, conn => push_events::table
        .inner_join(events::table)
        .filter(events::intent_id.eq(intent))
        .select((push_events::event_id, push_events::ref_name))
        .load(conn))?;
    let has_moved = |name: &str| RefName::new(name).is_some_and(|name| moved.contains(&name));
    let stuck: Vec<i64> = carried.into_iter().filter(|(_, name)| !has_moved(name)).map(|(id, _)| id).collect();
    on!(db, conn => diesel::delete(events::table)
        .filter(Fragment::<Bool>::new("events.id").among(&stuck))
        .execute(conn))?;
    webhook_events::forget_stuck(db, intent, has_moved)
}

fn show_events(db: &mut Conn, intent: i64) -> Result<()> {
    on!(db, conn => diesel::update(events::table)
        .filter(events::intent_id.eq(intent))
        .set(events::intent_id.eq(None::<i64>))
        .execute(conn))?;
    Ok(())
}
