//! Step 3 of a push: who may, and what is written down to happen.

use ci::Plan;
use model::{
    Change, EventKind, Project, Protection, PushLevel, RefChange, RefKind, RefName, Role, Status, WebhookEvent,
    events::Action, pipelines::Source, webhook_events::Pushed,
};
use store::{
    events::NewEvent,
    intents::{Intent, NewIntent},
    pipelines::NewPipeline,
};
use tracing::error;

use super::{
    NO_PROTECTED_PUSH, RefOutcome, Via, first_protection,
    weigh::{Weighed, WeighedChange},
};
use crate::{
    Error, ProjectAbility, ProjectRef, Result, WriteTx, announcements, mentions,
    pipelines::{
        drafts::{Draft, Drafted},
        machine, tidings,
    },
};

const NO_PUSH: &str = "You are not allowed to push code to this project.";
const NO_TAG_CHANGE: &str = "You are not allowed to change existing tags on this project.";
const NO_FORCE: &str = "You are not allowed to force push code to a protected branch on this project.";
const NO_DELETE: &str = "You are not allowed to delete protected branches from this project.";
const NO_DEFAULT_DELETE: &str = "The default branch of a project cannot be deleted; choose another one first.";
const OTHERS: &str = "Refused, because another ref of this push was refused.";

/// What a transaction decided.
pub(super) struct Judged {
    pub(super) outcomes: Vec<RefOutcome>,
    /// What is to be done now; `None` if nothing is.
    pub(super) intent: Option<Intent>,
}

/// Step 3: judges the changes and writes down what will happen.
pub(super) fn judge(tx: &mut WriteTx<'_>, project: i64, weighed: &Weighed, atomic: bool, via: Via) -> Result<Judged> {
    let project = tx.open(&ProjectRef::Id(project), ProjectAbility::PushCode).map_err(|error| match error {
        Error::Forbidden(None) => Error::forbidden(NO_PUSH),
        other => other,
    })?;
    let protections = store::protections::of_project(tx.db(), project.id)?;
    let role = tx.role_to(&project);
    let mut refusals: Vec<Option<String>> = Vec::with_capacity(weighed.changes.len());
    let mut forbidden = false;
    for one in &weighed.changes {
        let verdict = verdict(weighed, one, &protections, role, via);
        forbidden |= verdict.is_some();
        refusals.push(verdict.map(ToOwned::to_owned).or_else(|| one.refusal.clone()));
    }
    if forbidden || atomic && refusals.iter().any(Option::is_some) {
        for refusal in refusals.iter_mut().filter(|refusal| refusal.is_none()) {
            *refusal = Some(OTHERS.to_owned());
        }
    }
    let outcomes: Vec<RefOutcome> = weighed
        .changes
        .iter()
        .zip(&refusals)
        .map(|(one, refusal)| RefOutcome { name: one.change.name.clone(), refusal: refusal.clone() })
        .collect();
    let accepted: Vec<&WeighedChange> =
        weighed.changes.iter().zip(&refusals).filter(|(_, refusal)| refusal.is_none()).map(|(one, _)| one).collect();
    if accepted.is_empty() {
        return Ok(Judged { outcomes, intent: None });
    }
    let intent = write_down(tx, &project, weighed, &accepted)?;
    Ok(Judged { outcomes, intent: Some(intent) })
}

/// Why somebody may not make a change that could be made; `None` if they may.
fn verdict(
    weighed: &Weighed,
    one: &WeighedChange,
    protections: &[Protection],
    role: Option<Role>,
    via: Via,
) -> Option<&'static str> {
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
                Some(NO_DELETE)
            } else if new.is_none() && weighed.default.as_ref() == Some(name) {
                Some(NO_DEFAULT_DELETE)
            } else if is_protected && one.forced {
                Some(NO_FORCE)
            } else if !may_push || weighed.was_empty && !is_master {
                // The first push makes the default branch, and that is protected from then on.
                Some(NO_PROTECTED_PUSH)
            } else {
                None
            }
        }
        // Nobody below a master writes anything to a repository before it has its default branch.
        RefKind::Tag if weighed.was_empty && !is_master => Some(NO_PROTECTED_PUSH),
        RefKind::Tag => (old.is_some() && !is_master && via == Via::Push).then_some(NO_TAG_CHANGE),
        RefKind::Other => None,
    }
}

/// Writes down what will happen, with all that follows from it.
fn write_down(
    tx: &mut WriteTx<'_>,
    project: &Project,
    weighed: &Weighed,
    accepted: &[&WeighedChange],
) -> Result<Intent> {
    let now = tx.now();
    let user = tx.actor().user().map(|user| user.id);
    let changes: Vec<RefChange> = accepted.iter().map(|one| one.change.clone()).collect();
    let head = weighed.head.clone().filter(|head| changes.iter().any(|change| change.name == *head));
    let protection = head.as_ref().map(first_protection);
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
                action: Action::Pushed,
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
        announce(tx, &project, id, weighed.listened, accepted)?;
        if accepted.iter().any(|one| Some(&one.change.name) == weighed.default.as_ref()) {
            mentions::write_down(tx, &project, id, &weighed.said)?;
        }
        plan_pipelines(tx, &project, id, author, &weighed.drafts, accepted)?;
    }
    Ok(Intent { id, project: project.id, user, changes, default_branch, protection, created_at: now })
}

