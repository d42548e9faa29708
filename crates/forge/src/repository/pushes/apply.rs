//! Step 4 of a push, second part: updates the refs and records everything that follows.

use git::Ref;
use model::{
    EventKind, Project, ProjectId, RefChange, RefKind, RefName, WebhookEvent, events::PushData,
    webhook_events::PushEvent,
};
use store::{
    packs::NewPack,
    repositories::{RefUpdate, RepositoryRecord},
};

use super::{
    PushSource, RefOutcome, RefRejection,
    authorize::authorize,
    default_protection,
    inspect::{InspectedChange, InspectedPush},
    pipelines::start_pipelines,
};
use crate::{
    Result, WriteTx, maintenance, mentions, outbox,
    tasks::{self, Task},
};

/// A push that was applied.
pub(super) struct AppliedPush {
    pub(super) outcomes: Vec<RefOutcome>,
    pub(super) repository: RepositoryRecord,
    /// The changed refs, with their new values unless they are deleted; `None` if `HEAD` has changed as well.
    pub(super) changes: Option<Vec<(RefName, Option<Ref>)>>,
}

/// The result of the transaction of a push.
pub(super) enum ApplyOutcome {
    /// At least one change was applied.
    Applied(AppliedPush),
    /// All changes are rejected; only the generation may have increased.
    Rejected(Vec<RefOutcome>),
    /// The repository has changed in a way that the inspection depends on; only the generation may have increased.
    Outdated,
}

/// Authorizes the changes of a push and applies those that are accepted. An error rolls everything back.
pub(super) fn apply(
    tx: &mut WriteTx<'_>,
    project: ProjectId,
    inspected: &InspectedPush,
    drop_epoch: i64,
    packs: &[NewPack],
    atomic: bool,
    source: PushSource,
) -> Result<ApplyOutcome> {
    let (project, mut rejections) = authorize(tx, project, inspected, atomic, source)?;
    if rejections.iter().all(Option::is_some) {
        return Ok(ApplyOutcome::Rejected(outcomes(inspected, &rejections)));
    }
    let now = tx.now();
    if store::repositories::find(tx.db(), project.id)?.is_some_and(|before| before.drop_epoch != drop_epoch) {
        return Ok(ApplyOutcome::Outdated);
    }
    // Locks the repository: what follows cannot change until the transaction ends.
    let repository = store::repositories::begin_update(tx.db(), project.id, now)?;
    let was_empty = !store::repositories::has_branches(tx.db(), repository.id)?;
    if was_empty != inspected.was_empty || repository.drop_epoch != drop_epoch {
        return Ok(ApplyOutcome::Outdated);
    }
    reject_default_branch(tx, &project, inspected, &mut rejections)?;
    reject_name_conflicts(tx, &repository, inspected, &mut rejections)?;
    update_refs(tx, &repository, inspected, &mut rejections)?;
    if atomic && let Some(rejection) = rejections.iter().flatten().next() {
        return Err(rejection.clone().into());
    }
    let moved: Vec<&InspectedChange> = accepted(inspected, &rejections).collect();
    if moved.is_empty() {
        return Ok(ApplyOutcome::Rejected(outcomes(inspected, &rejections)));
    }
    for pack in packs {
        store::packs::add_pack(tx.db(), repository.id, pack, now)?;
    }
    // The objects of a rejected change are in the same pack.
    let leaves_objects = |one: &&InspectedChange| {
        let RefChange { name, old, new } = &one.change;
        one.forced || new.is_none() || old.is_some() && name.kind() != RefKind::Branch
    };
    if moved.len() < inspected.changes.len() && !packs.is_empty() || moved.iter().any(leaves_objects) {
        store::repositories::record_unreachable_objects(tx.db(), repository.id, now)?;
    }
    record_consequences(tx, &project, inspected, &moved)?;
    enqueue_maintenance(tx, &repository)?;
    let change = |one: &&InspectedChange| {
        let name = one.change.name.clone();
        let reference = one.change.new.map(|target| Ref { name: name.clone(), target, peeled: one.peeled });
        (name, reference)
    };
    let keeps_head = inspected.new_default_branch.is_none();
    let changes = keeps_head.then(|| moved.iter().map(change).collect());
    Ok(ApplyOutcome::Applied(AppliedPush { outcomes: outcomes(inspected, &rejections), repository, changes }))
}

fn outcomes(inspected: &InspectedPush, rejections: &[Option<RefRejection>]) -> Vec<RefOutcome> {
    let outcome = |(one, rejection): (&InspectedChange, &Option<RefRejection>)| RefOutcome {
        name: one.change.name.clone(),
        rejection: rejection.clone(),
    };
    inspected.changes.iter().zip(rejections).map(outcome).collect()
}

/// Returns the changes that are not rejected.
fn accepted<'a>(
    inspected: &'a InspectedPush,
    rejections: &'a [Option<RefRejection>],
) -> impl Iterator<Item = &'a InspectedChange> {
    inspected.changes.iter().zip(rejections).filter(|(_, rejection)| rejection.is_none()).map(|(one, _)| one)
}

/// Rejects the deletion of a branch that has become the default branch since the inspection.
fn reject_default_branch(
    tx: &mut WriteTx<'_>,
    project: &Project,
    inspected: &InspectedPush,
    rejections: &mut [Option<RefRejection>],
) -> Result<()> {
    let mut deletions = inspected.changes.iter().zip(rejections).filter(|(one, _)| one.change.new.is_none()).peekable();
    if deletions.peek().is_none() {
        return Ok(());
    }
    let default = store::projects::default_branch_of(tx.db(), project.id)?.and_then(|name| RefName::branch(&name));
    for (_, rejection) in deletions.filter(|(one, _)| Some(&one.change.name) == default.as_ref()) {
        rejection.get_or_insert(RefRejection::DefaultBranchDelete);
    }
    Ok(())
}

