//! What jobs say: told by runners bit by bit, with their secrets hidden, and read by people meanwhile.
//!
//! A trace is a file that grows at its end; how much of it counts stands in the row of the job. The bytes come first, so
//! whatever was acknowledged is there, and what was not is cut off by whoever comes next.

mod masks;

use std::{
    collections::HashMap,
    io,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use files::logs::Key;
use futures_util::{
    StreamExt as _, TryStreamExt as _,
    stream::{self, BoxStream},
};
use model::{Build, Status, pipelines::BuildKind, tokens::Digest};
use store::build_runs::Run;
use tokio::sync::watch;
use tracing::warn;

use crate::{
    Ability, Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx, artifacts,
    assignments, traces::masks::Masks, variables,
};

/// The longest trace that is kept.
const LONGEST: u64 = 100 << 20;
/// How much of the end of a trace is searched for the coverage.
const SEARCHED: u64 = 1 << 20;
/// For how long what is known of a job is remembered while nobody asks for it; longer than a silent job may run.
const REMEMBERED: Duration = Duration::from_secs(2 * 60 * 60);
/// How often somebody who follows a trace looks by themselves: how a job ends is not always told here.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// What somebody shows who tells how a job goes.
#[derive(Clone, Debug)]
pub enum JobProof {
    /// Tokens of which one is that of the job.
    Job(Vec<Digest>),
    /// The same, or the token with which runners join the project.
    JobOrProject(Vec<Digest>),
    /// Tokens of which one is that of the runner that has the job.
    Runner(Vec<Digest>),
}

/// What came of a piece of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It is there, and the trace has so many bytes now.
    Stored(Status, u64),
    /// The trace ends elsewhere than the piece begins.
    Elsewhere(Status, u64),
    /// Nobody listens, because the job does not run.
    NotRunning(Status, u64),
    /// The trace would be longer than any may be.
    TooLong,
}

/// A trace as it is at a moment, for somebody who may see it.
#[derive(Clone, Debug)]
pub struct Trace {
    key: Key,
    /// How many bytes are to be seen.
    pub size: u64,
    /// Whether nothing more will come.
    pub ended: bool,
}

/// What this process knows of jobs that run, or that somebody watches.
#[derive(Default)]
pub(crate) struct Lives {
    known: Mutex<HashMap<i64, Arc<Live>>>,
    closed: watch::Sender<bool>,
}

/// One of them.
struct Live {
    /// Held by whoever changes the trace.
    turn: tokio::sync::Mutex<Option<Known>>,
    /// Changes whenever there is something new to see.
    news: watch::Sender<u64>,
    used: Mutex<Instant>,
}

/// The secrets of a job, as long as it has this token.
struct Known {
    digest: Vec<u8>,
    masks: Arc<Masks>,
}

impl Lives {
    fn of(&self, build: i64) -> Arc<Live> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(live) = known.get(&build) {
            *live.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            return Arc::clone(live);
        }
        known.retain(|_, live| {
            let used = *live.used.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::strong_count(live) > 1 || used.elapsed() < REMEMBERED
        });
        let live = Live {
            turn: tokio::sync::Mutex::default(),
            news: watch::Sender::default(),
            used: Mutex::new(Instant::now()),
        };
        Arc::clone(known.entry(build).or_insert(Arc::new(live)))
    }
}

/// Lets nobody follow a trace any longer, because the service ends.
pub fn close(forge: &Forge) {
    forge.shared().traces.closed.send_replace(true);
}

