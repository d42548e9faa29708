//! The rounds of a runner: it asks for jobs, has them done, and ends them in good order when it has to stop.

use std::{
    fs::{self, DirBuilder, File, TryLockError},
    io,
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
    Connection, Error, Options, Pace,
    caches::Caches,
    client::{self, Client, Unreachable},
    folders,
    isolation::{Cage, Program},
    processes::{self, Interrupt},
    protocol::{Badge, Ending, Job},
    registrations,
    reports::Reporter,
    trace::Trace,
    work::{self, Workshop},
};

/// Between two questions in any case, however much is going on at the server.
const LEAST_PAUSE: Duration = Duration::from_millis(300);
/// After the server has said that it does not know the runner.
const UNWANTED: Duration = Duration::from_secs(60);

/// A runner that is ready to take jobs: its folder is its own, and it is known how jobs are kept apart.
pub struct Runner {
    options: Options,
    folder: OwnFolder,
    cage: Cage,
}

/// Makes a runner ready, or says why it must not run jobs here.
pub async fn prepare(options: Options) -> Result<Runner, Error> {
    let path = options.folder.clone();
    let folder = tokio::task::spawn_blocking(move || prepare_folder(&path)).await;
    let folder = folder.map_err(|error| Error::Setup(error.to_string()))??;
    let mut hidden = options.hidden.clone();
    hidden.push(folder.path.clone());
    let cage = Cage::choose(&options, &folder.path.join("builds"), &hidden).await?;
    Ok(Runner { options, folder, cage })
}

impl Runner {
    /// Runs jobs until told to stop. Then no new one is taken, those under way have the grace to end, and those that
    /// have not are ended and told as failed.
    pub async fn run(self, connection: Connection, stop: watch::Receiver<bool>) -> Result<(), Error> {
        let Self { options, folder, cage } = self;
        let workshop = Arc::new(Workshop {
            client: Client::new(&connection.url)?,
            cage,
            shell: Program::shell(),
            builds: folder.path.join("builds"),
            private: folder.path.join("private"),
            caches: Caches::new(folder.path.join("cache"), options.limits.caches),
            limits: options.limits,
            pace: options.pace,
            clone_from: connection.clone_from,
            resumes: options.resumes,
            ignore_image: options.ignore_image,
            name: options.name.clone(),
        });
        let mut rounds = Rounds {
            workshop,
            system: folder.system.clone(),
            token: connection.token,
            stop,
            jobs: JoinSet::new(),
            places: Arc::new(Semaphore::new(options.concurrency.max(1))),
            slots: Arc::new(Mutex::new(vec![None; options.concurrency.max(1)])),
            interrupt: Arc::new(watch::channel(None).0),
            stopping: Arc::new(AtomicBool::new(false)),
        };
        rounds.until_stopped().await?;
        rounds.end(options.grace).await;
        drop(folder);
        Ok(())
    }
}

/// The folder of a runner, which belongs to it alone.
struct OwnFolder {
    path: std::path::PathBuf,
    /// By which the server tells apart two machines with the same token.
    system: String,
    _lock: File,
}

fn prepare_folder(path: &Path) -> Result<OwnFolder, Error> {
    let failed = |error: io::Error| Error::Setup(format!("cannot use the folder {}: {error}", path.display()));
    // Another user may have to pass through, but not to look around.
    DirBuilder::new().recursive(true).mode(0o711).create(path).map_err(failed)?;
    let path = path.canonicalize().map_err(failed)?;
    let lock = File::options().write(true).create(true).truncate(false).open(path.join("lock")).map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let words = format!("another runner works in the folder {}; give this one its own", path.display());
            return Err(Error::Setup(words));
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    // Whoever was here before may have been killed in the middle of its jobs.
    processes::sweep(&path.join("builds"));
    for (name, mode) in [("builds", 0o711), ("private", 0o700), ("cache", 0o700)] {
        let inner = path.join(name);
        if name != "cache" {
            folders::remove(&inner).map_err(failed)?;
        }
        DirBuilder::new().recursive(true).mode(mode).create(&inner).map_err(failed)?;
    }
    let system = path.join("system-id");
    let known = fs::read_to_string(&system).ok().map(|text| text.trim().to_owned());
    let system = if let Some(known) = known.filter(|text| !text.is_empty()) {
        known
    } else {
        let made = format!("r_{}", &client::random().map_err(failed)?[..12]);
        fs::write(&system, format!("{made}\n")).map_err(failed)?;
        made
    };
    Ok(OwnFolder { path, system, _lock: lock })
}