/// Writes down which pipelines there will be; nobody sees them until the push has happened.
fn plan_pipelines(
    tx: &mut WriteTx<'_>,
    project: &Project,
    intent: i64,
    user: i64,
    drafts: &[Draft],
    accepted: &[&WeighedChange],
) -> Result<()> {
    if drafts.is_empty() || !tx.can(project, ProjectAbility::RunPipelines) {
        return Ok(());
    }
    let now = tx.now();
    for draft in drafts.iter().filter(|draft| accepted.iter().any(|one| one.change.name == draft.name)) {
        let (status, yaml_errors, stages, plan) = match &draft.what {
            Drafted::Planned { stages, plan } => (Status::Created, None, stages.as_slice(), Some(plan.as_str())),
            Drafted::Skipped => (Status::Skipped, None, &[][..], None),
            Drafted::Invalid(text) => (Status::Failed, Some(text.as_str()), &[][..], None),
        };
        let new = NewPipeline {
            project: project.id,
            ref_name: draft.name.short(),
            tag: draft.name.as_tag().is_some(),
            sha: draft.sha,
            // Clients of the original are told the commit itself.
            before_sha: Some(draft.sha),
            source: Source::Push,
            status,
            yaml_errors,
            stages,
            user: Some(user),
            trigger: None,
            variables: None,
            intent: Some(intent),
            plan,
            now,
        };
        store::pipelines::insert(tx.db(), &new)?;
    }
    Ok(())
}

/// Starts the pipelines of a push that has happened, and shows them. Those of refs that did not move go with the intent.
pub(super) fn start_pipelines(tx: &mut WriteTx<'_>, intent: &Intent, moved: &[RefName]) -> Result<()> {
    let waiting = store::pipelines::of_intent(tx.db(), intent.id)?;
    if waiting.is_empty() {
        return Ok(());
    }
    let project = match tx.open(&ProjectRef::Id(intent.project), ProjectAbility::ReadPipelines) {
        Ok(project) => project,
        // Builds were switched off meanwhile, or the project is being removed.
        Err(Error::Forbidden(_) | Error::NotFound(_)) => return Ok(()),
        Err(error) => return Err(error),
    };
    for one in waiting {
        let name = if one.tag { RefName::tag(&one.ref_name) } else { RefName::branch(&one.ref_name) };
        if !name.is_some_and(|name| moved.contains(&name)) {
            continue;
        }
        match one.plan.as_deref().map(Plan::from_text) {
            Some(Some(plan)) => {
                machine::begin(tx, &project, one.id, &plan)?;
                store::pipelines::show(tx.db(), one.id)?;
            }
            Some(None) => {
                error!(project.id = project.id, pipeline.id = one.id, "the plan of a pipeline cannot be read");
            }
            None => {
                store::pipelines::show(tx.db(), one.id)?;
                if let Some(pipeline) = store::pipelines::by_id(tx.db(), one.id)? {
                    tidings::tell_pipeline(tx, &project, &pipeline)?;
                }
            }
        }
    }
    Ok(())
}

/// Writes down what hooks are told of a push, once it has happened.
fn announce(
    tx: &mut WriteTx<'_>,
    project: &Project,
    intent: i64,
    listened: bool,
    accepted: &[&WeighedChange],
) -> Result<()> {
    let Some(user) = tx.actor().user().cloned() else { return Ok(()) };
    let mut wanted = Vec::new();
    for (kind, occasion, place) in [
        (RefKind::Branch, EventKind::Push, Some(project.id)),
        (RefKind::Branch, EventKind::SystemPush, None),
        (RefKind::Tag, EventKind::TagPush, Some(project.id)),
        (RefKind::Tag, EventKind::SystemTagPush, None),
    ] {
        let changes = accepted.iter().any(|one| one.change.name.kind() == kind);
        // A hook that came while the push was weighed would be told half of it.
        if changes && (listened || place.is_none()) && announcements::is_wanted(tx, occasion, place)? {
            wanted.push((kind, occasion, place));
        }
    }
    for one in accepted {
        let name = &one.change.name;
        for (_, occasion, place) in wanted.iter().filter(|(kind, ..)| *kind == name.kind()) {
            let pushed = Pushed {
                project,
                user: &user,
                data: &one.data,
                message: one.annotation.as_deref(),
                files: &one.files,
                to_system: place.is_none(),
            };
            let happening = WebhookEvent::Push(&pushed);
            announcements::write_down(tx, *occasion, *place, happening, Some((intent, name.as_str())))?;
        }
    }
    Ok(())
}