/// The job that somebody tells of, if what they show is right for it.
pub(crate) fn find(tx: &mut ReadTx<'_>, build: i64, proof: &JobProof) -> Result<Run> {
    let absent = || Error::Absent("404 Not Found".into());
    let runner = match proof {
        JobProof::Runner(tokens) => Some(runner_of(tx, tokens)?.ok_or(Error::Forbidden(None))?),
        _ => None,
    };
    let run = store::build_runs::find(tx.db(), build)?.ok_or_else(absent)?;
    let project = tx.open_as_service(&ProjectRef::Id(run.project), ProjectAbility::ReadProject)?;
    let known = |tokens: &[Digest]| tokens.iter().any(|token| run.has_token(token));
    let fits = match proof {
        JobProof::Runner(_) => {
            return if run.runner == runner { Ok(run) } else { Err(absent()) };
        }
        JobProof::Job(tokens) => known(tokens),
        JobProof::JobOrProject(tokens) => {
            let of_project = tx.shared().instance_key.runners_token(project.id, &project.runners_seed).digest();
            known(tokens) || tokens.contains(&of_project)
        }
    };
    if fits { Ok(run) } else { Err(Error::Forbidden(None)) }
}

/// Fails unless what a runner shows is right for a job.
pub async fn check_proof(forge: &Forge, build: i64, proof: JobProof) -> Result<()> {
    forge.read_inline(Caller::system(), move |tx| find(tx, build, &proof).map(drop)).await
}

/// The runner whose token is among these.
fn runner_of(tx: &mut ReadTx<'_>, tokens: &[Digest]) -> Result<Option<i64>> {
    for token in tokens {
        if let Some(runner) = store::runners::by_token(tx.db(), token)? {
            return Ok(Some(runner.id));
        }
    }
    Ok(None)
}

/// Adds a piece to the trace of a job that runs, where the trace ends.
pub async fn append(
    forge: &Forge,
    build: i64,
    proof: JobProof,
    start: Unvalidated<u64>,
    bytes: Bytes,
) -> Result<Heard> {
    let forge = forge.clone();
    // On its own: whoever waits for it may go away, and nobody else may write while this one still does.
    let task = tokio::spawn(async move {
        // First, so that nothing is kept of those who show no good token, and nobody waits for them.
        let shown = proof.clone();
        forge.read_inline(Caller::system(), move |tx| find(tx, build, &shown)).await?;
        let live = forge.shared().traces.of(build);
        let mut turn = live.turn.lock().await;
        let run = forge.read_inline(Caller::system(), move |tx| find(tx, build, &proof)).await?;
        let start = *start.get()?;
        if run.status != Status::Running {
            return Ok(Heard::NotRunning(run.status, run.trace_size));
        }
        if start != run.trace_size {
            return Ok(Heard::Elsewhere(run.status, run.trace_size));
        }
        forge.heed(grow(&forge, &live, &mut turn, &run, &bytes).await)
    });
    task.await.unwrap_or_else(|error| Err(Error::Internal(format!("a trace: {error}"))))
}

/// Brings a trace to its full length for a runner that sends the whole of it each time.
pub(crate) async fn append_rest(forge: &Forge, build: i64, whole: String) -> Result<()> {
    let forge = forge.clone();
    let task = tokio::spawn(async move {
        let live = forge.shared().traces.of(build);
        let mut turn = live.turn.lock().await;
        let found = forge.read_inline(Caller::system(), move |tx| Ok(store::build_runs::find(tx.db(), build)?)).await?;
        let Some(run) = found.filter(|run| run.status == Status::Running) else { return Ok(()) };
        let known = usize::try_from(run.trace_size).unwrap_or(usize::MAX);
        let Some(rest) = whole.as_bytes().get(known..).filter(|rest| !rest.is_empty()) else { return Ok(()) };
        forge.heed(grow(&forge, &live, &mut turn, &run, rest).await).map(drop)
    });
    task.await.unwrap_or_else(|error| Err(Error::Internal(format!("a trace: {error}"))))
}