struct Rounds {
    workshop: Arc<Workshop>,
    system: String,
    token: String,
    stop: watch::Receiver<bool>,
    jobs: JoinSet<()>,
    places: Arc<Semaphore>,
    /// Which job has which of the numbers that jobs see.
    slots: Slots,
    interrupt: Arc<watch::Sender<Option<Interrupt>>>,
    stopping: Arc<AtomicBool>,
}

impl Rounds {
    async fn until_stopped(&mut self) -> Result<(), Error> {
        let mut stop = self.stop.clone();
        let stopped = async move { drop(stop.wait_for(|stop| *stop).await) };
        tokio::pin!(stopped);
        tokio::select! {
            () = &mut stopped => return Ok(()),
            known = self.introduce() => known?,
        }
        let mut last_update = String::new();
        let mut pause = Duration::ZERO;
        loop {
            while self.jobs.try_join_next().is_some() {}
            let place = async {
                sleep(pause).await;
                Arc::clone(&self.places).acquire_owned().await
            };
            let place = tokio::select! {
                biased;
                () = &mut stopped => return Ok(()),
                place = place => place.map_err(|error| Error::Setup(error.to_string()))?,
            };
            let begun = Instant::now();
            let asked = self.workshop.client.request(&self.token, &self.system, &last_update);
            let heard = tokio::select! {
                // A job that was handed out a moment before the stop is ours.
                biased;
                heard = asked => heard,
                () = &mut stopped => return Ok(()),
            };
            let Pace { poll, retry, longest_pause, .. } = self.workshop.pace;
            let longer = (pause * 2).clamp(retry, longest_pause.max(retry));
            pause = match heard {
                Ok(answer) if answer.status == StatusCode::CREATED => {
                    match serde_json::from_slice::<Job>(&answer.body) {
                        Ok(job) => {
                            self.take(job, place);
                            Duration::ZERO
                        }
                        Err(error) => {
                            // Only where: what stands there may be a token.
                            let place = error.column();
                            error!(place, "the server hands out a job that cannot be read");
                            self.give_back(&answer.body).await;
                            longer
                        }
                    }
                }
                Ok(answer) if answer.status == StatusCode::NO_CONTENT => {
                    let update = answer.header("x-gitlab-last-update").unwrap_or_default().to_owned();
                    // A server that told a new moment holds the next question until there is another one.
                    let news = !update.is_empty() && update != last_update;
                    last_update = update;
                    if news { LEAST_PAUSE.min(poll) } else { poll.saturating_sub(begun.elapsed()) }
                }
                Ok(answer) if answer.status == StatusCode::CONFLICT => LEAST_PAUSE.min(poll),
                Ok(answer) if matches!(answer.status, StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED) => {
                    warn!("{}", registrations::unknown_runner());
                    UNWANTED
                }
                Ok(answer) => {
                    warn!(status = %answer.status, "the server does not hand out jobs; asking again");
                    longer
                }
                Err(Unreachable(reason)) => {
                    warn!(reason, "the server cannot be reached; asking again");
                    longer
                }
            };
        }
    }

    /// Waits for a server that knows this runner; one that is not there yet may still come.
    async fn introduce(&self) -> Result<(), Error> {
        let mut pause = self.workshop.pace.retry;
        loop {
            match registrations::check(&self.workshop.client, &self.token, &self.system).await {
                Err(Error::Unreachable(sentence)) => warn!("{sentence}; trying again"),
                other => return other,
            }
            sleep(pause).await;
            pause = (pause * 2).min(self.workshop.pace.longest_pause);
        }
    }

