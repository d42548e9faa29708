//! Intents: recorded pushes that are not finished yet.
//!
//! An intent is inserted before refs are updated. Afterwards [`finish`] makes what it carries visible and deletes it, in one
//! transaction. After a crash, [`pending`] finds the remaining ones, which are finished or deleted as the repository requires.

use std::collections::{HashMap, HashSet};

use diesel::{prelude::*, sql_types::Bool};
use model::{Change, IntentId, ProjectId, Protection, RefChange, RefName, Time, UserId};

use crate::{
    Conn, Result,
    conn::on,
    events::update_last_activity,
    fragment::Fragment,
    projects::set_default_branch,
    protections::{self, to_level},
    releases,
    schema::{events, push_events, ref_intent_changes, ref_intents},
    times::{from_micros, to_micros},
    webhook_events,
};

/// The number of rows in one statement; engines have a limit.
const BATCH_SIZE: usize = 1000;

/// A new intent.
#[derive(Clone, Debug)]
pub struct NewIntent<'a> {
    /// The project.
    pub project: ProjectId,
    /// The user who pushes, if any.
    pub user: Option<UserId>,
    /// The ref changes.
    pub changes: &'a [RefChange],
    /// The new default branch; [`Change::Clear`] if the last branch is deleted.
    pub default_branch: Change<String>,
    /// A protection to add, unless the branch is already protected; its name is that of a branch.
    pub protection: Option<Protection>,
    /// The current time.
    pub now: Time,
}

/// A recorded push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// The id of the intent.
    pub id: IntentId,
    /// The project.
    pub project: ProjectId,
    /// The user who pushes, unless deleted.
    pub user: Option<UserId>,
    /// The ref changes.
    pub changes: Vec<RefChange>,
    /// The new default branch.
    pub default_branch: Change<String>,
    /// A protection to add.
    pub protection: Option<Protection>,
    /// When it was recorded.
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
    /// Converts the row; `None` for a ref name that only a newer version can have written.
    fn into_change(self) -> Option<RefChange> {
        let Self { ref_name, old_oid, new_oid, .. } = self;
        let oid = |text: Option<String>| text.map(|text| text.parse()).transpose().ok();
        Some(RefChange { name: RefName::new(&ref_name)?, old: oid(old_oid)?, new: oid(new_oid)? })
    }
}

