//! What happens to builds, and what follows from it for the other builds and the pipeline: one transaction for all of it.
//!
//! Whoever changes a build holds its pipeline first ([`hold`]), says what happens ([`happen`]), and lets the rest follow
//! ([`follow`]).

use std::collections::HashMap;

use ci::{
    AllowFailure, Event, Plan, Spec, When,
    progress::{self, JobState},
    status,
};
use model::{Pipeline, Project, Status, pipelines::BuildKind};
use store::{
    builds::{BuildState, NewBuild, NewBuildState},
    pipelines::NewState,
};

use super::tidings;
use crate::{Error, Result, WriteTx};

/// How long a build may run that says nothing about it, in seconds.
pub(crate) const USUAL_TIMEOUT: i64 = 3600;

/// A pipeline that nobody else changes while the transaction lasts.
pub(crate) struct Held {
    /// The pipeline as it is.
    pub(crate) pipeline: Pipeline,
    /// The latest build of each name.
    pub(crate) builds: Vec<BuildState>,
    /// The numbers of those whose change is to be told.
    changed: Vec<i64>,
}

/// Takes a pipeline in hand.
pub(crate) fn hold(tx: &mut WriteTx<'_>, pipeline: i64) -> Result<Held> {
    if !store::pipelines::hold(tx.db(), pipeline)? {
        return Err(Error::NoSuchRow);
    }
    let found = store::pipelines::by_id(tx.db(), pipeline)?.ok_or(Error::NoSuchRow)?;
    let builds = store::builds::latest_of(tx.db(), pipeline)?;
    Ok(Held { pipeline: found, builds, changed: Vec::new() })
}

impl Held {
    /// The builds as the machine knows them, in the same order.
    pub(crate) fn states(&self) -> Vec<JobState> {
        // What others found out may be called like a job, but no job waits for it.
        let jobs = self.builds.iter().enumerate().filter(|(_, build)| build.kind == BuildKind::Job);
        let places: HashMap<&str, usize> = jobs.map(|(at, build)| (build.name.as_str(), at)).collect();
        self.builds
            .iter()
            .map(|build| JobState {
                stage: usize::try_from(build.stage_index).unwrap_or_default(),
                status: build.status,
                when: When::parse(&build.when).unwrap_or_default(),
                allow_failure: build.allow_failure,
                needs: build
                    .needs
                    .as_ref()
                    .map(|needs| needs.iter().filter_map(|name| places.get(name.as_str()).copied()).collect()),
            })
            .collect()
    }

    /// The position of a build among the latest ones.
    pub(crate) fn position(&self, build: i64) -> Option<usize> {
        self.builds.iter().position(|one| one.id == build)
    }
}

/// Writes the builds of a plan down and starts those whose turn it is.
pub(crate) fn begin(tx: &mut WriteTx<'_>, project: &Project, pipeline: i64, plan: &Plan) -> Result<Pipeline> {
    let found = store::pipelines::by_id(tx.db(), pipeline)?.ok_or(Error::NoSuchRow)?;
    let user = found.user.as_ref().map(|user| user.id);
    let new: Vec<NewBuild> = plan
        .jobs
        .iter()
        .enumerate()
        .filter_map(|(at, job)| {
            Some(NewBuild {
                name: job.name.clone(),
                stage: job.stage.clone(),
                stage_index: i32::try_from(job.stage_index).unwrap_or(i32::MAX),
                when: job.when.word(),
                // Those that are allowed to fail in some ways only are judged when they do.
                allow_failure: job.allow_failure == AllowFailure::Yes,
                needs: plan.needs(at).map(|names| names.into_iter().map(ToOwned::to_owned).collect()),
                tags: job.tags.clone(),
                timeout: job.timeout.map(|seconds| i64::try_from(seconds).unwrap_or(i64::MAX)),
                spec: plan.spec(at)?.to_text(),
            })
        })
        .collect();
    let now = tx.now();
    store::builds::insert_all(tx.db(), project.id, pipeline, user, &new, now)?;
    let mut held = hold(tx, pipeline)?;
    held.changed = held.builds.iter().map(|build| build.id).collect();
    tidings::tell_builds(tx, project, &held.pipeline, &held.changed)?;
    held.changed.clear();
    follow(tx, project, held)
}