    /// Has a job done.
    fn take(&mut self, job: Job, place: tokio::sync::OwnedSemaphorePermit) {
        let (workshop, interrupt) = (Arc::clone(&self.workshop), self.interrupt.subscribe());
        let (slots, stopping) = (Arc::clone(&self.slots), Arc::clone(&self.stopping));
        let Some(slot) = Slot::take(slots, job.id) else {
            error!(job.id = job.id, "the server hands out a job that is under way here; it is done once");
            return;
        };
        self.jobs.spawn(async move {
            one_job(workshop, job, slot.number, interrupt, stopping).await;
            drop((slot, place));
        });
    }

    /// Tells the server that a job cannot be done by this runner, if that much of it can be read.
    async fn give_back(&self, body: &[u8]) {
        #[derive(serde::Deserialize)]
        struct Least {
            id: u64,
            token: String,
        }
        if let Ok(Least { id, token }) = serde_json::from_slice(body) {
            // If it is not heard, the server finds out by itself.
            let _ = self.workshop.client.finish(&Badge { id, token }, Ending::System).await;
        }
    }

    /// Waits for jobs under way, then ends them.
    async fn end(&mut self, grace: Duration) {
        self.stopping.store(true, Ordering::Relaxed);
        if self.jobs.is_empty() {
            return;
        }
        info!(jobs = self.jobs.len(), "stopping: jobs under way may take {} more seconds", grace.as_secs());
        let all = async { while self.jobs.join_next().await.is_some() {} };
        if timeout(grace, all).await.is_ok() {
            return;
        }
        warn!(jobs = self.jobs.len(), "jobs under way are ended");
        let _ = self.interrupt.send(Some(Interrupt::Stopped));
        // Ending takes a few seconds, telling it some more; whoever is not done by then is dropped with its programs.
        let most = self.workshop.pace.patience_at_stop + Duration::from_secs(15);
        let all = async { while self.jobs.join_next().await.is_some() {} };
        if timeout(most, all).await.is_err() {
            self.jobs.shutdown().await;
        }
    }
}

/// Does one job and tells the server how it goes.
async fn one_job(
    workshop: Arc<Workshop>,
    job: Job,
    slot: usize,
    mut stopped: watch::Receiver<Option<Interrupt>>,
    stopping: Arc<AtomicBool>,
) {
    let badge = Badge { id: job.id, token: job.token.clone() };
    let trace = match Trace::new(&workshop.private, workshop.limits.output) {
        Ok(trace) => Arc::new(trace),
        Err(error) => {
            error!(job.id = job.id, %error, "cannot keep a trace; the job is told as failed");
            let _ = workshop.client.finish(&badge, Ending::System).await;
            return;
        }
    };
    info!(job.id = job.id, job.name = job.job_info.name, project.id = job.job_info.project_id, "a job begins");
    let (tell, told) = watch::channel(None);
    let reporter =
        Reporter { client: workshop.client.clone(), badge, trace: Arc::clone(&trace), tell, pace: workshop.pace };
    let (done, is_done) = oneshot::channel();
    let working = async {
        let ending = work::run(&workshop, &job, slot, &trace, told).await;
        let _ = done.send(());
        ending
    };
    let forwarding = async {
        if stopped.wait_for(Option::is_some).await.is_ok() {
            reporter.interrupt(Interrupt::Stopped);
        }
        std::future::pending::<()>().await;
    };
    let both = async { tokio::join!(working, reporter.keep_telling(is_done)) };
    let (ending, sent) = tokio::select! {
        both = both => both,
        () = forwarding => return,
    };
    let Some(ending) = ending else {
        info!(job.id = job.id, "a job was ended by the server");
        return;
    };
    info!(job.id = job.id, ?ending, "a job has ended");
    // A stop cuts a long wait for a server that is away.
    let cut = async {
        while !stopping.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(500)).await;
        }
        sleep(workshop.pace.patience_at_stop).await;
    };
    tokio::select! { () = reporter.finish(sent, ending, workshop.pace.patience) => {} () = cut => {} }
}

type Slots = Arc<Mutex<Vec<Option<u64>>>>;

/// A number that no other job of this runner has at the same time.
struct Slot {
    slots: Slots,
    number: usize,
}

impl Slot {
    /// A number for a job, unless it has one already.
    fn take(slots: Slots, job: u64) -> Option<Self> {
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
