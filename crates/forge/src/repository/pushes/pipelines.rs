//! The pipelines of a push: planned before it is authorized, inserted with the intent, started when the push is finished.

use ci::Plan;
use model::{IntentId, Project, ProjectId, RefName, Status, UserId, pipelines::Source};
use store::{intents::Intent, pipelines::NewPipeline};
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
    push: Push,
) -> Result<(InspectedPush, Push)> {
    let pushed_refs = inspected.refs_with_ci_file();
    if pushed_refs.is_empty() {
        return Ok((inspected, push));
    }
    let load = move |tx: &mut ReadTx<'_>| {
        let opened = tx.project(&ProjectRef::Id(project), ProjectAbility::ReadPipelines);
        match opened {
            Ok(project) => planning::load_context(tx, project).map(Some),
            // CI is disabled, or the project is being deleted.
            Err(Error::Forbidden(_) | Error::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    };
    let Some(mut context) = forge.read(Caller::system(), load).await? else { return Ok((inspected, push)) };
    if let Some(branch) = &inspected.new_default_branch {
        // The state after the push.
        context.project.default_branch = Some(branch.short().to_owned());
        context.protections.push(default_protection(branch));
    }
    let (repositories, storage) = (forge.shared().repositories.clone(), context.project.storage.clone());
    blocking::spawn(move || {
        let planned = open_objects(&repositories, &storage, &push).and_then(|objects| match objects {
            Some(objects) => planning::plan_push(&objects, &context, &pushed_refs),
            None => Ok(Vec::new()),
        });
        // A failure to plan pipelines does not reject the push.
        inspected.pipelines = planned.unwrap_or_else(|error| {
            error!(%error, project.id = project.get(), "cannot plan the pipelines of a push");
            Vec::new()
        });
        Ok((inspected, push))
    })
    .await
}

/// Inserts the planned pipelines; they are hidden until the push is finished.
pub(super) fn insert_pipelines(
    tx: &mut WriteTx<'_>,
    project: &Project,
    intent: IntentId,
    user: UserId,
    pipelines: &[PlannedPipeline],
    accepted: &[&InspectedChange],
) -> Result<()> {
    if pipelines.is_empty() || !tx.can(project, ProjectAbility::RunPipelines) {
        return Ok(());
    }
    let now = tx.now();
    for pipeline in pipelines.iter().filter(|pipeline| accepted.iter().any(|one| one.change.name == pipeline.name)) {
        let (status, yaml_errors, stages, plan) = match &pipeline.outcome {
            PlanOutcome::Planned { stages, plan } => (Status::Created, None, stages.as_slice(), Some(plan.as_str())),
            PlanOutcome::Skipped => (Status::Skipped, None, &[][..], None),
            PlanOutcome::Invalid(text) => (Status::Failed, Some(text.as_str()), &[][..], None),
        };
        let new = NewPipeline {
            project: project.id,
            ref_name: pipeline.name.short(),
            tag: pipeline.name.as_tag().is_some(),
            sha: pipeline.sha,
            // GitLab reports the commit itself here.
            before_sha: Some(pipeline.sha),
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

/// Starts the pipelines of an applied push and makes them visible. Those of other refs are deleted with the intent.
pub(super) fn start_pipelines(tx: &mut WriteTx<'_>, intent: &Intent, moved: &[RefName]) -> Result<()> {
    let planned = store::pipelines::of_intent(tx.db(), intent.id)?;
    if planned.is_empty() {
        return Ok(());
    }
    let project = match tx.project(&ProjectRef::Id(intent.project), ProjectAbility::ReadPipelines) {
        Ok(project) => project,
        // CI was disabled meanwhile, or the project is being deleted.
        Err(Error::Forbidden(_) | Error::NotFound(_)) => return Ok(()),
        Err(error) => return Err(error),
    };
    for one in planned {
        let name = if one.tag { RefName::tag(&one.ref_name) } else { RefName::branch(&one.ref_name) };
        if !name.is_some_and(|name| moved.contains(&name)) {
            continue;
        }
        match one.plan.as_deref().map(Plan::from_json) {
            Some(Some(plan)) => {
                state_machine::create_jobs(tx, &project, one.id, &plan)?;
                store::pipelines::publish(tx.db(), one.id)?;
            }
            Some(None) => {
                error!(
                    project.id = project.id.get(),
                    pipeline.id = one.id.get(),
                    "cannot parse the plan of a pipeline"
                );
            }
            None => {
                store::pipelines::publish(tx.db(), one.id)?;
                if let Some(pipeline) = store::pipelines::by_id(tx.db(), one.id)? {
                    pipeline_events::record_pipeline_event(tx, &project, &pipeline)?;
                }
            }
        }
    }
    Ok(())
}