/// Hides the secrets in what comes next and writes it down: first the bytes, then how many there are.
async fn grow(forge: &Forge, live: &Live, turn: &mut Option<Known>, run: &Run, bytes: &[u8]) -> Result<Heard> {
    let (key, logs) = (&key(forge, run).await?, &forge.shared().logs);
    let size = run.trace_size + bytes.len() as u64;
    if size > LONGEST {
        return Ok(Heard::TooLong);
    }
    let mut held = run.trace_held;
    if !bytes.is_empty() {
        if run.trace_size == 0 {
            // The job may have been given to somebody before, who said something.
            logs.remove(std::slice::from_ref(key)).await?;
        }
        let masks = masks(forge, turn, run).await?;
        let mut text = held_back(forge, run).await?;
        let at = run.trace_size - text.len() as u64;
        text.extend_from_slice(bytes);
        let masked = tokio::task::spawn_blocking(move || masks.apply(&text)).await.map_err(|error| internal(&error))?;
        held = masked.rest.len() as u64;
        if held > 0 {
            logs.keep_aside(key, run.trace_size, size, masked.rest).await?;
        }
        logs.append(key, at, masked.shown.into()).await?;
    }
    let (grown, build) = (run.clone(), run.build);
    let note = move |tx: &mut WriteTx<'_>| {
        let now = tx.now();
        let counts = store::build_runs::grow_trace(tx.db(), &grown, size, held, now)?;
        Ok(if counts { None } else { Some(store::build_runs::find(tx.db(), build)?) })
    };
    match forge.write(Caller::system(), note).await? {
        None => {
            if held == 0 && run.trace_held > 0 {
                logs.clear_aside(key).await?;
            }
            live.news.send_modify(|news| *news += 1);
            Ok(Heard::Stored(Status::Running, size))
        }
        Some(Some(now)) if now.status == Status::Running => Ok(Heard::Elsewhere(now.status, now.trace_size)),
        Some(Some(now)) => Ok(Heard::NotRunning(now.status, now.trace_size)),
        Some(None) => {
            // Its project was removed meanwhile, and nobody looks for this file any more.
            logs.remove(std::slice::from_ref(key)).await?;
            Err(Error::Absent("404 Not Found".into()))
        }
    }
}

/// The end of a trace that nobody sees yet, as it was said.
async fn held_back(forge: &Forge, run: &Run) -> Result<Vec<u8>> {
    if run.trace_held == 0 {
        return Ok(Vec::new());
    }
    let kept = forge.shared().logs.kept_aside(&key(forge, run).await?, run.trace_size).await?;
    let kept = kept.filter(|kept| kept.len() as u64 == run.trace_held);
    Ok(kept.unwrap_or_else(|| {
        warn!(project.id = run.project, build.id = run.build, "the end of a trace is lost; it stays hidden");
        vec![b'x'; usize::try_from(run.trace_held).unwrap_or_default()]
    }))
}

/// The secrets of a job, which are looked up once.
async fn masks(forge: &Forge, turn: &mut Option<Known>, run: &Run) -> Result<Arc<Masks>> {
    let digest = run.token.as_ref().map(|token| token.digest.clone()).unwrap_or_default();
    if let Some(known) = turn.as_ref().filter(|known| known.digest == digest) {
        return Ok(Arc::clone(&known.masks));
    }
    let run = run.clone();
    let values = forge.read(Caller::system(), move |tx| secrets_of(tx, &run)).await?;
    let made = tokio::task::spawn_blocking(move || Masks::new(values)).await.map_err(|error| internal(&error))?;
    let masks = Arc::new(made);
    *turn = Some(Known { digest, masks: Arc::clone(&masks) });
    Ok(masks)
}

/// Everything that a job knows and nobody may read in its trace.
fn secrets_of(tx: &mut ReadTx<'_>, run: &Run) -> Result<Vec<String>> {
    let project = tx.open_as_service(&ProjectRef::Id(run.project), ProjectAbility::ReadProject)?;
    let runner = match run.runner {
        Some(runner) => store::runners::by_id(tx.db(), runner)?.map(|runner| runner.seed),
        None => None,
    };
    let key = &tx.shared().instance_key;
    let tokens = [
        run.token.as_ref().map(|token| key.job_token(&token.seed)),
        runner.map(|seed| key.runner_token(&seed)),
        Some(key.runners_token(project.id, &project.runners_seed)),
    ];
    let mut values: Vec<String> = tokens.into_iter().flatten().map(|token| token.reveal().to_owned()).collect();
    values.extend(secret_variables(tx, project.id, run.pipeline)?);
    // What has changed since is still what the job was given.
    if let Some(sealed) = store::build_runs::secrets_of(tx.db(), run.build)? {
        values.extend(variables::open_all(tx, project.id, &sealed).into_values());
    }
    Ok(values)
}

