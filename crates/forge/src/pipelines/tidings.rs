//! What hooks are told of pipelines and builds.

use std::collections::{HashMap, hash_map::Entry};

use model::{
    Build, Commit, Happening, Occasion, Pipeline, Project,
    happenings::{BuildHappening, PipelineHappening},
};

use crate::{Reader, Result, Writer, announcements};

/// Tells of builds that were made, began or ended.
pub(crate) fn tell_builds(it: &mut Writer<'_>, project: &Project, pipeline: &Pipeline, ids: &[i64]) -> Result<()> {
    if ids.is_empty() || !announcements::is_wanted(it, Occasion::Build, Some(project.id))? {
        return Ok(());
    }
    let now = it.now();
    let commit = commit_of(it, project, pipeline)?;
    let builds = store::builds::by_ids(it.db(), ids, now)?;
    // Most often all of them are of the same user.
    let mut emails: HashMap<i64, Option<String>> = HashMap::new();
    for user in builds.iter().filter_map(|build| build.user.as_ref()) {
        if let Entry::Vacant(place) = emails.entry(user.id) {
            place.insert(store::users::by_id(it.db(), user.id)?.map(|user| user.email));
        }
    }
    for build in &builds {
        let email = build.user.as_ref().and_then(|user| emails.get(&user.id)?.as_deref());
        let happening = BuildHappening { project, pipeline, build, email, commit: commit.as_ref() };
        announcements::write_down(it, Occasion::Build, Some(project.id), Happening::Build(&happening), None)?;
    }
    Ok(())
}

/// Tells of a pipeline whose status has changed.
pub(crate) fn tell_pipeline(it: &mut Writer<'_>, project: &Project, pipeline: &Pipeline) -> Result<()> {
    if !announcements::is_wanted(it, Occasion::Pipeline, Some(project.id))? {
        return Ok(());
    }
    let now = it.now();
    let commit = commit_of(it, project, pipeline)?;
    let builds: Vec<Build> = store::builds::of_pipeline(it.db(), pipeline.id, now)?;
    let happening = PipelineHappening { project, pipeline, builds: &builds, commit: commit.as_ref() };
    announcements::write_down(it, Occasion::Pipeline, Some(project.id), Happening::Pipeline(&happening), None)
}

/// The commit of a pipeline, if it is still there.
fn commit_of(it: &Reader<'_>, project: &Project, pipeline: &Pipeline) -> Result<Option<Commit>> {
    let Some(repository) = it.repository(project)? else { return Ok(None) };
    Ok(repository.commit(pipeline.sha)?)
}