/// Inserts an intent and returns its id.
pub fn insert(db: &mut Conn, new: &NewIntent<'_>) -> Result<IntentId> {
    let head = match &new.default_branch {
        Change::Keep => None,
        Change::Clear => Some(""),
        Change::Set(branch) => Some(branch.as_str()),
    };
    let rule = new.protection.as_ref();
    let id = on!(db, conn => diesel::insert_into(ref_intents::table)
        .values((
            ref_intents::project_id.eq(new.project.get()),
            ref_intents::user_id.eq(new.user.map(UserId::get)),
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
    for batch in rows.chunks(BATCH_SIZE) {
        on!(db, conn => diesel::insert_into(ref_intent_changes::table).values(batch).execute(conn))?;
    }
    Ok(IntentId::new(id))
}

/// Lists the intents of a project, oldest first.
pub fn pending_of(db: &mut Conn, project: ProjectId) -> Result<Vec<Intent>> {
    let rows: Vec<Row> = on!(db, conn => ref_intents::table
        .filter(ref_intents::project_id.eq(project.get()))
        .order(ref_intents::id)
        .select(Row::as_select())
        .load(conn))?;
    with_changes(db, rows)
}

/// Lists up to `limit` intents of all projects after an id, oldest first.
pub fn pending(db: &mut Conn, after: IntentId, limit: i64) -> Result<Vec<Intent>> {
    let rows: Vec<Row> = on!(db, conn => ref_intents::table
        .filter(ref_intents::id.gt(after.get()))
        .order(ref_intents::id)
        .limit(limit)
        .select(Row::as_select())
        .load(conn))?;
    with_changes(db, rows)
}

fn with_changes(db: &mut Conn, rows: Vec<Row>) -> Result<Vec<Intent>> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    let change_rows: Vec<ChangeRow> = on!(db, conn => ref_intent_changes::table
        .filter(Fragment::<Bool>::new("ref_intent_changes.intent_id").in_ids(&ids))
        .order((ref_intent_changes::intent_id, ref_intent_changes::position))
        .select(ChangeRow::as_select())
        .load(conn))?;
    let mut changes: HashMap<IntentId, Vec<RefChange>> = HashMap::new();
    for row in change_rows {
        let intent = IntentId::new(row.intent_id);
        changes.entry(intent).or_default().extend(row.into_change());
    }
    let to_intent = |row: Row| {
        let Row { id, project_id, user_id, head, protect_name, protect_push, protect_merge, created_at } = row;
        let protection = match (protect_name, protect_push, protect_merge) {
            (Some(name), Some(push), Some(merge)) => {
                Some(Protection { name, push: to_level(push), merge: to_level(merge) })
            }
            _ => None,
        };
        let id = IntentId::new(id);
        Intent {
            id,
            project: ProjectId::new(project_id),
            user: user_id.map(UserId::new),
            changes: changes.remove(&id).unwrap_or_default(),
            default_branch: Change::from_text(head),
            protection,
            created_at: from_micros(created_at),
        }
    };
    Ok(rows.into_iter().map(to_intent).collect())
}

/// Makes visible what a push carries, for the refs that changed, and deletes the intent with its pipelines that were not published.
/// The caller may have updated `default_branch` and `protection` of the intent.
///
/// A default branch or protection is not applied to a branch whose change failed, and the default branch is only cleared if all
/// refs changed. Does nothing if the intent no longer exists.
pub fn finish(db: &mut Conn, intent: &Intent, moved: &[RefName], now: Time) -> Result<()> {
    if !lock_row(db, intent.id)? {
        return Ok(());
    }
    let moved: HashSet<&RefName> = moved.iter().collect();
    let is_unmoved = |branch: &str| {
        intent.changes.iter().any(|change| change.name.as_branch() == Some(branch) && !moved.contains(&change.name))
    };
    let all = intent.changes.iter().all(|change| moved.contains(&change.name));
    match &intent.default_branch {
        Change::Set(branch) if !is_unmoved(branch) => set_default_branch(db, intent.project, Some(branch), now)?,
        Change::Clear if all => set_default_branch(db, intent.project, None, now)?,
        Change::Keep | Change::Clear | Change::Set(_) => {}
    }
    if let Some(rule) = intent.protection.as_ref().filter(|rule| !is_unmoved(&rule.name))
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
        delete_unmoved_events(db, intent.id, &moved)?;
    }
    publish_events(db, intent.id)?;
    webhook_events::release(db, intent.id)?;
    if !moved.is_empty() {
        update_last_activity(db, intent.project, now)?;
    }
    delete(db, intent.id)
}

/// Deletes an intent with its unpublished events and pipelines.
pub fn delete(db: &mut Conn, id: IntentId) -> Result<()> {
    on!(db, conn => diesel::delete(ref_intents::table.find(id.get())).execute(conn))?;
    Ok(())
}

/// Returns whether the intent exists; on PostgreSQL also locks its row.
pub fn lock_row(db: &mut Conn, id: IntentId) -> Result<bool> {
    let row = || ref_intents::table.find(id.get()).select(ref_intents::id);
    let found: Option<i64> = match db {
        Conn::Sqlite(conn) => row().first(conn).optional()?,
        Conn::Pg(conn) => row().for_update().first(conn).optional()?,
    };
    Ok(found.is_some())
}

/// Deletes the events of refs that did not change.
fn delete_unmoved_events(db: &mut Conn, intent: IntentId, moved: &HashSet<&RefName>) -> Result<()> {
    let events_of_intent: Vec<(i64, String)> = on!(db, conn => push_events::table
        .inner_join(events::table)
        .filter(events::intent_id.eq(intent.get()))
        .select((push_events::event_id, push_events::ref_name))
        .load(conn))?;
    let has_moved = |name: &str| RefName::new(name).is_some_and(|name| moved.contains(&name));
    let unmoved: Vec<i64> =
        events_of_intent.into_iter().filter(|(_, name)| !has_moved(name)).map(|(id, _)| id).collect();
    on!(db, conn => diesel::delete(events::table)
        .filter(Fragment::<Bool>::new("events.id").in_ids(&unmoved))
        .execute(conn))?;
    webhook_events::delete_for_unmoved_refs(db, intent, has_moved)
}

fn publish_events(db: &mut Conn, intent: IntentId) -> Result<()> {
    on!(db, conn => diesel::update(events::table)
        .filter(events::intent_id.eq(intent.get()))
        .set(events::intent_id.eq(None::<i64>))
        .execute(conn))?;
    Ok(())
}