/// What a job that is about to be given away must not say, sealed, so that it is still known when somebody changes it.
pub(crate) fn seal_secrets(tx: &mut ReadTx<'_>, project: i64, pipeline: i64) -> Result<Option<Vec<u8>>> {
    let values = secret_variables(tx, project, pipeline)?;
    let numbered = values.into_iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect();
    Ok(variables::seal_all(tx, project, &numbered))
}

/// The values of the secret variables of a project, and of what a trigger gave along.
fn secret_variables(tx: &mut ReadTx<'_>, project: i64, pipeline: i64) -> Result<Vec<String>> {
    let own = variables::of_project(tx, project)?.into_iter().map(|variable| variable.value.reveal().to_owned());
    let mut values: Vec<String> = own.collect();
    if let Some(sealed) = store::pipelines::variables_of(tx.db(), pipeline)? {
        values.extend(variables::open_all(tx, project, &sealed).into_values());
    }
    Ok(values)
}

/// Prepares the end of a job that its runner tells: writes the end of the trace as it will be seen, and finds the coverage.
pub(crate) async fn conclude(forge: &Forge, build: i64) -> Result<Option<f64>> {
    let live = forge.shared().traces.of(build);
    let mut turn = live.turn.lock().await;
    let found = forge
        .read(Caller::system(), move |tx| {
            Ok((store::build_runs::find(tx.db(), build)?, store::build_runs::spec_of(tx.db(), build)?))
        })
        .await?;
    let (Some(run), spec) = found else { return Ok(None) };
    let (key, logs) = (&key(forge, &run).await?, &forge.shared().logs);
    if run.trace_held > 0 {
        let masks = masks(forge, &mut turn, &run).await?;
        let shown = masks.settle(&held_back(forge, &run).await?);
        logs.append(key, run.visible(), shown.into()).await?;
    }
    let pattern = spec.and_then(|spec| ci::Spec::from_text(&spec)).and_then(|spec| spec.coverage);
    let Some(pattern) = pattern.filter(|_| run.trace_size > 0) else { return Ok(None) };
    let end = run.trace_size.saturating_sub(SEARCHED)..run.trace_size;
    let bytes = logs.part(key, end).await?;
    let search = move || ci::find_coverage(&pattern, &String::from_utf8_lossy(&bytes));
    tokio::task::spawn_blocking(search).await.map_err(|error| internal(&error))
}

/// Adds a last line to the trace of a job that did not end by itself, so that the trace does not just stop. The job has ended
/// all the same if that fails.
pub(crate) async fn close_with(forge: &Forge, build: i64, line: &str) {
    if let Err(error) = write_last_line(forge, build, line).await {
        warn!(build.id = build, %error, "the last line of a trace could not be written");
    }
    tell_end(forge, build);
}

