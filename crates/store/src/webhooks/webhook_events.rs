//! What there is to tell hooks.

use diesel::{prelude::*, sql_types::Bool};
use model::{EventKind, Time};

use crate::{
    Conn, Result,
    conn::on,
    fragment::Fragment,
    schema::{hook_events, hooks},
    times::to_micros,
};

/// Something that is to be told.
pub struct NewHookEvent<'a> {
    /// On which occasion.
    pub occasion: EventKind,
    /// Where it happened; `None` for what hooks of the instance are told.
    pub project: Option<i64>,
    /// How many hooks have led to it, one by the other.
    pub depth: i32,
    /// What makes the numbers of its deliveries.
    pub seed: &'a str,
    /// The push that it is part of; it waits until that has happened.
    pub intent: Option<i64>,
    /// The ref that was pushed.
    pub ref_name: Option<&'a str>,
    /// What is told.
    pub payload: &'a str,
    /// Whether it still has to be spread to hooks.
    pub waiting: bool,
    /// The moment.
    pub now: Time,
}

/// Which hooks are told on an occasion, as a condition on `hooks`: those of the project, or else of the instance.
pub(crate) fn audience(occasion: EventKind, project: Option<i64>) -> Fragment<Bool> {
    let wanted = match occasion {
        EventKind::Push | EventKind::SystemPush => "hooks.push_events",
        EventKind::TagPush | EventKind::SystemTagPush => "hooks.tag_push_events",
        EventKind::Issue => "hooks.issues_events",
        EventKind::ConfidentialIssue => "hooks.confidential_issues_events",
        EventKind::Note => "hooks.note_events",
        EventKind::ConfidentialNote => "(hooks.note_events AND hooks.confidential_issues_events)",
        EventKind::MergeRequest => "hooks.merge_requests_events",
        EventKind::Build => "hooks.build_events",
        EventKind::Pipeline => "hooks.pipeline_events",
        EventKind::WikiPage => "hooks.wiki_page_events",
        EventKind::System => "hooks.id IS NOT NULL",
    };
    let own = Fragment::new(wanted).sql(" AND hooks.project_id ");
    match project {
        Some(project) => own.sql("= ").number(project),
        None => own.sql("IS NULL"),
    }
}

/// Whether any hook is told on an occasion.
pub fn is_wanted(db: &mut Conn, occasion: EventKind, project: Option<i64>) -> Result<bool> {
    let found: Option<i64> = on!(db, conn => hooks::table
        .filter(audience(occasion, project))
        .select(hooks::id)
        .first(conn)
        .optional())?;
    Ok(found.is_some())
}

/// Writes down what there is to tell; answers its number.
pub fn insert(db: &mut Conn, new: &NewHookEvent<'_>) -> Result<i64> {
    let size = i64::try_from(new.payload.len()).unwrap_or(i64::MAX);
    Ok(on!(db, conn => diesel::insert_into(hook_events::table)
        .values((
            hook_events::occasion.eq(new.occasion.code()),
            hook_events::project_id.eq(new.project),
            hook_events::depth.eq(new.depth),
            hook_events::seed.eq(new.seed),
            hook_events::intent_id.eq(new.intent),
            hook_events::ref_name.eq(new.ref_name),
            hook_events::waiting.eq(new.waiting),
            hook_events::created_at.eq(to_micros(new.now)),
            hook_events::size.eq(size),
            hook_events::payload.eq(new.payload),
        ))
        .returning(hook_events::id)
        .get_result(conn))?)
}

/// What was written down with a push is told from now on.
pub(crate) fn release(db: &mut Conn, intent: i64) -> Result<()> {
    on!(db, conn => diesel::update(hook_events::table)
        .filter(hook_events::intent_id.eq(intent))
        .set(hook_events::intent_id.eq(None::<i64>))
        .execute(conn))?;
    Ok(())
}

/// Forgets what there was to tell of refs that did not move.
pub(crate) fn forget_stuck(db: &mut Conn, intent: i64, has_moved: impl Fn(&str) -> bool) -> Result<()> {
    let carried: Vec<(i64, Option<String>)> = on!(db, conn => hook_events::table
        .filter(hook_events::intent_id.eq(intent))
        .select((hook_events::id, hook_events::ref_name))
        .load(conn))?;
    let is_stuck = |name: &Option<String>| name.as_deref().is_some_and(|name| !has_moved(name));
    let stuck: Vec<i64> = carried.into_iter().filter(|(_, name)| is_stuck(name)).map(|(id, _)| id).collect();
    on!(db, conn => diesel::delete(hook_events::table)
        .filter(Fragment::<Bool>::new("hook_events.id").among(&stuck))
        .execute(conn))?;
    Ok(())
}
