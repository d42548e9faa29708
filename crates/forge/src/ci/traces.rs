//! Traces: the output of jobs, appended by runners in chunks, with secrets masked, and read by users meanwhile.
//!
//! A trace only grows; the row of the job holds its valid size. Its bytes are in a file or in segments ([`LogStore`]). A file
//! is written first, so all acknowledged output is present, and the next writer truncates the rest. Segments are inserted
//! by the transaction that records the size.

mod log_store;
mod masks;
mod migration;
mod segments;

use std::{
    collections::HashMap,
    io,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use files::logs::LogKey;
use futures_util::{
    StreamExt as _, TryStreamExt as _,
    stream::{self, BoxStream},
};
use model::{Job, JobId, PipelineId, Project, ProjectId, RunnerId, Status, jobs::JobKind, tokens::Digest};
use store::job_runs::JobRun;
use tokio::{sync::watch, task::JoinError};
use tracing::warn;

use crate::{
    Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx, artifacts,
    bridge::Shared,
    job_queue,
    traces::{log_store::NewBytes, masks::Masks},
    variables,
    wakeups::TraceChange,
};

pub use log_store::LogStore;
pub use migration::{MovedTraces, begin_import, export_to_folder, forget_segments, import_from_folder};
pub(crate) use segments::{archive, archive_ended, needs_archiving, sweep};
pub use segments::{folder, sweep_at_start};

/// The maximum size of a trace.
const MAX_TRACE_BYTES: u64 = 100 << 20;
/// How much of the end of a trace is searched for the coverage.
const COVERAGE_SEARCH_BYTES: u64 = 1 << 20;
/// How long the state of an unused trace is cached; longer than a runner may stay silent.
const LIVE_TRACE_TTL: Duration = Duration::from_secs(2 * 60 * 60);
/// How often a follower of a trace checks the job itself: not every end of a job is notified in this process.
const POLL_INTERVAL: Duration = Duration::from_secs(3);

/// The tokens presented in a call about a job.
#[derive(Clone, Debug)]
pub enum JobCredentials {
    /// One of the tokens must be that of the job.
    Job(Vec<Digest>),
    /// One of the tokens must be that of the job or the registration token of the project.
    JobOrProject(Vec<Digest>),
    /// One of the tokens must be that of the runner that the job is assigned to.
    Runner(Vec<Digest>),
}

/// The outcome of appending to a trace; holds the status of the job and the size of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendOutcome {
    /// Stored.
    Stored(Status, u64),
    /// Rejected, because the chunk does not start at the end of the trace.
    WrongOffset(Status, u64),
    /// Rejected, because the job is not running.
    NotRunning(Status, u64),
    /// Rejected, because the trace would exceed the maximum size.
    TooLong,
}

/// A snapshot of a trace that the caller may read.
#[derive(Clone, Debug)]
pub struct Trace {
    log_key: LogKey,
    /// The number of visible bytes.
    pub size: u64,
    /// Whether the trace is complete.
    pub ended: bool,
}

/// The state that this process keeps for traces that are being written or followed.
#[derive(Default)]
pub(crate) struct LiveTraces {
    by_job: Mutex<HashMap<JobId, Arc<LiveTrace>>>,
    closed: watch::Sender<bool>,
}

/// The state of one trace.
struct LiveTrace {
    /// Held while the trace is being changed.
    write_lock: tokio::sync::Mutex<Option<CachedMasks>>,
    /// Incremented whenever the trace or the job changes.
    changes: watch::Sender<u64>,
    last_used: Mutex<Instant>,
}

/// The masks of a job, valid as long as its token has this digest.
#[derive(Clone)]
struct CachedMasks {
    digest: Vec<u8>,
    masks: Arc<Masks>,
}