async fn write_last_line(forge: &Forge, build: i64, sentence: &str) -> Result<()> {
    let live = forge.shared().traces.of(build);
    let mut turn = live.turn.lock().await;
    let found = forge.read(Caller::system(), move |tx| Ok(store::build_runs::find(tx.db(), build)?)).await?;
    let ended = |run: &Run| matches!(run.status, Status::Failed | Status::Canceled) && !run.erased;
    let Some(run) = found.filter(ended) else { return Ok(()) };
    let (key, logs, at) = (key(forge, &run).await?, &forge.shared().logs, run.visible());
    let mut text = Vec::new();
    if run.trace_held > 0 {
        let masks = masks(forge, &mut turn, &run).await?;
        text = masks.settle(&held_back(forge, &run).await?);
    }
    let last = match text.last() {
        Some(last) => Some(*last),
        None => logs.part(&key, at.saturating_sub(1)..at).await?.last().copied(),
    };
    if last.is_some_and(|last| last != b'\n') {
        text.push(b'\n');
    }
    text.extend_from_slice(format!("{sentence}\n").as_bytes());
    let size = at + text.len() as u64;
    logs.append(&key, at, text.into()).await?;
    let closed = run.clone();
    let note = move |tx: &mut WriteTx<'_>| {
        // Nobody has taken it, and nobody will.
        if closed.token.is_none() {
            let now = tx.now();
            let (seed, token) = assignments::fresh_token(tx);
            store::build_runs::begin(tx.db(), build, (&seed, &token.digest()), None, now)?;
        }
        Ok(store::build_runs::close_trace(tx.db(), &closed, size)?)
    };
    forge.write(Caller::system(), note).await?;
    if run.trace_held > 0 {
        logs.clear_aside(&key).await?;
    }
    Ok(())
}

/// Removes what was kept of the end of a trace that is seen by now.
pub(crate) async fn tidy(forge: &Forge, run: &Run) {
    let cleared = match key(forge, run).await {
        Ok(key) => forge.shared().logs.clear_aside(&key).await.map_err(Error::from),
        Err(error) => Err(error),
    };
    if let Err(error) = cleared {
        warn!(project.id = run.project, build.id = run.build, %error, "what was kept beside a trace stays");
    }
}

/// Tells those who follow a trace that its job has ended, and forgets its secrets.
pub(crate) fn tell_end(forge: &Forge, build: i64) {
    let mut known = forge.shared().traces.known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(live) = known.remove(&build) {
        live.news.send_modify(|news| *news += 1);
    }
}

/// A trace, for whoever may see it.
pub fn open(tx: &mut ReadTx<'_>, project: &ProjectRef, build: &Unvalidated<i64>) -> Result<Trace> {
    tx.may(Ability::Browse)?;
    let project = tx.open(project, ProjectAbility::ReadBuilds)?;
    let run = run_in(tx, project.id, *build.get()?)?;
    let key = Key { folder: project.storage.as_str().into(), number: run.build };
    Ok(Trace { key, size: run.visible(), ended: run.status.is_done() })
}

/// A job of a project.
pub(crate) fn run_in(tx: &mut ReadTx<'_>, project: i64, build: i64) -> Result<Run> {
    let run = store::build_runs::find(tx.db(), build)?.filter(|run| run.project == project);
    run.ok_or_else(|| Error::Absent("404 Not Found".into()))
}

/// The bytes of a trace, as far as they are to be seen.
pub async fn read(forge: &Forge, trace: &Trace, range: Range<u64>) -> Result<BoxStream<'static, io::Result<Bytes>>> {
    let range = range.start..range.end.min(trace.size);
    if range.is_empty() {
        return Ok(stream::empty().boxed());
    }
    let found = forge.shared().logs.read(&trace.key, range).await?;
    // Removed a moment ago.
    Ok(found.unwrap_or_else(|| stream::empty().boxed()))
}

/// The bytes of a trace from a place on, until its job ends, whoever follows it may see it no more, or the service ends.
pub fn follow(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    trace: Trace,
    from: u64,
) -> BoxStream<'static, io::Result<Bytes>> {
    let (lives, build) = (&forge.shared().traces, trace.key.number);
    let live = lives.of(build);
    let state = Following {
        news: live.news.subscribe(),
        closed: lives.closed.subscribe(),
        _live: live,
        forge: forge.clone(),
        caller,
        project,
        trace,
        at: from,
    };
    stream::try_unfold(state, Following::next).try_flatten().boxed()
}

