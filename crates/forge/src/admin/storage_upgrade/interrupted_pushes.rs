//! Pushes that an earlier version has recorded, and that were interrupted while the files of refs were updated.
//!
//! That version stored the objects first, then updated the refs, and then made the events visible. So a push that has
//! updated a ref is completed, and any other one is discarded.

use std::collections::BTreeMap;

use ci::Plan;
use git::{Ref, Repository};
use model::{RefKind, RefName};
use store::intents::Intent;
use tracing::error;

use crate::{
    Error, ProjectAbility, ProjectRef, Result, WriteTx, mentions,
    pipelines::{pipeline_events, state_machine},
    tasks::{self, Task},
};

/// What becomes of an interrupted push.
pub(super) enum PushOutcome {
    /// It is completed; these refs have their new targets.
    Completed { moved: Vec<RefName> },
    /// It has changed nothing.
    Discarded,
}

impl PushOutcome {
    /// Determines the outcome, and applies the changes that a completed push has not made yet to the refs.
    pub(super) fn determine(
        intent: &Intent,
        refs: &mut BTreeMap<RefName, Ref>,
        repository: &Repository,
    ) -> git::Result<Self> {
        if intent.changes.is_empty() {
            // It only sets the default branch, which must still exist.
            let branch = intent.default_branch.set().and_then(|branch| RefName::branch(branch));
            let exists = branch.is_some_and(|branch| refs.contains_key(&branch));
            return Ok(if exists { Self::Completed { moved: Vec::new() } } else { Self::Discarded });
        }
        let target = |refs: &BTreeMap<RefName, Ref>, name| refs.get(name).map(|reference: &Ref| reference.target);
        if !intent.changes.iter().any(|change| target(refs, &change.name) == change.new) {
            return Ok(Self::Discarded);
        }
        let mut moved = Vec::new();
        for change in &intent.changes {
            let (name, current) = (&change.name, target(refs, &change.name));
            if current != change.new {
                if current != change.old {
                    // Something else has changed it meanwhile.
                    continue;
                }
                match change.new {
                    None => drop(refs.remove(name)),
                    Some(target) => {
                        if repository.peel(target)?.is_none() {
                            error!(%name, %target, "an interrupted push has lost an object; its ref is left unchanged");
                            continue;
                        }
                        let peeled = match name.kind() {
                            RefKind::Branch => None,
                            RefKind::Tag | RefKind::Other => repository.peel_tag(target)?,
                        };
                        refs.insert(name.clone(), Ref { name: name.clone(), target, peeled });
                    }
                }
            }
            moved.push(name.clone());
        }
        Ok(Self::Completed { moved })
    }
}

/// Makes everything visible that follows from a push, for the refs that have moved, and deletes its intent.
pub(super) fn complete(tx: &mut WriteTx<'_>, intent: &Intent, moved: &[RefName]) -> Result<()> {
    if let Some((pusher, mentions)) = store::mentions::of_intent(tx.db(), intent.id)? {
        mentions::apply_mentions(tx, pusher, &mentions)?;
    }
    let now = tx.now();
    start_pipelines(tx, intent, moved)?;
    store::intents::finish(tx.db(), intent, moved, now)?;
    tx.notify_dispatcher();
    tasks::enqueue(tx, &Task::Housekeeping(intent.project), now + tasks::HOUSEKEEPING_DELAY)
}

/// Starts the pipelines of a push and makes them visible. Those of other refs are deleted with the intent.
fn start_pipelines(tx: &mut WriteTx<'_>, intent: &Intent, moved: &[RefName]) -> Result<()> {
    let planned = store::pipelines::of_intent(tx.db(), intent.id)?;
    if planned.is_empty() {
        return Ok(());
    }
    let project = match tx.project(&ProjectRef::Id(intent.project), ProjectAbility::ReadPipelines) {
        Ok(project) => project,
        // CI was disabled meanwhile.
        Err(Error::Forbidden(_) | Error::NotFound(_)) => return Ok(()),
        Err(error) => return Err(error),
    };
    for pipeline in planned {
        let name = if pipeline.tag { RefName::tag(&pipeline.ref_name) } else { RefName::branch(&pipeline.ref_name) };
        if !name.is_some_and(|name| moved.contains(&name)) {
            continue;
        }
        match pipeline.plan.as_deref().map(Plan::from_json) {
            Some(Some(plan)) => {
                state_machine::create_jobs(tx, &project, pipeline.id, &plan)?;
                store::pipelines::publish(tx.db(), pipeline.id)?;
            }
            Some(None) => {
                let (project, id) = (project.id.get(), pipeline.id.get());
                error!(project.id = project, pipeline.id = id, "cannot parse the plan of a pipeline");
            }
            None => {
                store::pipelines::publish(tx.db(), pipeline.id)?;
                if let Some(pipeline) = store::pipelines::by_id(tx.db(), pipeline.id)? {
                    pipeline_events::record_pipeline_event(tx, &project, &pipeline)?;
                }
            }
        }
    }
    Ok(())
}