/// Lets something happen to some of the latest builds, given by position. What is impossible changes nothing and is no
/// error. Answers how many changed.
pub(crate) fn happen(
    tx: &mut WriteTx<'_>,
    held: &mut Held,
    places: &[usize],
    event: Event,
    also: &NewBuildState<'_>,
) -> Result<usize> {
    let now = tx.now();
    let mut by_status: Vec<(Status, Vec<i64>)> = Vec::new();
    for &at in places {
        let Some(build) = held.builds.get_mut(at) else { continue };
        let Some(next) = status::step(build.status, event) else { continue };
        build.status = next;
        build.allow_failure = also.allow_failure.unwrap_or(build.allow_failure);
        match next {
            Status::Running => build.ran = (Some(now), None),
            Status::Success | Status::Failed | Status::Canceled => build.ran.1 = Some(now),
            _ => {}
        }
        let is_told = matches!(next, Status::Running | Status::Success | Status::Failed | Status::Canceled);
        // Hooks for builds are told of jobs; what others found out, others know.
        if is_told && build.kind == BuildKind::Job {
            held.changed.push(build.id);
        }
        match by_status.iter_mut().find(|(status, _)| *status == next) {
            Some((_, ids)) => ids.push(build.id),
            None => by_status.push((next, vec![build.id])),
        }
    }
    let mut changed = 0;
    for (status, ids) in by_status {
        changed += ids.len();
        store::builds::set_status(tx.db(), &ids, status, also, now)?;
        if status == Status::Pending {
            tx.call_runners();
        }
    }
    Ok(changed)
}

/// Tries some of the latest builds again: new ones take their place and stand where the old ones stood. What others found
/// out cannot be tried from here. Answers whether there was something to try.
pub(crate) fn renew(
    tx: &mut WriteTx<'_>,
    held: &mut Held,
    project: &Project,
    places: &[usize],
    user: Option<i64>,
    automatic: bool,
) -> Result<bool> {
    let now = tx.now();
    let places: Vec<usize> = places.iter().copied().filter(|at| held.builds[*at].kind == BuildKind::Job).collect();
    if places.is_empty() {
        return Ok(false);
    }
    let old: Vec<i64> = places.iter().map(|at| held.builds[*at].id).collect();
    let made = store::builds::renew(tx.db(), &old, user, automatic, now)?;
    let mut open = Vec::new();
    for (at, id) in places.iter().zip(&made) {
        let build = &mut held.builds[*at];
        // That one failure was allowed says nothing about the next.
        if build.allow_failure && is_judged_late(tx, build.id)? {
            build.allow_failure = false;
            open.push(*id);
        }
        (build.id, build.status, build.ran) = (*id, Status::Created, (None, None));
    }
    store::builds::judge_later(tx.db(), &open)?;
    tidings::tell_builds(tx, project, &held.pipeline, &made)?;
    Ok(true)
}

/// Whether it depends on how a job fails if its failure matters.
fn is_judged_late(tx: &mut WriteTx<'_>, build: i64) -> Result<bool> {
    let spec = store::build_runs::spec_of(tx.db(), build)?.and_then(|spec| Spec::from_text(&spec));
    Ok(spec.is_some_and(|spec| matches!(spec.allow_failure, AllowFailure::ExitCodes(_))))
}

/// Lets follow what follows: builds whose turn has come start or are skipped, the pipeline gets its status, and hooks are
/// told. Answers the pipeline as it is then.
pub(crate) fn follow(tx: &mut WriteTx<'_>, project: &Project, mut held: Held) -> Result<Pipeline> {
    loop {
        let events = progress::progress(&held.states());
        if events.is_empty() {
            break;
        }
        let mut moved = 0;
        for event in [Event::Enqueue, Event::Skip] {
            let places: Vec<usize> = events.iter().filter(|(_, what)| *what == event).map(|(at, _)| *at).collect();
            moved += happen(tx, &mut held, &places, event, &NewBuildState::default())?;
        }
        if moved == 0 {
            break;
        }
    }
    let computed = status::compute(held.builds.iter().map(|build| (build.status, build.allow_failure)));
    let before = held.pipeline.status;
    // One whose file is wrong has failed for good, and one without builds stays what it was made as.
    let is_settled = held.pipeline.yaml_errors.is_some() || held.builds.is_empty();
    let after = if is_settled { before } else { status::follow(before, computed) };
    if after != before {
        let now = tx.now();
        let runs = after == Status::Running;
        let waited = matches!(before, Status::Created | Status::Pending);
        let ends = matches!(after, Status::Success | Status::Failed | Status::Canceled);
        let state = NewState {
            status: after,
            started_at: (runs && waited && held.pipeline.started_at.is_none()).then_some(now),
            finished_at: ends.then_some(now),
            duration: if ends { duration(&held.builds) } else { None },
            now,
        };
        store::pipelines::set_state(tx.db(), held.pipeline.id, &state)?;
        held.pipeline = store::pipelines::by_id(tx.db(), held.pipeline.id)?.ok_or(Error::NoSuchRow)?;
    }
    tidings::tell_builds(tx, project, &held.pipeline, &held.changed)?;
    if after != before {
        tidings::tell_pipeline(tx, project, &held.pipeline)?;
    }
    Ok(held.pipeline)
}

/// For how many seconds at least one of these builds ran; nothing if none ever did.
fn duration(builds: &[BuildState]) -> Option<i64> {
    let intervals: Vec<(i64, i64)> = builds
        .iter()
        .filter_map(|build| Some((build.ran.0?.as_microsecond(), build.ran.1?.as_microsecond())))
        .collect();
    (!intervals.is_empty()).then(|| status::duration(&intervals) / 1_000_000)
}
