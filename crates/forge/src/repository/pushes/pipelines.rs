//! The pipelines of a push: planned before its transaction, and started in it.

use std::sync::Arc;

use model::{Project, ProjectId, Status, UserId, pipelines::Source};
use store::pipelines::NewPipeline;
use tracing::error;

use super::{
    Push, default_protection,
    inspect::{InspectedChange, InspectedPush},
    open_objects,
};
use crate::{
    Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, WriteTx, blocking,
    pipelines::{
        pipeline_events,
        planning::{self, PlanOutcome, PlannedPipeline},
        state_machine,
    },
};

/// Plans the pipelines of a push. Runs after all checks of the repository, and does nothing without a CI file.
pub(super) async fn plan_pipelines(
    forge: &Forge,
    project: ProjectId,
    mut inspected: InspectedPush,
    push: &Arc<Push>,
) -> Result<InspectedPush> {
    let pushed_refs = inspected.refs_with_ci_file();
    if pushed_refs.is_empty() {
        return Ok(inspected);
    }
    let load = move |tx: &mut ReadTx<'_>| {
        let opened = tx.project(&ProjectRef::Id(project), ProjectAbility::ReadPipelines);
        match opened {
            Ok(project) => {
                let repository = tx.repository(&project)?;
                Ok(Some((planning::load_context(tx, project)?, repository)))
            }
            // CI is disabled, or the project is being deleted.
            Err(Error::Forbidden(_) | Error::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    };
    let Some((mut context, repository)) = forge.read(Caller::system(), load).await? else { return Ok(inspected) };
    if let Some(branch) = &inspected.new_default_branch {
        // The state after the push.
        context.project.default_branch = Some(branch.short().to_owned());
        context.protections.push(default_protection(branch));
    }
    let push = Arc::clone(push);
    blocking::spawn(move || {
        let planned = open_objects(repository, &push).and_then(|objects| match objects {
            Some(objects) => planning::plan_push(&objects, &context, &pushed_refs),
            None => Ok(Vec::new()),
        });
        // A failure to plan pipelines does not reject the push.
        inspected.pipelines = planned.unwrap_or_else(|error| {
            error!(%error, project.id = project.get(), "cannot plan the pipelines of a push");
            Vec::new()
        });
        Ok(inspected)
    })
    .await
}

/// Inserts and starts the planned pipelines of the refs that were moved.
pub(super) fn start_pipelines(
    tx: &mut WriteTx<'_>,
    project: &Project,
    user: UserId,
    pipelines: &[PlannedPipeline],
    moved: &[&InspectedChange],
) -> Result<()> {
    if pipelines.is_empty() || !tx.can(project, ProjectAbility::RunPipelines) {
        return Ok(());
    }
    let now = tx.now();
    for pipeline in pipelines.iter().filter(|pipeline| moved.iter().any(|one| one.change.name == pipeline.name)) {
        let (status, yaml_errors, stages) = match &pipeline.outcome {
            PlanOutcome::Planned(plan) => (Status::Created, None, plan.stages.as_slice()),
            PlanOutcome::Skipped => (Status::Skipped, None, &[][..]),
            PlanOutcome::Invalid(text) => (Status::Failed, Some(text.as_str()), &[][..]),
        };
        let new = NewPipeline {
            project: project.id,
            ref_name: pipeline.name.short(),
            tag: pipeline.name.as_tag().is_some(),
            sha: pipeline.commit.id,
            // GitLab reports the commit itself here.
            before_sha: Some(pipeline.commit.id),
            source: Source::Push,
            status,
            yaml_errors,
            stages,
            user: Some(user),
            trigger: None,
            variables: None,
            now,
        };
        let id = store::pipelines::insert(tx.db(), &new)?;
        // The objects of the push cannot be read from the repository before the transaction is committed.
        tx.remember_commit(pipeline.commit.clone());
        match &pipeline.outcome {
            PlanOutcome::Planned(plan) => {
                state_machine::create_jobs(tx, project, id, plan)?;
            }
            PlanOutcome::Skipped | PlanOutcome::Invalid(_) => {
                if let Some(pipeline) = store::pipelines::by_id(tx.db(), id)? {
                    pipeline_events::record_pipeline_event(tx, project, &pipeline)?;
                }
            }
        }
    }
    Ok(())
}
