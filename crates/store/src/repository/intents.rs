//! Intents: pushes that an earlier version has recorded, but not finished.
//!
//! Earlier versions inserted an intent before they updated the files of refs. When a repository is converted, [`finish`] makes
//! what its intents carry visible if the refs were updated, and [`delete`] discards it otherwise.

use std::collections::{HashMap, HashSet};

use diesel::{prelude::*, sql_types::Bool};
use model::{Change, IntentId, ProjectId, Protection, RefChange, RefName, Time};

use crate::{
    Conn, Result,
    conn::on,
    events::update_last_activity,
    fragment::Fragment,
    projects::set_default_branch,
    protections::{self, to_level},
    releases,
    schema::{events, push_events, ref_intent_changes, ref_intents},
    webhook_events,
};

/// A recorded push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// The id of the intent.
    pub id: IntentId,
    /// The project.
    pub project: ProjectId,
    /// The ref changes.
    pub changes: Vec<RefChange>,
    /// The new default branch.
    pub default_branch: Change<String>,
    /// A protection to add.
    pub protection: Option<Protection>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = ref_intents)]
struct Row {
    id: i64,
    project_id: i64,
    head: Option<String>,
    protect_name: Option<String>,
    protect_push: Option<i32>,
    protect_merge: Option<i32>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = ref_intent_changes)]
struct ChangeRow {
    intent_id: i64,
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

/// Lists the intents of a project, oldest first.
pub fn pending_of(db: &mut Conn, project: ProjectId) -> Result<Vec<Intent>> {
    let rows: Vec<Row> = on!(db, conn => ref_intents::table
        .filter(ref_intents::project_id.eq(project.get()))
        .order(ref_intents::id)
        .select(Row::as_select())
        .load(conn))?;
    with_changes(db, rows)
}

/// Returns the number of intents of all projects.
pub fn count(db: &mut Conn) -> Result<i64> {
    Ok(on!(db, conn => ref_intents::table.count().get_result(conn))?)
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
        let Row { id, project_id, head, protect_name, protect_push, protect_merge } = row;
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
            changes: changes.remove(&id).unwrap_or_default(),
            default_branch: Change::from_text(head),
            protection,
        }
    };
    Ok(rows.into_iter().map(to_intent).collect())
}

/// Makes visible what a push carries, for the refs that changed, and deletes the intent with its pipelines that were not published.
///
/// A default branch or protection is not applied to a branch whose change failed, and the default branch is only cleared if all
/// refs changed.
pub fn finish(db: &mut Conn, intent: &Intent, moved: &[RefName], now: Time) -> Result<()> {
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
