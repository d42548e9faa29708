//! How jobs end, and what follows: whether others go on, whether it is tried again, how much it covers.

use ci::{AllowFailure, Event, Spec};
use model::{Project, Status};
use store::{build_runs::Run, builds::NewBuildState};

use super::machine::{self, Held};
use crate::{
    Caller, Forge, ProjectAbility, ProjectRef, Result, Unvalidated, WriteTx,
    traces::{self, JobProof},
};

/// What a runner tells of a job.
#[derive(Clone, Debug)]
pub struct Update {
    /// How it stands.
    pub state: Told,
    /// All that it has said, from runners that send this each time.
    pub trace: Option<String>,
}

/// How a job stands, in the words of its runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It goes on.
    Running,
    /// It went well.
    Success,
    /// It went wrong.
    Failed {
        /// Why, in one word.
        reason: String,
        /// What its script ended with.
        exit_code: Option<i64>,
    },
}

/// What came of an update: how the job stands now, and whether it was the runner's to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Updated {
    /// As the runner says.
    Done(Status),
    /// The job does not run, so there was nothing to change.
    NotRunning {
        /// How it stands.
        status: Status,
        /// Whether what it left was removed.
        erased: bool,
    },
}

/// Takes in what a runner tells of a job.
pub async fn update(forge: &Forge, build: i64, proof: JobProof, update: Unvalidated<Update>) -> Result<Updated> {
    let shown = proof.clone();
    let run = forge.read_inline(Caller::system(), move |tx| traces::find(tx, build, &shown)).await?;
    let Update { state, trace } = update.get()?.clone();
    if run.status != Status::Running {
        return Ok(not_running(&run));
    }
    if let Some(whole) = trace {
        traces::append_rest(forge, build, whole).await?;
    }
    if state == Told::Running {
        let touch = move |tx: &mut WriteTx<'_>| {
            let (run, now) = (traces::find(tx, build, &proof)?, tx.now());
            if run.status != Status::Running {
                return Ok(not_running(&run));
            }
            store::build_runs::touch(tx.db(), build, now)?;
            Ok(Updated::Done(run.status))
        };
        return forge.write(Caller::system(), touch).await;
    }
    let coverage = traces::conclude(forge, build).await?;
    let end = move |tx: &mut WriteTx<'_>| end(tx, build, &proof, &state, coverage);
    let updated = forge.write(Caller::system(), end).await?;
    traces::tidy(forge, &run).await;
    traces::tell_end(forge, build);
    Ok(updated)
}

fn end(tx: &mut WriteTx<'_>, build: i64, proof: &JobProof, state: &Told, coverage: Option<f64>) -> Result<Updated> {
    let run = traces::find(tx, build, proof)?;
    // Held before it is judged: somebody may cancel it at this moment.
    store::pipelines::hold(tx.db(), run.pipeline)?;
    let run = traces::find(tx, build, proof)?;
    if run.status != Status::Running {
        return Ok(not_running(&run));
    }
    // The runner has said all, so nothing that looks like the beginning of a secret goes on.
    store::build_runs::settle_trace(tx.db(), build)?;
    if let Some(coverage) = coverage {
        store::build_runs::set_coverage(tx.db(), build, coverage)?;
    }
    match state {
        Told::Running => Ok(Updated::Done(Status::Running)),
        Told::Success => succeed(tx, build).map(|_| Updated::Done(Status::Success)),
        Told::Failed { reason, exit_code } => {
            fail(tx, build, reason, *exit_code).map(|_| Updated::Done(Status::Failed))
        }
    }
}

fn not_running(run: &Run) -> Updated {
    Updated::NotRunning { status: run.status, erased: run.erased }
}

/// Ends a job that runs, because it went well; whether it did run. Whoever calls this has judged that it may be.
pub(crate) fn succeed(tx: &mut WriteTx<'_>, build: i64) -> Result<bool> {
    let Some((project, mut held, at)) = take(tx, build)? else { return Ok(false) };
    if held.builds[at].status != Status::Running {
        return Ok(false);
    }
    machine::happen(tx, &mut held, &[at], Event::Succeed, &NewBuildState::default())?;
    machine::follow(tx, &project, held)?;
    Ok(true)
}

/// Ends a job that runs or waits, because it went wrong, for a reason in one word; whether it did run or wait. If its file
/// says so, the others go on, or it is tried again. Whoever calls this has judged that it may be.
pub(crate) fn fail(tx: &mut WriteTx<'_>, build: i64, reason: &str, exit_code: Option<i64>) -> Result<bool> {
    fail_as(tx, build, reason, exit_code, true)
}

/// Ends a job that waits, as [`fail`] does, but it is not tried again, whatever its file says.
pub(crate) fn fail_waiting(tx: &mut WriteTx<'_>, build: i64, reason: &str) -> Result<bool> {
    fail_as(tx, build, reason, None, false)
}

fn fail_as(tx: &mut WriteTx<'_>, build: i64, reason: &str, exit_code: Option<i64>, may_retry: bool) -> Result<bool> {
    let Some((project, mut held, at)) = take(tx, build)? else { return Ok(false) };
    match held.builds[at].status {
        Status::Pending => {}
        Status::Running if may_retry => {}
        _ => return Ok(false),
    }
    let attempts = store::build_runs::find(tx.db(), build)?.map_or(0, |run| run.attempt);
    let spec = store::build_runs::spec_of(tx.db(), build)?.and_then(|spec| Spec::from_text(&spec)).unwrap_or_default();
    let again = may_retry && spec.retry.allows(usize::try_from(attempts).unwrap_or_default() + 1, reason, exit_code);
    // One that is tried again no longer counts, and its successor is judged anew.
    let judged = matches!(spec.allow_failure, AllowFailure::ExitCodes(_)) && !again;
    let also = NewBuildState {
        failure_reason: Some(reason),
        allow_failure: judged.then(|| spec.allow_failure.tolerates(exit_code)),
        user: None,
    };
    machine::happen(tx, &mut held, &[at], Event::Drop, &also)?;
    if again {
        machine::renew(tx, &mut held, &project, &[at], None, true)?;
        // Its turn had come already, also if somebody had to start it.
        machine::happen(tx, &mut held, &[at], Event::Enqueue, &NewBuildState::default())?;
    }
    machine::follow(tx, &project, held)?;
    Ok(true)
}

/// Takes the pipeline of a build in hand; nothing if the build is gone, or another one counts instead.
fn take(tx: &mut WriteTx<'_>, build: i64) -> Result<Option<(Project, Held, usize)>> {
    let Some(place) = store::builds::place_of(tx.db(), build)? else { return Ok(None) };
    let project = tx.open_as_service(&ProjectRef::Id(place.project), ProjectAbility::ReadProject)?;
    let held = machine::hold(tx, place.pipeline)?;
    Ok(held.position(build).map(|at| (project, held, at)))
}