impl LiveTraces {
    fn of(&self, job: JobId) -> Arc<LiveTrace> {
        let mut by_job = self.by_job.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(live) = by_job.get(&job) {
            *live.last_used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            return Arc::clone(live);
        }
        by_job.retain(|_, live| {
            let last_used = *live.last_used.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::strong_count(live) > 1 || last_used.elapsed() < LIVE_TRACE_TTL
        });
        let live = LiveTrace {
            write_lock: tokio::sync::Mutex::default(),
            changes: watch::Sender::default(),
            last_used: Mutex::new(Instant::now()),
        };
        Arc::clone(by_job.entry(job).or_insert(Arc::new(live)))
    }
}

/// Ends all followed traces, because the server shuts down.
pub fn close(forge: &Forge) {
    forge.shared().traces.closed.send_replace(true);
}

/// Returns the job if the credentials are valid for it.
pub(crate) fn find_authorized(tx: &mut ReadTx<'_>, job: JobId, credentials: &JobCredentials) -> Result<JobRun> {
    let not_found = || Error::NotFound(None);
    let runner = match credentials {
        JobCredentials::Runner(tokens) => Some(runner_of(tx, tokens)?.ok_or(Error::Forbidden(None))?),
        _ => None,
    };
    let run = store::job_runs::find(tx.db(), job)?.ok_or_else(not_found)?;
    let project = tx.project_as_system(&ProjectRef::Id(run.project), ProjectAbility::ReadProject)?;
    let is_job_token = |tokens: &[Digest]| tokens.iter().any(|token| run.has_token(token));
    let is_valid = match credentials {
        JobCredentials::Runner(_) => {
            return if run.runner == runner { Ok(run) } else { Err(not_found()) };
        }
        JobCredentials::Job(tokens) => is_job_token(tokens),
        JobCredentials::JobOrProject(tokens) => {
            let of_project = tx.shared().instance_key.runners_token(project.id, &project.runners_seed).digest();
            is_job_token(tokens) || tokens.contains(&of_project)
        }
    };
    if is_valid { Ok(run) } else { Err(Error::Forbidden(None)) }
}

/// Fails unless the credentials are valid for a job.
pub async fn check_credentials(forge: &Forge, job: JobId, credentials: JobCredentials) -> Result<()> {
    forge.read_inline(Caller::system(), move |tx| find_authorized(tx, job, &credentials).map(drop)).await
}

/// Returns the runner with one of these tokens.
fn runner_of(tx: &mut ReadTx<'_>, tokens: &[Digest]) -> Result<Option<RunnerId>> {
    for token in tokens {
        if let Some(runner) = store::runners::by_token(tx.db(), token)? {
            return Ok(Some(runner.id));
        }
    }
    Ok(None)
}

/// Appends a chunk to the trace of a running job; it must start at the end of the trace.
pub async fn append(
    forge: &Forge,
    job: JobId,
    credentials: JobCredentials,
    start: Unvalidated<u64>,
    bytes: Bytes,
) -> Result<AppendOutcome> {
    let forge = forge.clone();
    // In a task of its own, so that a disconnecting client does not interrupt the write.
    let task = tokio::spawn(async move {
        // First, so that invalid credentials allocate nothing and wait for no lock.
        let presented = credentials.clone();
        forge.read_inline(Caller::system(), move |tx| find_authorized(tx, job, &presented)).await?;
        let live = forge.shared().traces.of(job);
        let mut cached = live.write_lock.lock().await;
        let run = forge.read_inline(Caller::system(), move |tx| find_authorized(tx, job, &credentials)).await?;
        let start = *start.validate()?;
        if run.status != Status::Running {
            return Ok(AppendOutcome::NotRunning(run.status, run.trace_size));
        }
        if start != run.trace_size {
            return Ok(AppendOutcome::WrongOffset(run.status, run.trace_size));
        }
        forge.record_if_disk_full(append_masked(&forge, &live, &mut cached, &run, &bytes).await)
    });
    task.await.unwrap_or_else(|error| Err(task_failed(error)))
}

