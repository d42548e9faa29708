//! Giving jobs to runners: each to exactly one.
//!
//! Looking for a job reads and nothing else, so a runner that finds nothing costs nobody a write. A job that was found is
//! taken in a transaction of its own, and what a runner has to know of it is read afterwards. If that fails the job waits
//! again, and if even that cannot be noted it does once it was not heard of for a while ([`crate::stale_jobs`]).

mod contents;

use std::{sync::Arc, time::Duration};

use ci::status;
use model::{
    Project, Runner, Site, Status,
    projects::Seed,
    runners::RunnerInfo,
    tokens::{Digest, Secret},
};
use store::{assignments::Queue, pipelines::NewState};
use tokio::time::{Instant, timeout};

pub use contents::{Assignment, JobVariable};

use crate::{
    Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, WriteTx,
    job_notifier::Board,
    pipelines::{endings, tidings},
    runners, traces,
};

/// How often a runner that waits looks where others may give out jobs, too, of whom this process does not hear.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How many jobs are considered at most.
const CANDIDATES: i64 = 100;
/// From how many queues they come at most.
const QUEUES: usize = 5;
/// How many jobs fail at most while one runner asks, because their users may not run them any more.
const MOST_REFUSED: usize = 100;
/// The last line of the trace of such a job, and why it failed, in one word.
const NOT_ALLOWED: &str = "ERROR: job failed: the user who started it is blocked or removed, or may not run pipelines in \
                           this project any more";
const NOT_ALLOWED_REASON: &str = "user_not_allowed";

/// What a runner says when it asks for a job.
#[derive(Clone, Debug)]
pub struct Asking {
    /// Its token.
    pub token: Secret,
    /// What it says about itself.
    pub info: RunnerInfo,
    /// What it was told when it last found nothing.
    pub last_update: Option<String>,
    /// Where it reaches this service.
    pub site: Site,
}

/// What a runner gets that asks for a job.
pub enum Answer {
    /// A job, for it alone.
    Job(Box<Assignment>),
    /// Nothing to do; whoever comes back with the mark waits until that may have changed.
    Nothing {
        /// What to come back with.
        mark: String,
    },
    /// The runner takes no builds at the moment.
    Paused {
        /// What to come back with.
        mark: String,
    },
    /// There were jobs, and others were faster each time.
    Lost,
}

/// Gives a runner something to do. If it knows already that there is nothing, it waits for a while.
pub async fn request(forge: &Forge, asking: Asking) -> Result<Answer> {
    let Asking { token, info, last_update, site } = asking;
    let digest = token.digest();
    let runner = forge.read_inline(Caller::anonymous(), move |tx| runners::shown(tx, &digest)).await?;
    runners::note_contact(forge, &runner, info);
    let board = &forge.shared().board;
    let mark = board.mark();
    if last_update.as_deref() == Some(mark.as_str())
        && let Some(answer) = wait(forge, board, &mark, digest, &site).await?
    {
        return Ok(answer);
    }
    look_and_take(forge, board, digest, &site).await
}

/// Waits until there may be something to do, or for long enough. Where others may give out jobs too, it looks now and then
/// and answers what it finds.
async fn wait(forge: &Forge, board: &Arc<Board>, mark: &str, token: Digest, site: &Site) -> Result<Option<Answer>> {
    let end = Instant::now() + board.patience();
    let alone = forge.shared().database.is_embedded();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let nap = if alone { left } else { left.min(LOOK_EVERY) };
        let called = timeout(nap, board.changed_since(mark)).await.is_ok();
        if called || nap == left {
            return Ok(None);
        }
        if let Answer::Job(job) = look_and_take(forge, board, token, site).await? {
            return Ok(Some(Answer::Job(job)));
        }
    }
}

/// Lets no runner wait any longer, because the service ends.
pub fn stop_waiting(forge: &Forge) {
    forge.shared().board.close();
}

/// Says how long runners wait that find nothing to do.
pub fn set_patience(forge: &Forge, patience: Duration) {
    forge.shared().board.set_patience(patience);
}

