//! The polling loop of a runner: requests jobs, starts them, and shuts down gracefully.

use std::{
    fs::{self, DirBuilder, File, TryLockError},
    os::unix::fs::DirBuilderExt as _,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hyper::StatusCode;
use tokio::{
    sync::{Semaphore, oneshot, watch},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tracing::{error, info, warn};

use crate::{
    Connection, Error, Options, Timing,
    caches::Caches,
    client::{self, Client, ConnectionError},
    folder_handle,
    isolation::{Program, Sandbox},
    job_execution::{self, RunnerContext},
    processes::{self, Interrupt},
    protocol::{Job, JobAuth, JobResult},
    registrations,
    reporter::Reporter,
    trace::Trace,
};

/// The minimum delay between two requests for a job.
const MIN_POLL_DELAY: Duration = Duration::from_millis(300);
/// The delay after the server rejects the runner's token.
const UNKNOWN_RUNNER_DELAY: Duration = Duration::from_secs(60);

/// A runner that is ready to take jobs: its folder is locked and its sandbox is chosen.
pub struct Runner {
    options: Options,
    folder: RunnerFolder,
    sandbox: Sandbox,
}

/// Prepares a runner, or returns why it must not run jobs on this machine.
pub async fn prepare(options: Options) -> Result<Runner, Error> {
    let path = options.folder.clone();
    let folder = tokio::task::spawn_blocking(move || prepare_folder(&path)).await??;
    let mut hidden_paths = options.hidden_paths.clone();
    hidden_paths.push(folder.path.clone());
    let sandbox = Sandbox::choose(&options, &folder.path.join("builds"), &hidden_paths).await?;
    Ok(Runner { options, folder, sandbox })
}

impl Runner {
    /// Runs jobs until `stop` becomes true. Running jobs may then continue for the grace period; the remaining ones are
    /// terminated and reported as failed.
    pub async fn run(self, connection: Connection, stop: watch::Receiver<bool>) -> Result<(), Error> {
        let Self { options, folder, sandbox } = self;
        let cx = Arc::new(RunnerContext {
            client: Client::new(&connection.url)?,
            sandbox,
            shell: Program::shell(),
            builds: folder.path.join("builds"),
            private: folder.path.join("private"),
            caches: Caches::new(folder.path.join("cache"), options.limits.caches),
            limits: options.limits,
            timing: options.timing,
            clone_source: connection.clone_source,
            requeues_interrupted_jobs: options.requeues_interrupted_jobs,
            ignore_image: options.ignore_image,
            name: options.name.clone(),
        });
        let mut polling_loop = PollingLoop {
            cx,
            system_id: folder.system_id.clone(),
            token: connection.token,
            stop,
            jobs: JoinSet::new(),
            permits: Arc::new(Semaphore::new(options.concurrency.max(1))),
            slots: Arc::new(Mutex::new(vec![None; options.concurrency.max(1)])),
            interrupt: Arc::new(watch::channel(None).0),
            stopping: Arc::new(AtomicBool::new(false)),
        };
        polling_loop.poll_until_stopped().await?;
        polling_loop.shut_down(options.grace_period).await;
        drop(folder);
        Ok(())
    }
}

/// The locked folder of a runner.
struct RunnerFolder {
    path: std::path::PathBuf,
    /// Distinguishes machines that use the same runner token.
    system_id: String,
    _lock: File,
}

fn prepare_folder(path: &Path) -> Result<RunnerFolder, Error> {
    let failed = |source| Error::File { action: "use the folder", path: path.to_owned(), source };
    // The user that runs jobs may traverse the folder, but not list it.
    DirBuilder::new().recursive(true).mode(0o711).create(path).map_err(failed)?;
    let path = path.canonicalize().map_err(failed)?;
    let lock = File::options().write(true).create(true).truncate(false).open(path.join("lock")).map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let message = format!("another runner uses the folder {}; choose another one", path.display());
            return Err(Error::Setup(message));
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    // A previous runner may have been killed while jobs were running.
    processes::kill_marked_processes(&path.join("builds"));
    for (name, mode) in [("builds", 0o711), ("private", 0o700), ("cache", 0o700)] {
        let inner = path.join(name);
        if name != "cache" {
            folder_handle::remove_all(&inner).map_err(failed)?;
        }
        DirBuilder::new().recursive(true).mode(mode).create(&inner).map_err(failed)?;
    }
    let system_id = path.join("system-id");
    let existing = fs::read_to_string(&system_id).ok().map(|text| text.trim().to_owned());
    let system_id = if let Some(existing) = existing.filter(|text| !text.is_empty()) {
        existing
    } else {
        let generated = format!("r_{}", &client::random_hex().map_err(failed)?[..12]);
        fs::write(&system_id, format!("{generated}\n")).map_err(failed)?;
        generated
    };
    Ok(RunnerFolder { path, system_id, _lock: lock })
}

struct PollingLoop {
    cx: Arc<RunnerContext>,
    system_id: String,
    token: String,
    stop: watch::Receiver<bool>,
    jobs: JoinSet<()>,
    permits: Arc<Semaphore>,
    /// The running jobs by the slot number that they see.
    slots: Slots,
    interrupt: Arc<watch::Sender<Option<Interrupt>>>,
    stopping: Arc<AtomicBool>,
}

impl PollingLoop {
    async fn poll_until_stopped(&mut self) -> Result<(), Error> {
        let mut stop = self.stop.clone();
        let stopped = async move { drop(stop.wait_for(|stop| *stop).await) };
        tokio::pin!(stopped);
        tokio::select! {
            () = &mut stopped => return Ok(()),
            verified = self.wait_until_verified() => verified?,
        }
        let mut last_update = String::new();
        let mut delay = Duration::ZERO;
        loop {
            while self.jobs.try_join_next().is_some() {}
            let permit = async {
                sleep(delay).await;
                Arc::clone(&self.permits).acquire_owned().await
            };
            let permit = tokio::select! {
                biased;
                () = &mut stopped => return Ok(()),
                permit = permit => permit.expect("the semaphore is never closed"),
            };
            let started_at = Instant::now();
            let request = self.cx.client.request_job(&self.token, &self.system_id, &last_update);
            let response = tokio::select! {
                // A job sent just before the stop is still accepted.
                biased;
                response = request => response,
                () = &mut stopped => return Ok(()),
            };
            let Timing { poll_interval, retry_delay, max_retry_delay, .. } = self.cx.timing;
            let next_delay = (delay * 2).clamp(retry_delay, max_retry_delay.max(retry_delay));
            delay = match response {
                Ok(response) if response.status == StatusCode::CREATED => {
                    match serde_json::from_slice::<Job>(&response.body) {
                        Ok(job) => {
                            self.start_job(job, permit);
                            Duration::ZERO
                        }
                        Err(error) => {
                            // Only the position: the value may be a token.
                            error!(place = error.column(), "the server sent a job that cannot be parsed");
                            self.reject_job(&response.body).await;
                            next_delay
                        }
                    }
                }
                Ok(response) if response.status == StatusCode::NO_CONTENT => {
                    let update = response.header("x-gitlab-last-update").unwrap_or_default().to_owned();
                    // A server that sent a new value supports long polling and delays the next response until there is
                    // a change.
                    let is_new = !update.is_empty() && update != last_update;
                    last_update = update;
                    if is_new {
                        MIN_POLL_DELAY.min(poll_interval)
                    } else {
                        poll_interval.saturating_sub(started_at.elapsed())
                    }
                }
                Ok(response) if response.status == StatusCode::CONFLICT => MIN_POLL_DELAY.min(poll_interval),
                Ok(response) if matches!(response.status, StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED) => {
                    warn!("{}", registrations::unknown_runner());
                    UNKNOWN_RUNNER_DELAY
                }
                Ok(response) => {
                    warn!(status = %response.status, "cannot request a job; retrying");
                    next_delay
                }
                Err(ConnectionError(reason)) => {
                    warn!(reason, "cannot reach the server; retrying");
                    next_delay
                }
            };
        }
    }

    /// Waits until the server accepts the token; a server that is not reachable yet may still start.
    async fn wait_until_verified(&self) -> Result<(), Error> {
        let mut delay = self.cx.timing.retry_delay;
        loop {
            match registrations::verify_token(&self.cx.client, &self.token, &self.system_id).await {
                Err(Error::Unreachable(message)) => warn!("{message}; retrying"),
                other => return other,
            }
            sleep(delay).await;
            delay = (delay * 2).min(self.cx.timing.max_retry_delay);
        }
    }

    /// Starts a job.
    fn start_job(&mut self, job: Job, permit: tokio::sync::OwnedSemaphorePermit) {
        let (cx, interrupt) = (Arc::clone(&self.cx), self.interrupt.subscribe());
        let (slots, stopping) = (Arc::clone(&self.slots), Arc::clone(&self.stopping));
        let Some(slot) = Slot::acquire(slots, job.id) else {
            error!(job.id = job.id, "the server sent a job that is already running here; ignoring it");
            return;
        };
        self.jobs.spawn(async move {
            run_job(cx, job, slot.number, interrupt, stopping).await;
            drop((slot, permit));
        });
    }

    /// Reports a job that cannot be parsed as failed, if at least its id and token can be read.
    async fn reject_job(&self, body: &[u8]) {
        #[derive(serde::Deserialize)]
        struct JobIdentity {
            id: u64,
            token: String,
        }
        if let Ok(JobIdentity { id, token }) = serde_json::from_slice(body) {
            // If this fails, the server detects the stale job itself.
            let _ = self.cx.client.finish(&JobAuth { id, token }, JobResult::System).await;
        }
    }

    /// Waits for running jobs, then terminates them.
    async fn shut_down(&mut self, grace_period: Duration) {
        self.stopping.store(true, Ordering::Relaxed);
        if self.jobs.is_empty() {
            return;
        }
        info!(jobs = self.jobs.len(), "stopping; waiting up to {} seconds for running jobs", grace_period.as_secs());
        let all = async { while self.jobs.join_next().await.is_some() {} };
        if timeout(grace_period, all).await.is_ok() {
            return;
        }
        warn!(jobs = self.jobs.len(), "terminating running jobs");
        let _ = self.interrupt.send(Some(Interrupt::Stopped));
        // Terminating takes a few seconds and reporting some more; jobs that are not done by then are dropped with
        // their processes.
        let max_wait = self.cx.timing.finish_timeout_at_shutdown + Duration::from_secs(15);
        let all = async { while self.jobs.join_next().await.is_some() {} };
        if timeout(max_wait, all).await.is_err() {
            self.jobs.shutdown().await;
        }
    }
}

/// Runs one job and reports its progress and result to the server.
async fn run_job(
    cx: Arc<RunnerContext>,
    job: Job,
    slot: usize,
    mut stopped: watch::Receiver<Option<Interrupt>>,
    stopping: Arc<AtomicBool>,
) {
    let credentials = JobAuth { id: job.id, token: job.token.clone() };
    let trace = match Trace::new(&cx.private, cx.limits.output) {
        Ok(trace) => Arc::new(trace),
        Err(error) => {
            error!(job.id = job.id, %error, "cannot create a trace file; reporting the job as failed");
            let _ = cx.client.finish(&credentials, JobResult::System).await;
            return;
        }
    };
    info!(job.id = job.id, job.name = job.job_info.name, project.id = job.job_info.project_id, "job started");
    let (interrupt_sender, interrupt_receiver) = watch::channel(None);
    let reporter = Reporter {
        client: cx.client.clone(),
        credentials,
        trace: Arc::clone(&trace),
        interrupt_sender,
        timing: cx.timing,
    };
    let (done_sender, done_receiver) = oneshot::channel();
    let execution = async {
        let result = job_execution::run(&cx, &job, slot, &trace, interrupt_receiver).await;
        let _ = done_sender.send(());
        result
    };
    let shutdown = async {
        if stopped.wait_for(Option::is_some).await.is_ok() {
            reporter.interrupt(Interrupt::Stopped);
        }
        std::future::pending::<()>().await;
    };
    let both = async { tokio::join!(execution, reporter.report_until_done(done_receiver)) };
    let (result, sent) = tokio::select! {
        both = both => both,
        () = shutdown => return,
    };
    let Some(result) = result else {
        info!(job.id = job.id, "job interrupted; no result is reported");
        return;
    };
    info!(job.id = job.id, ending = ?result, "job finished");
    // A shutdown limits the time spent on a server that is unavailable.
    let shutdown_deadline = async {
        while !stopping.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(500)).await;
        }
        sleep(cx.timing.finish_timeout_at_shutdown).await;
    };
    tokio::select! { () = reporter.finish(sent, result, cx.timing.finish_timeout) => {} () = shutdown_deadline => {} }
}

type Slots = Arc<Mutex<Vec<Option<u64>>>>;

/// A number that no other running job of this runner has.
struct Slot {
    slots: Slots,
    number: usize,
}

impl Slot {
    /// Acquires a slot for a job, unless the job already has one.
    fn acquire(slots: Slots, job: u64) -> Option<Self> {
        let mut used = slots.lock().unwrap_or_else(PoisonError::into_inner);
        if used.contains(&Some(job)) {
            return None;
        }
        let number = used.iter().position(Option::is_none)?;
        used[number] = Some(job);
        drop(used);
        Some(Self { slots, number })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)[self.number] = None;
    }
}