/// Appends the missing part of a trace, for a runner that sends the full trace each time.
pub(crate) async fn append_missing(forge: &Forge, job: JobId, full_trace: String) -> Result<()> {
    let forge = forge.clone();
    let task = tokio::spawn(async move {
        let live = forge.shared().traces.of(job);
        let mut cached = live.write_lock.lock().await;
        let found = forge.read_inline(Caller::system(), move |tx| Ok(store::job_runs::find(tx.db(), job)?)).await?;
        let Some(run) = found.filter(|run| run.status == Status::Running) else { return Ok(()) };
        let size = usize::try_from(run.trace_size).unwrap_or(usize::MAX);
        let Some(rest) = full_trace.as_bytes().get(size..).filter(|rest| !rest.is_empty()) else { return Ok(()) };
        forge.record_if_disk_full(append_masked(&forge, &live, &mut cached, &run, rest).await).map(drop)
    });
    task.await.unwrap_or_else(|error| Err(task_failed(error)))
}

/// Masks the secrets in a chunk and stores it with the new size.
async fn append_masked(
    forge: &Forge,
    live: &LiveTrace,
    cached: &mut Option<CachedMasks>,
    run: &JobRun,
    bytes: &[u8],
) -> Result<AppendOutcome> {
    let log_key = &log_key(forge, run).await?;
    let size = run.trace_size + bytes.len() as u64;
    if size > MAX_TRACE_BYTES {
        return Ok(AppendOutcome::TooLong);
    }
    let mut new = None;
    if !bytes.is_empty() {
        let masks = masks(forge, cached, run).await?;
        let mut text = read_withheld(forge, log_key, run).await?;
        let offset = run.trace_size - text.len() as u64;
        text.extend_from_slice(bytes);
        let masked = tokio::task::spawn_blocking(move || masks.mask(&text)).await.map_err(task_failed)?;
        let bytes = new.insert(NewBytes { offset, text: masked.text.into(), withheld: masked.pending });
        log_store::prepare(forge, log_key, run, bytes).await?;
    }
    let withheld = new.as_ref().map_or(run.trace_held, |new| new.withheld.len() as u64);
    let before = run.clone();
    let record = move |tx: &mut WriteTx<'_>| {
        let now = tx.now();
        if !store::job_runs::extend_trace(tx.db(), &before, size, withheld, now)? {
            return Ok(Some(store::job_runs::find(tx.db(), before.job)?));
        }
        if let Some(new) = &new {
            log_store::record(tx, &before, new)?;
        }
        tx.notify_followers(before.job, TraceChange::Appended);
        Ok(None)
    };
    match forge.write(Caller::system(), record).await? {
        None => {
            if withheld == 0 && run.trace_held > 0 {
                log_store::remove_withheld(forge, log_key).await?;
            }
            live.changes.send_modify(|changes| *changes += 1);
            Ok(AppendOutcome::Stored(Status::Running, size))
        }
        Some(Some(run)) if run.status == Status::Running => Ok(AppendOutcome::WrongOffset(run.status, run.trace_size)),
        Some(Some(run)) => Ok(AppendOutcome::NotRunning(run.status, run.trace_size)),
        Some(None) => {
            // The project was deleted meanwhile, so nothing else would remove the file.
            log_store::remove(forge, log_key).await?;
            Err(Error::NotFound(None))
        }
    }
}

/// Returns the unmasked end of a trace that is withheld from readers.
async fn read_withheld(forge: &Forge, log_key: &LogKey, run: &JobRun) -> Result<Vec<u8>> {
    if run.trace_held == 0 {
        return Ok(Vec::new());
    }
    Ok(or_masked(run, log_store::read_withheld(forge, log_key, run).await?))
}

/// Returns the withheld end of a trace, masked as a whole if it is lost.
fn or_masked(run: &JobRun, withheld: Option<Vec<u8>>) -> Vec<u8> {
    withheld.filter(|withheld| withheld.len() as u64 == run.trace_held).unwrap_or_else(|| {
        warn!(
            project.id = run.project.get(),
            build.id = run.job.get(),
            "the withheld end of a trace is lost; it stays masked"
        );
        vec![b'x'; usize::try_from(run.trace_held).unwrap_or_default()]
    })
}

