//! Step 3 of a push: checks permissions and records the intent.

use model::{
    Change, EventKind, IntentId, Project, ProjectId, Protection, PushLevel, RefChange, RefKind, Role, WebhookEvent,
    events::EventAction, webhook_events::PushEvent,
};
use store::{
    events::NewEvent,
    intents::{Intent, NewIntent},
};

use super::{
    PushSource, RefOutcome, RefRejection, default_protection,
    inspect::{InspectedChange, InspectedPush},
    pipelines::insert_pipelines,
};
use crate::{Error, ProjectAbility, ProjectRef, Result, WriteTx, mentions, outbox};

const PUSH_FORBIDDEN: &str = "You are not allowed to push code to this project.";

/// The result of authorizing a push.
pub(super) struct Authorization {
    pub(super) outcomes: Vec<RefOutcome>,
    /// The recorded intent; `None` if all changes are rejected.
    pub(super) intent: Option<Intent>,
}

/// Checks the permissions for each change and records an intent for the accepted ones.
pub(super) fn authorize(
    tx: &mut WriteTx<'_>,
    project: ProjectId,
    inspected: &InspectedPush,
    atomic: bool,
    source: PushSource,
) -> Result<Authorization> {
    let project = tx.project(&ProjectRef::Id(project), ProjectAbility::PushCode).map_err(|error| match error {
        Error::Forbidden(None) => Error::forbidden(PUSH_FORBIDDEN),
        other => other,
    })?;
    let protections = store::protections::of_project(tx.db(), project.id)?;
    let role = tx.read().project_role(&project);
    let mut rejections: Vec<Option<RefRejection>> = Vec::with_capacity(inspected.changes.len());
    let mut forbidden = false;
    for one in &inspected.changes {
        let rejection = check_ref_permission(inspected, one, &protections, role, source);
        forbidden |= rejection.is_some();
        rejections.push(rejection.or_else(|| one.rejection.clone()));
    }
    if forbidden || atomic && rejections.iter().any(Option::is_some) {
        for rejection in &mut rejections {
            rejection.get_or_insert(RefRejection::OtherRef);
        }
    }
    let outcomes: Vec<RefOutcome> = inspected
        .changes
        .iter()
        .zip(&rejections)
        .map(|(one, rejection)| RefOutcome { name: one.change.name.clone(), rejection: rejection.clone() })
        .collect();
    let accepted: Vec<&InspectedChange> = inspected
        .changes
        .iter()
        .zip(&rejections)
        .filter(|(_, rejection)| rejection.is_none())
        .map(|(one, _)| one)
        .collect();
    if accepted.is_empty() {
        return Ok(Authorization { outcomes, intent: None });
    }
    let intent = record_intent(tx, &project, inspected, &accepted)?;
    Ok(Authorization { outcomes, intent: Some(intent) })
}

/// Returns why the caller may not make a change; `None` if it is allowed.
fn check_ref_permission(
    inspected: &InspectedPush,
    one: &InspectedChange,
    protections: &[Protection],
    role: Option<Role>,
    source: PushSource,
) -> Option<RefRejection> {
    let RefChange { name, old, new } = &one.change;
    let is_master = role >= Some(Role::Master);
    match name.kind() {
        RefKind::Branch => {
            let branch = name.short();
            let mut rules = protections.iter().filter(|rule| rule.matches(branch)).peekable();
            let is_protected = rules.peek().is_some();
            let may_push = !is_protected
                || rules.any(|rule| match rule.push {
                    PushLevel::NoOne => false,
                    PushLevel::Developers => role >= Some(Role::Developer),
                    PushLevel::Masters => is_master,
                });
            if new.is_none() && is_protected {
                Some(RefRejection::ProtectedDelete)
            } else if new.is_none() && inspected.default_branch.as_ref() == Some(name) {
                Some(RefRejection::DefaultBranchDelete)
            } else if is_protected && one.forced {
                Some(RefRejection::ProtectedForcePush)
            } else if !may_push || inspected.was_empty && !is_master {
                // The first push creates the default branch, which is protected.
                Some(RefRejection::ProtectedBranch)
            } else {
                None
            }
        }
        // Only masters may write to a repository without a default branch.
        RefKind::Tag if inspected.was_empty && !is_master => Some(RefRejection::ProtectedBranch),
        RefKind::Tag => (old.is_some() && !is_master && source == PushSource::Git).then_some(RefRejection::TagChange),
        RefKind::Other => None,
    }
}

/// Records the intent with its events, webhook events, issue references and pipelines.
fn record_intent(
    tx: &mut WriteTx<'_>,
    project: &Project,
    inspected: &InspectedPush,
    accepted: &[&InspectedChange],
) -> Result<Intent> {
    let now = tx.now();
    let user = tx.actor().user().map(|user| user.id);
    let changes: Vec<RefChange> = accepted.iter().map(|one| one.change.clone()).collect();
    let head = inspected.new_default_branch.clone().filter(|head| changes.iter().any(|change| change.name == *head));
    let protection = head.as_ref().map(default_protection);
    let default_branch = head.as_ref().map_or(Change::Keep, |head| Change::Set(head.short().to_owned()));
    let new = NewIntent {
        project: project.id,
        user,
        changes: &changes,
        default_branch: default_branch.clone(),
        protection: protection.clone(),
        now,
    };
    let id = store::intents::insert(tx.db(), &new)?;
    if let Some(author) = user {
        for one in accepted.iter().filter(|one| one.change.name.kind() != RefKind::Other) {
            let event = NewEvent {
                project: project.id,
                author,
                action: EventAction::Pushed,
                target: None,
                push: Some(&one.data),
                intent: Some(id),
                now,
            };
            store::events::insert(tx.db(), &event)?;
        }
        let project = Project {
            default_branch: head
                .as_ref()
                .map(|head| head.short().to_owned())
                .or_else(|| project.default_branch.clone()),
            ..project.clone()
        };
        record_webhook_events(tx, &project, id, inspected.has_webhooks, accepted)?;
        if accepted.iter().any(|one| Some(&one.change.name) == inspected.default_branch.as_ref()) {
            mentions::record(tx, &project, id, &inspected.mentions)?;
        }
        insert_pipelines(tx, &project, id, author, &inspected.pipelines, accepted)?;
    }
    Ok(Intent { id, project: project.id, user, changes, default_branch, protection, created_at: now })
}

/// Records the webhook events of a push; they are released once it is finished.
fn record_webhook_events(
    tx: &mut WriteTx<'_>,
    project: &Project,
    intent: IntentId,
    has_webhooks: bool,
    accepted: &[&InspectedChange],
) -> Result<()> {
    let Some(user) = tx.actor().user().cloned() else { return Ok(()) };
    let mut subscribed = Vec::new();
    for (kind, event_kind, hook_project) in [
        (RefKind::Branch, EventKind::Push, Some(project.id)),
        (RefKind::Branch, EventKind::SystemPush, None),
        (RefKind::Tag, EventKind::TagPush, Some(project.id)),
        (RefKind::Tag, EventKind::SystemTagPush, None),
    ] {
        let changes = accepted.iter().any(|one| one.change.name.kind() == kind);
        // A webhook created during the inspection would receive an incomplete payload.
        if changes
            && (has_webhooks || hook_project.is_none())
            && outbox::has_subscribers(tx.read(), event_kind, hook_project)?
        {
            subscribed.push((kind, event_kind, hook_project));
        }
    }
    for one in accepted {
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
            outbox::enqueue(tx, *event_kind, *hook_project, event, Some((intent, name.as_str())))?;
        }
    }
    Ok(())
}