async fn look_and_take(forge: &Forge, board: &Arc<Board>, token: Digest, site: &Site) -> Result<Answer> {
    let (mut round, mut refused) = (0, 0);
    while round < 2 && refused < MOST_REFUSED {
        // Taken before the look: what comes in between changes it, and the runner does not wait in vain.
        let mark = board.mark();
        let (runner, jobs) = forge.read(Caller::anonymous(), move |tx| look(tx, &token)).await?;
        if !runner.active {
            // What it wanted to take a moment ago, and kept others from, is still there.
            if round + refused > 0 {
                board.call();
            }
            return Ok(Answer::Paused { mark });
        }
        // What others are about to take is as good as gone; if nothing comes of it they say so.
        let Some(claim) = board.claim(&jobs) else { return Ok(Answer::Nothing { mark }) };
        let (claimed, id) = (claim.jobs().to_vec(), runner.id);
        let (build, outcome) = forge.write(Caller::system(), move |tx| take_first(tx, id, &claimed)).await?;
        claim.keep();
        match outcome {
            Taken::Token(token) => return hand_over(forge, build, runner, token, site.clone()).await,
            Taken::Refused => {
                traces::close_with(forge, build, NOT_ALLOWED).await;
                refused += 1;
            }
            Taken::Gone => round += 1,
        }
    }
    Ok(Answer::Lost)
}

/// Reads what the runner has to know of a job that is its own by now. If that fails the job waits for another runner.
async fn hand_over(forge: &Forge, build: i64, runner: Runner, token: Secret, site: Site) -> Result<Answer> {
    let read = move |tx: &mut ReadTx<'_>| contents::read(tx, build, &runner, &token, &site);
    match forge.read(Caller::anonymous(), read).await {
        Ok(assignment) => Ok(Answer::Job(Box::new(assignment))),
        Err(error) => {
            forge.write(Caller::system(), move |tx| take_back(tx, build).map(drop)).await?;
            Err(error)
        }
    }
}

/// The runner that shows a token, and the jobs that it could take, best first, with their projects.
fn look(tx: &mut ReadTx<'_>, token: &Digest) -> Result<(Runner, Vec<(i64, i64)>)> {
    let runner = runners::shown(tx, token)?;
    if !runner.active {
        return Ok((runner, Vec::new()));
    }
    let mut queues = store::assignments::queues(tx.db(), &runner.summary())?;
    queues.retain(|queue| runner.suits(&queue.tags));
    if runner.is_shared {
        sort_by_load(tx, &mut queues)?;
    }
    let mut jobs = Vec::new();
    for queue in queues.iter().take(QUEUES) {
        let waiting = store::assignments::waiting_in(tx.db(), queue, CANDIDATES)?;
        jobs.extend(waiting.into_iter().map(|build| (build, queue.project)));
    }
    if !runner.is_shared {
        jobs.sort_unstable();
    }
    Ok((runner, jobs))
}

/// Projects for which shared runners do least come first, so that a large one does not keep the others waiting.
fn sort_by_load(tx: &mut ReadTx<'_>, queues: &mut [Queue]) -> Result<()> {
    if queues.len() < 2 {
        return Ok(());
    }
    let projects: Vec<i64> = queues.iter().map(|queue| queue.project).collect();
    let running = store::runners::shared_load(tx.db(), &projects)?;
    let board = &tx.shared().board;
    queues.sort_by_cached_key(|queue| {
        let found = running.iter().find(|(project, _)| *project == queue.project);
        let running = found.map_or(0, |(_, count)| usize::try_from(*count).unwrap_or_default());
        (running + board.claimed_in(queue.project), queue.first)
    });
    Ok(())
}

/// What comes of giving a job to a runner.
pub enum Taken {
    /// The runner has it; this is the token of the job.
    Token(Secret),
    /// Another runner was faster, or nothing is built there any more.
    Gone,
    /// It failed instead, because its user may not run it any more. Its trace has yet to say so.
    Refused,
}

/// Gives the first of these jobs to a runner that it can still have. Stops at one that is refused.
fn take_first(tx: &mut WriteTx<'_>, runner: i64, jobs: &[i64]) -> Result<(i64, Taken)> {
    // Held, so that nobody pauses it meanwhile and believes that it has nothing to do.
    let Some(runner) = store::runners::hold(tx.db(), runner)?.filter(|runner| runner.active) else {
        return Ok((0, Taken::Gone));
    };
    for build in jobs {
        if suits(tx, &runner, *build)? {
            match take(tx, *build, runner.id)? {
                Taken::Gone => {}
                taken => return Ok((*build, taken)),
            }
        }
    }
    Ok((0, Taken::Gone))
}

/// Whether a runner may have a job: what was so when it looked may have changed.
fn suits(tx: &mut WriteTx<'_>, runner: &Runner, build: i64) -> Result<bool> {
    let Some(place) = store::builds::place_of(tx.db(), build)? else { return Ok(false) };
    if !runner.is_shared {
        return Ok(store::runners::builds(tx.db(), runner.id, place.project)?);
    }
    Ok(store::runners::are_wanted(tx.db(), place.project)?)
}