/// Returns the masks of a job, loaded once.
async fn masks(forge: &Forge, cached: &mut Option<CachedMasks>, run: &JobRun) -> Result<Arc<Masks>> {
    let digest = run.token.as_ref().map(|token| token.digest.clone()).unwrap_or_default();
    if let Some(cached) = cached.as_ref().filter(|cached| cached.digest == digest) {
        return Ok(Arc::clone(&cached.masks));
    }
    let run = run.clone();
    let values = forge.read(Caller::system(), move |tx| secrets_of(tx, &run)).await?;
    let masks = tokio::task::spawn_blocking(move || Masks::new(values)).await.map_err(task_failed)?;
    let masks = Arc::new(masks);
    *cached = Some(CachedMasks { digest, masks: Arc::clone(&masks) });
    Ok(masks)
}

/// Returns all values to mask in the trace of a job.
fn secrets_of(tx: &mut ReadTx<'_>, run: &JobRun) -> Result<Vec<String>> {
    let project = tx.project_as_system(&ProjectRef::Id(run.project), ProjectAbility::ReadProject)?;
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
    // The job was given the values of its start, even if they have changed since.
    if let Some(encrypted) = store::job_runs::secrets_of(tx.db(), run.job)? {
        values.extend(variables::decrypt_all(tx, project.id, &encrypted).into_values());
    }
    Ok(values)
}

/// Encrypts the values to mask in the trace of a job that is being assigned, so that they are still known if they change.
pub(crate) fn encrypt_secrets(
    tx: &mut ReadTx<'_>,
    project: ProjectId,
    pipeline: PipelineId,
) -> Result<Option<Vec<u8>>> {
    let values = secret_variables(tx, project, pipeline)?;
    let numbered = values.into_iter().enumerate().map(|(index, value)| (index.to_string(), value)).collect();
    Ok(variables::encrypt_all(tx, project, &numbered))
}

/// Returns the values of the variables of a project and of those passed by a trigger.
fn secret_variables(tx: &mut ReadTx<'_>, project: ProjectId, pipeline: PipelineId) -> Result<Vec<String>> {
    let own = variables::of_project(tx, project)?.into_iter().map(|variable| variable.value.reveal().to_owned());
    let mut values: Vec<String> = own.collect();
    if let Some(encrypted) = store::pipelines::trigger_variables_of(tx.db(), pipeline)? {
        values.extend(variables::decrypt_all(tx, project, &encrypted).into_values());
    }
    Ok(values)
}

/// What is known about a trace before the transaction that ends its job.
pub(crate) struct FinishedTrace {
    /// The code coverage that the trace contains.
    pub(crate) coverage: Option<f64>,
    /// The masks of the withheld end.
    masks: Option<CachedMasks>,
}

/// Prepares the end of a job: writes the withheld end of a trace in a file, and finds the coverage.
pub(crate) async fn finish(forge: &Forge, job: JobId) -> Result<FinishedTrace> {
    let live = forge.shared().traces.of(job);
    let mut cached = live.write_lock.lock().await;
    let found = forge
        .read(Caller::system(), move |tx| {
            Ok((store::job_runs::find(tx.db(), job)?, store::job_runs::spec_of(tx.db(), job)?))
        })
        .await?;
    let mut finished = FinishedTrace { coverage: None, masks: None };
    let (Some(run), spec) = found else { return Ok(finished) };
    let log_key = &log_key(forge, &run).await?;
    let mut end = Bytes::new();
    if run.trace_held > 0 {
        let masks = masks(forge, &mut cached, &run).await?;
        end = masks.mask_final(&read_withheld(forge, log_key, &run).await?).into();
        let new = NewBytes { offset: run.visible(), text: end.clone(), withheld: Vec::new() };
        log_store::prepare(forge, log_key, &run, &new).await?;
        finished.masks.clone_from(&cached);
    }
    let pattern = spec.and_then(|spec| ci::JobSpec::from_json(&spec)).and_then(|spec| spec.coverage);
    let Some(pattern) = pattern.filter(|_| run.trace_size > 0) else { return Ok(finished) };
    let visible = run.trace_size.saturating_sub(COVERAGE_SEARCH_BYTES)..run.visible();
    let mut bytes = log_store::read_range(forge, log_key, visible).await?;
    bytes.extend_from_slice(&end);
    let search = move || ci::find_coverage(&pattern, &String::from_utf8_lossy(&bytes));
    finished.coverage = tokio::task::spawn_blocking(search).await.map_err(task_failed)?;
    Ok(finished)
}

