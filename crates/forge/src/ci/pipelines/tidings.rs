//! What hooks are told of pipelines and builds.

use std::collections::{HashMap, hash_map::Entry};

use model::{
    Build, Commit, EventKind, Pipeline, Project, WebhookEvent,
    webhook_events::{BuildHappening, PipelineHappening},
};

use crate::{ReadTx, Result, WriteTx, announcements};

/// Tells of builds that were made, began or ended.
pub(crate) fn tell_builds(tx: &mut WriteTx<'_>, project: &Project, pipeline: &Pipeline, ids: &[i64]) -> Result<()> {
    if ids.is_empty() || !announcements::is_wanted(tx, EventKind::Build, Some(project.id))? {
        return Ok(());
    }
    let now = tx.now();
    let commit = commit_of(tx, project, pipeline)?;
    let builds = store::builds::by_ids(tx.db(), ids, now)?;
    // Most often all of them are of the same user.
    let mut emails: HashMap<i64, Option<String>> = HashMap::new();
    for user in builds.iter().filter_map(|build| build.user.as_ref()) {
        if let Entry::Vacant(place) = emails.entry(user.id) {
            place.insert(store::users::by_id(tx.db(), user.id)?.map(|user| user.email));
        }
    }
    for build in &builds {
        let email = build.user.as_ref().and_then(|user| emails.get(&user.id)?.as_deref());
        let happening = BuildHappening { project, pipeline, build, email, commit: commit.as_ref() };
        announcements::write_down(tx, EventKind::Build, Some(project.id), WebhookEvent::Build(&happening), None)?;
    }
    Ok(())
}

/// Tells of a pipeline whose status has changed.
pub(crate) fn tell_pipeline(tx: &mut WriteTx<'_>, project: &Project, pipeline: &Pipeline) -> Result<()> {
    if !announcements::is_wanted(tx, EventKind::Pipeline, Some(project.id))? {
        return Ok(());
    }
    let now = tx.now();
    let commit = commit_of(tx, project, pipeline)?;
    let builds: Vec<Build> = store::builds::of_pipeline(tx.db(), pipeline.id, now)?;
    let happening = PipelineHappening { project, pipeline, builds: &builds, commit: commit.as_ref() };
    announcements::write_down(tx, EventKind::Pipeline, Some(project.id), WebhookEvent::Pipeline(&happening), None)
}

/// The commit of a pipeline, if it is still there.
fn commit_of(tx: &ReadTx<'_>, project: &Project, pipeline: &Pipeline) -> Result<Option<Commit>> {
    let Some(repository) = tx.repository(project)? else { return Ok(None) };
    Ok(repository.commit(pipeline.sha)?)
}
