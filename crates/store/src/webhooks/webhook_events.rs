//! The outbox of webhook events.

use diesel::{prelude::*, sql_types::Bool};
use model::{EventKind, IntentId, ProjectId, Time, WebhookEventId};

use crate::{
    Conn, Result,
    conn::on,
    fragment::Fragment,
    schema::{hook_events, hooks},
    times::to_micros,
};

/// An event to insert.
pub struct NewHookEvent<'a> {
    /// The kind of event.
    pub kind: EventKind,
    /// The project in which it happened; `None` for an event of system hooks.
    pub project: Option<ProjectId>,
    /// The recursion depth: the number of webhooks in the chain of requests that caused the event.
    pub depth: i32,
    /// The seed of the UUIDs of its deliveries.
    pub seed: &'a str,
    /// The rendered payload.
    pub payload: &'a str,
    /// Whether it still has to be fanned out to hooks.
    pub waiting: bool,
    /// The current time.
    pub now: Time,
}

/// Matches the hooks that subscribe to a kind of event: those of the project, or system hooks.
pub(crate) fn subscribed(kind: EventKind, project: Option<ProjectId>) -> Fragment<Bool> {
    let wanted = match kind {
        EventKind::Push | EventKind::SystemPush => "hooks.push_events",
        EventKind::TagPush | EventKind::SystemTagPush => "hooks.tag_push_events",
        EventKind::Issue => "hooks.issues_events",
        EventKind::ConfidentialIssue => "hooks.confidential_issues_events",
        EventKind::Note => "hooks.note_events",
        EventKind::ConfidentialNote => "(hooks.note_events AND hooks.confidential_issues_events)",
        EventKind::MergeRequest => "hooks.merge_requests_events",
        EventKind::Job => "hooks.build_events",
        EventKind::Pipeline => "hooks.pipeline_events",
        EventKind::WikiPage => "hooks.wiki_page_events",
        EventKind::System => "hooks.id IS NOT NULL",
    };
    let with_scope = Fragment::new(wanted).sql(" AND hooks.project_id ");
    match project {
        Some(project) => with_scope.sql("= ").number(project),
        None => with_scope.sql("IS NULL"),
    }
}

/// Returns whether any hook subscribes to a kind of event.
pub fn has_subscribers(db: &mut Conn, kind: EventKind, project: Option<ProjectId>) -> Result<bool> {
    let found: Option<i64> = on!(db, conn => hooks::table
        .filter(subscribed(kind, project))
        .select(hooks::id)
        .first(conn)
        .optional())?;
    Ok(found.is_some())
}

/// Inserts an event; returns its id.
pub fn insert(db: &mut Conn, event: &NewHookEvent<'_>) -> Result<WebhookEventId> {
    let size = i64::try_from(event.payload.len()).unwrap_or(i64::MAX);
    let id = on!(db, conn => diesel::insert_into(hook_events::table)
        .values((
            hook_events::occasion.eq(event.kind.code()),
            hook_events::project_id.eq(event.project.map(ProjectId::get)),
            hook_events::depth.eq(event.depth),
            hook_events::seed.eq(event.seed),
            hook_events::waiting.eq(event.waiting),
            hook_events::created_at.eq(to_micros(event.now)),
            hook_events::size.eq(size),
            hook_events::payload.eq(event.payload),
        ))
        .returning(hook_events::id)
        .get_result(conn))?;
    Ok(WebhookEventId::new(id))
}

/// Releases the events of a completed push for fan-out.
pub(crate) fn release(db: &mut Conn, intent: IntentId) -> Result<()> {
    on!(db, conn => diesel::update(hook_events::table)
        .filter(hook_events::intent_id.eq(intent.get()))
        .set(hook_events::intent_id.eq(None::<i64>))
        .execute(conn))?;
    Ok(())
}

/// Deletes the events of a push whose refs did not move.
pub(crate) fn delete_for_unmoved_refs(db: &mut Conn, intent: IntentId, has_moved: impl Fn(&str) -> bool) -> Result<()> {
    let events: Vec<(i64, Option<String>)> = on!(db, conn => hook_events::table
        .filter(hook_events::intent_id.eq(intent.get()))
        .select((hook_events::id, hook_events::ref_name))
        .load(conn))?;
    let is_unmoved = |name: &Option<String>| name.as_deref().is_some_and(|name| !has_moved(name));
    let unmoved: Vec<i64> = events.into_iter().filter(|(_, name)| is_unmoved(name)).map(|(id, _)| id).collect();
    on!(db, conn => diesel::delete(hook_events::table)
        .filter(Fragment::<Bool>::new("hook_events.id").in_ids(&unmoved))
        .execute(conn))?;
    Ok(())
}
