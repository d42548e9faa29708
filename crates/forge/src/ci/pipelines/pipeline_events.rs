//! Webhook events of pipelines and jobs.

use std::collections::{HashMap, hash_map::Entry};

use model::{
    EventKind, Job, JobId, Pipeline, Project, UserId, WebhookEvent,
    webhook_events::{JobEvent, PipelineEvent},
};

use crate::{Result, WriteTx, outbox};

/// Records events for jobs that were created, started or finished.
pub(crate) fn record_job_events(
    tx: &mut WriteTx<'_>,
    project: &Project,
    pipeline: &Pipeline,
    ids: &[JobId],
) -> Result<()> {
    if ids.is_empty() || !outbox::has_subscribers(tx.read(), EventKind::Job, Some(project.id))? {
        return Ok(());
    }
    let now = tx.now();
    let commit = tx.commit(project, pipeline.sha)?;
    let jobs = store::jobs::by_ids(tx.db(), ids, now)?;
    // Most often, all jobs belong to the same user.
    let mut emails: HashMap<UserId, Option<String>> = HashMap::new();
    for user in jobs.iter().filter_map(|job| job.user.as_ref()) {
        if let Entry::Vacant(entry) = emails.entry(user.id) {
            entry.insert(store::users::by_id(tx.db(), user.id)?.map(|user| user.email));
        }
    }
    for job in &jobs {
        let email = job.user.as_ref().and_then(|user| emails.get(&user.id)?.as_deref());
        let event = JobEvent { project, pipeline, job, email, commit: commit.as_ref() };
        outbox::enqueue(tx, EventKind::Job, Some(project.id), WebhookEvent::Job(&event))?;
    }
    Ok(())
}

/// Records an event for a pipeline whose status changed.
pub(crate) fn record_pipeline_event(tx: &mut WriteTx<'_>, project: &Project, pipeline: &Pipeline) -> Result<()> {
    if !outbox::has_subscribers(tx.read(), EventKind::Pipeline, Some(project.id))? {
        return Ok(());
    }
    let now = tx.now();
    let commit = tx.commit(project, pipeline.sha)?;
    let jobs: Vec<Job> = store::jobs::of_pipeline(tx.db(), pipeline.id, now)?;
    let event = PipelineEvent { project, pipeline, jobs: &jobs, commit: commit.as_ref() };
    outbox::enqueue(tx, EventKind::Pipeline, Some(project.id), WebhookEvent::Pipeline(&event))
}