/// Makes the withheld end of a trace visible, in the transaction that ends its job: the trace is complete, so the end cannot
/// become a secret.
pub(crate) fn release_withheld(tx: &mut WriteTx<'_>, run: &JobRun, finished: &FinishedTrace) -> Result<()> {
    let withheld = match tx.shared().logs {
        LogStore::Segments if run.trace_held > 0 => Some(or_masked(run, log_store::decrypt_withheld(tx.read(), run)?)),
        _ => None,
    };
    store::job_runs::release_held_trace(tx.db(), run.job)?;
    let Some(withheld) = withheld else { return Ok(()) };
    let is_of_run = |masks: &&CachedMasks| run.token.as_ref().is_some_and(|token| token.digest == masks.digest);
    let text = match finished.masks.as_ref().filter(is_of_run) {
        Some(cached) => cached.masks.mask_final(&withheld),
        // Another chunk has arrived meanwhile.
        None => vec![b'x'; withheld.len()],
    };
    log_store::record(tx, run, &NewBytes { offset: run.visible(), text: text.into(), withheld: Vec::new() })
}

/// Appends a last line to the trace of a job that was ended by the server, so that the trace explains why. Errors are
/// logged, because the job has ended anyway.
pub(crate) async fn append_last_line(forge: &Forge, job: JobId, line: &str) {
    if let Err(error) = write_last_line(forge, job, line).await {
        warn!(build.id = job.get(), %error, "cannot write the last line of a trace");
    }
    notify_ended(forge, job);
}

async fn write_last_line(forge: &Forge, job: JobId, line: &str) -> Result<()> {
    let live = forge.shared().traces.of(job);
    let mut cached = live.write_lock.lock().await;
    let found = forge.read(Caller::system(), move |tx| Ok(store::job_runs::find(tx.db(), job)?)).await?;
    let ended = |run: &JobRun| matches!(run.status, Status::Failed | Status::Canceled) && !run.erased;
    let Some(run) = found.filter(ended) else { return Ok(()) };
    let (log_key, offset) = (log_key(forge, &run).await?, run.visible());
    let mut text = Vec::new();
    if run.trace_held > 0 {
        let masks = masks(forge, &mut cached, &run).await?;
        text = masks.mask_final(&read_withheld(forge, &log_key, &run).await?);
    }
    let last = match text.last() {
        Some(last) => Some(*last),
        None => log_store::read_range(forge, &log_key, offset.saturating_sub(1)..offset).await?.last().copied(),
    };
    if last.is_some_and(|last| last != b'\n') {
        text.push(b'\n');
    }
    text.extend_from_slice(format!("{line}\n").as_bytes());
    let new = NewBytes { offset, text: text.into(), withheld: Vec::new() };
    let size = offset + new.text.len() as u64;
    log_store::prepare(forge, &log_key, &run, &new).await?;
    let closed = run.clone();
    let record = move |tx: &mut WriteTx<'_>| {
        // No runner has taken the job.
        if closed.token.is_none() {
            let now = tx.now();
            let (seed, token) = job_queue::new_job_token(tx);
            store::job_runs::start(tx.db(), job, (&seed, &token.digest()), None, now)?;
        }
        if store::job_runs::close_trace(tx.db(), &closed, size)? {
            log_store::record(tx, &closed, &new)?;
            archive_ended(tx, &[job])?;
        }
        Ok(())
    };
    forge.write(Caller::system(), record).await?;
    if run.trace_held > 0 {
        log_store::remove_withheld(forge, &log_key).await?;
    }
    Ok(())
}