/// Somebody who follows a trace.
struct Following {
    forge: Forge,
    caller: Caller,
    project: ProjectRef,
    trace: Trace,
    at: u64,
    news: watch::Receiver<u64>,
    closed: watch::Receiver<bool>,
    _live: Arc<Live>,
}

type Pieces = BoxStream<'static, io::Result<Bytes>>;

impl Following {
    async fn next(mut self) -> io::Result<Option<(Pieces, Self)>> {
        loop {
            if self.at < self.trace.size {
                let range = self.at..self.trace.size;
                self.at = range.end;
                let pieces = read(&self.forge, &self.trace, range).await.map_err(io::Error::other)?;
                return Ok(Some((pieces, self)));
            }
            if self.trace.ended || *self.closed.borrow() {
                return Ok(None);
            }
            tokio::select! {
                _ = self.news.changed() => {}
                _ = self.closed.wait_for(|closed| *closed) => return Ok(None),
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            let (project, build) = (self.project.clone(), Unvalidated::good(self.trace.key.number));
            let opened = self.forge.read(self.caller.clone(), move |tx| open(tx, &project, &build)).await;
            // Whoever may see it no more has seen the end of it.
            let Ok(trace) = opened else { return Ok(None) };
            self.trace = trace;
        }
    }
}

/// Removes the trace of a build that has ended and all that it left behind.
pub async fn erase(forge: &Forge, caller: Caller, project: ProjectRef, build: Unvalidated<i64>) -> Result<Build> {
    let (place, number) = (project.clone(), build.clone());
    let run = forge.read(caller.clone(), move |tx| erasable(tx, &place, &number)).await?;
    let live = forge.shared().traces.of(run.build);
    let _turn = live.turn.lock().await;
    forge.shared().logs.remove(&[key(forge, &run).await?]).await?;
    let erased = move |tx: &mut WriteTx<'_>| {
        let (run, now) = (erasable(tx, &project, &build)?, tx.now());
        store::build_runs::erase(tx.db(), run.build, now)?;
        let left = store::artifacts::expire_all_of(tx.db(), run.build, now)?;
        Ok((shown(tx, run.build)?, left))
    };
    let (shown, left) = forge.write(caller, erased).await?;
    artifacts::remove_expired(forge, &left).await;
    live.news.send_modify(|news| *news += 1);
    Ok(shown)
}

/// A build that left something behind, if it may be removed.
fn erasable(tx: &mut ReadTx<'_>, project: &ProjectRef, build: &Unvalidated<i64>) -> Result<Run> {
    let project = tx.open(project, ProjectAbility::RunPipelines)?;
    let (run, now) = (run_in(tx, project.id, *build.get()?)?, tx.now());
    let ended = matches!(run.status, Status::Success | Status::Failed | Status::Canceled);
    let left = run.trace_size > 0 || store::artifacts::archive_of(tx.db(), run.build, now)?.is_some();
    if ended && left { Ok(run) } else { Err(Error::forbidden("Build is not erasable!")) }
}

/// A build as everybody sees it.
pub(crate) fn shown(tx: &mut ReadTx<'_>, build: i64) -> Result<Build> {
    let now = tx.now();
    let found = store::builds::by_ids(tx.db(), &[build], now)?.into_iter().next();
    found.filter(|build| build.kind == BuildKind::Job).ok_or_else(|| Error::Absent("404 Not Found".into()))
}

/// Removes the traces of a project that is being removed.
pub(crate) async fn remove_all_of_project(forge: &Forge, project: i64) -> Result<()> {
    let storage = forge.storage_of(project).await?;
    Ok(forge.shared().logs.remove_folder(storage.as_str()).await?)
}

async fn key(forge: &Forge, run: &Run) -> Result<Key> {
    Ok(Key { folder: forge.storage_of(run.project).await?.as_str().into(), number: run.build })
}

fn internal(error: &dyn std::fmt::Display) -> Error {
    Error::Internal(format!("traces: {error}"))
}