/// Gives a job that waits to a runner, or lets it fail if its user may not run it any more. The caller has checked that the
/// runner may have it.
pub fn take(tx: &mut WriteTx<'_>, build: i64, runner: i64) -> Result<Taken> {
    let now = tx.now();
    let Some(place) = store::builds::place_of(tx.db(), build)? else { return Ok(Taken::Gone) };
    // A project that is put away rests, and so do its builds.
    let project = match tx.open_as_service(&ProjectRef::Id(place.project), ProjectAbility::RunPipelines) {
        Err(Error::NotFound(_) | Error::Forbidden(_)) => return Ok(Taken::Gone),
        project => project?,
    };
    // Everybody holds the pipeline first, so that nobody waits for each other in a circle.
    if !store::pipelines::hold(tx.db(), place.pipeline)? {
        return Ok(Taken::Gone);
    }
    if !may_start(tx, build, &project)? {
        let failed = endings::fail_waiting(tx, build, NOT_ALLOWED_REASON)?;
        return Ok(if failed { Taken::Refused } else { Taken::Gone });
    }
    if !store::builds::take(tx.db(), build, runner, now)? {
        return Ok(Taken::Gone);
    }
    let told_before = store::assignments::was_given(tx.db(), build)?;
    let (seed, token) = fresh_token(tx);
    let secrets = traces::seal_secrets(tx, project.id, place.pipeline)?;
    store::build_runs::begin(tx.db(), build, (&seed, &token.digest()), secrets.as_deref(), now)?;
    // To begin one job changes nothing for the others, so there is no need to look at them.
    let Some(mut pipeline) = store::pipelines::in_short(tx.db(), place.pipeline)? else { return Ok(Taken::Gone) };
    let after = status::follow(pipeline.status, Status::Running);
    let changes = after != pipeline.status;
    // One that was canceled before it ran and tried again runs already by name.
    if changes || pipeline.started_at.is_none() {
        let started_at = pipeline.started_at.is_none().then_some(now);
        let state = NewState { status: after, started_at, finished_at: None, duration: None, now };
        store::pipelines::set_state(tx.db(), pipeline.id, &state)?;
        (pipeline.status, pipeline.started_at) = (after, pipeline.started_at.or(started_at));
    }
    if !told_before {
        tidings::tell_builds(tx, &project, &pipeline, &[build])?;
    }
    if changes {
        tidings::tell_pipeline(tx, &project, &pipeline)?;
    }
    Ok(Taken::Token(token))
}

/// Whether a job may start: its user may still run pipelines in its project, or a trigger token has started it. A job gets
/// the secret variables of the project, so what was allowed when it was created is not enough.
fn may_start(tx: &mut WriteTx<'_>, build: i64, project: &Project) -> Result<bool> {
    let Some(starter) = store::assignments::starter_of(tx.db(), build)? else { return Ok(false) };
    match starter.user {
        Some(user) => tx.may_user_to(user, project.id, ProjectAbility::RunPipelines),
        None => Ok(starter.triggered),
    }
}

/// Takes a job back of which nobody has heard since it was given away: it waits again, its token opens nothing, and nobody
/// is told, because nothing has happened. Whether that was so.
pub(crate) fn take_back(tx: &mut WriteTx<'_>, build: i64) -> Result<bool> {
    call_back(tx, build, true)
}

/// Takes all jobs back from a runner that has died with everything that it was doing.
pub(crate) fn take_all_back(tx: &mut WriteTx<'_>, runner: i64) -> Result<usize> {
    let mut back = 0;
    for build in store::assignments::of_runner(tx.db(), runner)? {
        back += usize::from(call_back(tx, build, false)?);
    }
    Ok(back)
}

fn call_back(tx: &mut WriteTx<'_>, build: i64, only_unheard: bool) -> Result<bool> {
    let Some(place) = store::builds::place_of(tx.db(), build)? else { return Ok(false) };
    let (seed, token) = fresh_token(tx);
    let held = store::pipelines::hold(tx.db(), place.pipeline)?;
    let back = held && store::assignments::take_back(tx.db(), build, only_unheard, (&seed, &token.digest()))?;
    if back {
        tx.call_runners();
    }
    Ok(back)
}

pub(crate) fn fresh_token(tx: &WriteTx<'_>) -> (Seed, Secret) {
    let mut bytes = vec![0; 16];
    tx.shared().secrets.fill(&mut bytes);
    let seed = Seed(bytes);
    let token = tx.shared().instance_key.job_token(&seed);
    (seed, token)
}