/// Removes the file with the withheld end of a trace that is fully visible.
pub(crate) async fn remove_withheld(forge: &Forge, run: &JobRun) {
    let removed = match log_key(forge, run).await {
        Ok(log_key) => log_store::remove_withheld(forge, &log_key).await,
        Err(error) => Err(error),
    };
    if let Err(error) = removed {
        let (project, job) = (run.project.get(), run.job.get());
        warn!(project.id = project, build.id = job, %error, "cannot remove the withheld end of a trace");
    }
}

/// Notifies the followers of a trace that its job has ended, and drops its masks.
pub(crate) fn notify_ended(forge: &Forge, job: JobId) {
    let mut by_job = forge.shared().traces.by_job.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(live) = by_job.remove(&job) {
        live.changes.send_modify(|changes| *changes += 1);
    }
}

/// Wakes up the followers of a trace that another node has changed.
pub(crate) fn wake_followers(shared: &Shared, job: JobId) {
    let by_job = shared.traces.by_job.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(live) = by_job.get(&job) {
        live.changes.send_modify(|changes| *changes += 1);
    }
}

/// Wakes up the followers of all traces.
pub(crate) fn wake_all_followers(shared: &Shared) {
    let by_job = shared.traces.by_job.lock().unwrap_or_else(PoisonError::into_inner);
    for live in by_job.values() {
        live.changes.send_modify(|changes| *changes += 1);
    }
}

/// Opens a trace that the caller may read.
pub fn open(tx: &mut ReadTx<'_>, project: &ProjectRef, job: &Unvalidated<JobId>) -> Result<Trace> {
    let project = tx.project(project, ProjectAbility::ReadJobs)?;
    open_of_job(tx, &project, *job.validate()?)
}

/// Opens the trace of a job; the caller checks permissions.
pub(crate) fn open_of_job(tx: &mut ReadTx<'_>, project: &Project, job: JobId) -> Result<Trace> {
    let run = find_in_project(tx, project.id, job)?;
    let log_key = LogKey { folder: project.storage.as_str().into(), number: run.job.get() };
    Ok(Trace { log_key, size: run.visible(), ended: run.status.is_done() })
}

/// Returns a job of a project.
pub(crate) fn find_in_project(tx: &mut ReadTx<'_>, project: ProjectId, job: JobId) -> Result<JobRun> {
    let run = store::job_runs::find(tx.db(), job)?.filter(|run| run.project == project);
    run.ok_or(Error::NotFound(None))
}

/// Returns the visible bytes of a trace.
pub async fn read(forge: &Forge, trace: &Trace, range: Range<u64>) -> Result<BoxStream<'static, io::Result<Bytes>>> {
    let range = range.start..range.end.min(trace.size);
    if range.is_empty() {
        return Ok(stream::empty().boxed());
    }
    let found = log_store::read(forge, &trace.log_key, range).await?;
    // Removed meanwhile.
    Ok(found.unwrap_or_else(|| stream::empty().boxed()))
}

/// Returns a small part of the visible bytes of a trace; it is shorter if the trace is.
pub async fn read_part(forge: &Forge, trace: &Trace, range: Range<u64>) -> Result<Vec<u8>> {
    let range = range.start..range.end.min(trace.size);
    if range.is_empty() {
        return Ok(Vec::new());
    }
    log_store::read_range(forge, &trace.log_key, range).await
}

/// Streams a trace from an offset until its job ends, the caller may no longer read it, or the server shuts down.
pub fn follow(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    trace: Trace,
    from: u64,
) -> BoxStream<'static, io::Result<Bytes>> {
    let (live_traces, job) = (&forge.shared().traces, JobId::new(trace.log_key.number));
    let live = live_traces.of(job);
    let state = TraceFollower {
        changes: live.changes.subscribe(),
        closed: live_traces.closed.subscribe(),
        _live: live,
        forge: forge.clone(),
        caller,
        project,
        trace,
        offset: from,
    };
    stream::try_unfold(state, TraceFollower::next).try_flatten().boxed()
}

/// The state of a stream that follows a trace.
struct TraceFollower {
    forge: Forge,
    caller: Caller,
    project: ProjectRef,
    trace: Trace,
    offset: u64,
    changes: watch::Receiver<u64>,
    closed: watch::Receiver<bool>,
    _live: Arc<LiveTrace>,
}