/// Rejects new refs whose name conflicts with a ref that was created since the inspection.
fn reject_name_conflicts(
    tx: &mut WriteTx<'_>,
    repository: &RepositoryRecord,
    inspected: &InspectedPush,
    rejections: &mut [Option<RefRejection>],
) -> Result<()> {
    // The inspection has compared the names with all refs of this generation.
    if repository.generation == inspected.generation + 1 {
        return Ok(());
    }
    for (one, rejection) in inspected.changes.iter().zip(rejections) {
        if rejection.is_none() && one.change.old.is_none() {
            let other = store::repositories::conflicting_ref(tx.db(), repository.id, &one.change.name)?;
            *rejection = other.map(|other| RefRejection::NameConflict(other.to_string()));
        }
    }
    Ok(())
}

/// Updates the refs; rejects those that have another target than the client expects.
fn update_refs(
    tx: &mut WriteTx<'_>,
    repository: &RepositoryRecord,
    inspected: &InspectedPush,
    rejections: &mut [Option<RefRejection>],
) -> Result<()> {
    let updates: Vec<RefUpdate<'_>> = accepted(inspected, rejections)
        .map(|one| RefUpdate { name: &one.change.name, old: one.change.old, new: one.change.new, peeled: one.peeled })
        .collect();
    let mut updated = store::repositories::update_refs(tx.db(), repository.id, &updates)?.into_iter();
    for rejection in rejections.iter_mut().filter(|rejection| rejection.is_none()) {
        if !updated.next().unwrap_or_default() {
            *rejection = Some(RefRejection::Stale);
        }
    }
    Ok(())
}

/// Records what follows from a push: the default branch, events, webhook events, issue references and pipelines.
fn record_consequences(
    tx: &mut WriteTx<'_>,
    project: &Project,
    inspected: &InspectedPush,
    moved: &[&InspectedChange],
) -> Result<()> {
    let now = tx.now();
    let head = inspected.new_default_branch.as_ref().filter(|head| moved.iter().any(|one| one.change.name == **head));
    let mut project = project.clone();
    if let Some(head) = head {
        project.default_branch = Some(head.short().to_owned());
        store::projects::set_default_branch(tx.db(), project.id, Some(head.short()), now)?;
        let rule = default_protection(head);
        if !store::protections::of_project(tx.db(), project.id)?.iter().any(|known| known.matches(&rule.name)) {
            store::protections::put(tx.db(), project.id, &rule, now)?;
        }
    }
    let removed = moved.iter().filter(|one| one.change.new.is_none());
    let removed_tags: Vec<&str> = removed.filter_map(|one| one.change.name.as_tag()).collect();
    store::releases::delete_all(tx.db(), project.id, &removed_tags)?;
    if let Some(author) = tx.actor().user().map(|user| user.id) {
        let recorded = moved.iter().filter(|one| one.change.name.kind() != RefKind::Other);
        let pushes: Vec<&PushData> = recorded.map(|one| &one.data).collect();
        store::events::insert_pushes(tx.db(), project.id, author, &pushes, now)?;
        record_webhook_events(tx, &project, inspected.has_webhooks, moved)?;
        if moved.iter().any(|one| Some(&one.change.name) == inspected.default_branch.as_ref()) {
            mentions::apply(tx, &project, author, &inspected.mentions)?;
        }
        start_pipelines(tx, &project, author, &inspected.pipelines, moved)?;
    }
    store::events::update_last_activity(tx.db(), project.id, now)?;
    Ok(())
}

/// Enqueues the maintenance of a repository: for later, or for now if it has many packs.
fn enqueue_maintenance(tx: &mut WriteTx<'_>, repository: &RepositoryRecord) -> Result<()> {
    let task = Task::Housekeeping(repository.project);
    if store::packs::count_live(tx.db(), repository.id)? < maintenance::MANY_PACKS {
        let now = tx.now();
        tasks::enqueue(tx, &task, now + tasks::HOUSEKEEPING_DELAY)
    } else {
        tasks::enqueue_now(tx, &task)
    }
}

/// Records the webhook events of a push.
fn record_webhook_events(
    tx: &mut WriteTx<'_>,
    project: &Project,
    has_webhooks: bool,
    moved: &[&InspectedChange],
) -> Result<()> {
    let Some(user) = tx.actor().user().cloned() else { return Ok(()) };
    let mut subscribed = Vec::new();
    for (kind, event_kind, hook_project) in [
        (RefKind::Branch, EventKind::Push, Some(project.id)),
        (RefKind::Branch, EventKind::SystemPush, None),
        (RefKind::Tag, EventKind::TagPush, Some(project.id)),
        (RefKind::Tag, EventKind::SystemTagPush, None),
    ] {
        let changes = moved.iter().any(|one| one.change.name.kind() == kind);
        // A webhook created during the inspection would receive an incomplete payload.
        if changes
            && (has_webhooks || hook_project.is_none())
            && outbox::has_subscribers(tx.read(), event_kind, hook_project)?
        {
            subscribed.push((kind, event_kind, hook_project));
        }
    }
    for one in moved {
        let name = &one.change.name;
        for (_, event_kind, hook_project) in subscribed.iter().filter(|(kind, ..)| *kind == name.kind()) {
            let push_event = PushEvent {
                project,
                user: &user,
                data: &one.data,
                message: one.annotation.as_deref(),
                files: &one.files,
                for_system_hook: hook_project.is_none(),
            };
            let event = WebhookEvent::Push(&push_event);
            outbox::enqueue(tx, *event_kind, *hook_project, event)?;
        }
    }
    Ok(())
}