type ByteStream = BoxStream<'static, io::Result<Bytes>>;

impl TraceFollower {
    async fn next(mut self) -> io::Result<Option<(ByteStream, Self)>> {
        loop {
            if self.offset < self.trace.size {
                let range = self.offset..self.trace.size;
                self.offset = range.end;
                let bytes = read(&self.forge, &self.trace, range).await.map_err(io::Error::other)?;
                return Ok(Some((bytes, self)));
            }
            if self.trace.ended || *self.closed.borrow() {
                return Ok(None);
            }
            tokio::select! {
                _ = self.changes.changed() => {}
                _ = self.closed.wait_for(|closed| *closed) => return Ok(None),
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
            let (project, job) = (self.project.clone(), Unvalidated::valid(JobId::new(self.trace.log_key.number)));
            let opened = self.forge.read(self.caller.clone(), move |tx| open(tx, &project, &job)).await;
            // The stream ends if the caller may no longer read the trace.
            let Ok(trace) = opened else { return Ok(None) };
            self.trace = trace;
        }
    }
}

/// Erases the trace and the artifacts of a job that has ended.
pub async fn erase(forge: &Forge, caller: Caller, project: ProjectRef, job: Unvalidated<JobId>) -> Result<Job> {
    let (project_ref, job_id) = (project.clone(), job.clone());
    let run = forge.read(caller.clone(), move |tx| find_erasable(tx, &project_ref, &job_id)).await?;
    let live = forge.shared().traces.of(run.job);
    let _guard = live.write_lock.lock().await;
    log_store::remove(forge, &log_key(forge, &run).await?).await?;
    let erase = move |tx: &mut WriteTx<'_>| {
        let (run, now) = (find_erasable(tx.read(), &project, &job)?, tx.now());
        store::job_runs::erase(tx.db(), run.job, now)?;
        let expired = store::artifacts::expire_all_of_job(tx.db(), run.job, now)?;
        Ok((load_job(tx.read(), run.job)?, expired))
    };
    let (job, expired) = forge.write(caller, erase).await?;
    artifacts::remove_expired(forge, &expired).await;
    if matches!(forge.shared().logs, LogStore::Segments)
        && let Err(error) = sweep(forge).await
    {
        warn!(build.id = job.id.get(), %error, "cannot remove the objects of an erased trace; retrying later");
    }
    live.changes.send_modify(|changes| *changes += 1);
    Ok(job)
}

/// Returns a job that has ended and has a trace or artifacts to erase.
fn find_erasable(tx: &mut ReadTx<'_>, project: &ProjectRef, job: &Unvalidated<JobId>) -> Result<JobRun> {
    let project = tx.project(project, ProjectAbility::RunPipelines)?;
    let (run, now) = (find_in_project(tx, project.id, *job.validate()?)?, tx.now());
    let ended = matches!(run.status, Status::Success | Status::Failed | Status::Canceled);
    let has_content = run.trace_size > 0 || store::artifacts::archive_of(tx.db(), run.job, now)?.is_some();
    if ended && has_content { Ok(run) } else { Err(Error::forbidden("Build is not erasable!")) }
}

/// Returns a job that is run by a runner.
pub(crate) fn load_job(tx: &mut ReadTx<'_>, job: JobId) -> Result<Job> {
    let now = tx.now();
    let found = store::jobs::by_ids(tx.db(), &[job], now)?.into_iter().next();
    found.filter(|job| job.kind == JobKind::Runner).ok_or(Error::NotFound(None))
}

/// Removes the traces of a deleted project.
pub(crate) async fn remove_all_of_project(forge: &Forge, project: ProjectId) -> Result<()> {
    log_store::remove_all_of_project(forge, project).await
}

async fn log_key(forge: &Forge, run: &JobRun) -> Result<LogKey> {
    Ok(LogKey { folder: forge.storage_of(run.project).await?.as_str().into(), number: run.job.get() })
}

fn task_failed(error: JoinError) -> Error {
    Error::internal("traces", error)
}
