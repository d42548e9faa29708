//! Wakes up what waits for a change: runners, the task worker, the webhook dispatcher and followers of traces.
//!
//! On the node of a transaction they are woken after the commit. On PostgreSQL the commit also notifies the other nodes,
//! each of which listens on one connection. A notification is a hint: everything that waits also polls.

use std::{
    collections::HashMap,
    fmt::Write as _,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use model::JobId;
use store::{Database, Listener, OpenError};
use tokio::{sync::watch, time};
use tracing::{info, warn};

use crate::{Forge, bridge::Shared, clock::Secrets, traces};

/// How often the clock of the database is measured, which also shows that the connection still works.
const MEASUREMENT_INTERVAL: Duration = Duration::from_secs(3);
/// The first and the longest delay before the next attempt to connect.
const MIN_RECONNECT_DELAY: Duration = Duration::from_millis(100);
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(3);
/// The minimum time between two notifications about the output of one job; a follower that misses one polls.
const TRACE_INTERVAL: Duration = Duration::from_secs(1);
/// The number of jobs above which those without recent output are forgotten.
const MAX_TRACES: usize = 1000;

static NEXT_SENDER: AtomicU64 = AtomicU64::new(0);

/// What a transaction wakes up.
#[derive(Default)]
pub(crate) struct Wakeups {
    /// There are new webhook deliveries.
    pub(crate) deliveries: bool,
    /// A task is to be run now.
    pub(crate) tasks: bool,
    /// Runners may find jobs that they did not find before.
    pub(crate) jobs: bool,
    /// The jobs whose traces have changed.
    pub(crate) traces: Vec<(JobId, TraceChange)>,
}

/// How a trace has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TraceChange {
    /// It has more output.
    Appended,
    /// Its job has ended.
    Ended,
}

impl Wakeups {
    /// Wakes up what waits on this node.
    pub(crate) fn wake(&self, shared: &Shared) {
        if self.deliveries {
            shared.dispatcher_notify.notify_one();
        }
        if self.jobs {
            shared.job_notifier.notify();
        }
        if self.tasks {
            shared.task_notify.notify_one();
        }
    }
}

/// Decides which wake-ups are sent to other nodes. PostgreSQL commits transactions with notifications one after the other, so
/// only those are sent that another node needs.
pub(crate) struct WakeupSender {
    has_other_nodes: bool,
    /// Distinguishes the notifications of this process, which it does not need.
    sender: String,
    /// Whether this process has a task worker and a webhook dispatcher, which need no help from others.
    has_workers: AtomicBool,
    /// When followers of traces were last notified.
    traces: Mutex<HashMap<JobId, Instant>>,
}

impl WakeupSender {
    pub(crate) fn new(database: &Database, secrets: &dyn Secrets) -> Self {
        let mut bytes = [0; 8];
        secrets.fill(&mut bytes);
        Self {
            has_other_nodes: !database.is_single_node(),
            // Several forges of one process, as in tests, may share a source that is not random.
            sender: format!("{:016x}-{:x}", u64::from_be_bytes(bytes), NEXT_SENDER.fetch_add(1, Ordering::Relaxed)),
            has_workers: AtomicBool::new(false),
            traces: Mutex::default(),
        }
    }

    /// Returns the notifications to be sent with a commit.
    pub(crate) fn notifications(&self, wakeups: &Wakeups) -> Vec<String> {
        let mut notifications = Vec::new();
        if !self.has_other_nodes {
            return notifications;
        }
        let mut add = |what: &str| notifications.push(format!("{} {what}", self.sender));
        if wakeups.jobs {
            add("jobs");
        }
        if !self.has_workers.load(Ordering::Relaxed) {
            if wakeups.tasks {
                add("tasks");
            }
            if wakeups.deliveries {
                add("hooks");
            }
        }
        let mut text = String::new();
        for (job, change) in &wakeups.traces {
            if self.is_due(*job, *change) {
                text.clear();
                let _ = write!(text, "trace {job}");
                add(&text);
            }
        }
        notifications
    }

    /// Returns whether other nodes are notified of a change of a trace.
    fn is_due(&self, job: JobId, change: TraceChange) -> bool {
        let mut traces = self.traces.lock().unwrap_or_else(PoisonError::into_inner);
        if change == TraceChange::Ended {
            traces.remove(&job);
            return true;
        }
        if traces.get(&job).is_some_and(|last| last.elapsed() < TRACE_INTERVAL) {
            return false;
        }
        if traces.len() >= MAX_TRACES {
            traces.retain(|_, last| last.elapsed() < TRACE_INTERVAL);
        }
        traces.insert(job, Instant::now());
        true
    }
}

/// Records whether this process has a task worker and a webhook dispatcher; without them, other nodes are notified.
pub fn set_has_workers(forge: &Forge, has_workers: bool) {
    forge.shared().wakeup_sender.has_workers.store(has_workers, Ordering::Relaxed);
}

/// Listens for notifications of other nodes and follows the clock of the database, until `stopped` becomes true. Returns at
/// once on SQLite.
pub async fn listen_until_stopped(forge: Forge, mut stopped: watch::Receiver<bool>) {
    if forge.shared().database.is_single_node() {
        return;
    }
    let mut delay = MIN_RECONNECT_DELAY;
    while !*stopped.borrow() {
        let start = Instant::now();
        tokio::select! {
            ended = listen(&forge) => if let Err(error) = ended {
                warn!(%error, "cannot listen for notifications of the database; waiting runners poll meanwhile");
            },
            _ = stopped.wait_for(|stop| *stop) => return,
        }
        delay = if start.elapsed() > MAX_RECONNECT_DELAY { MIN_RECONNECT_DELAY } else { delay };
        tokio::select! {
            () = time::sleep(delay) => delay = (delay * 2).min(MAX_RECONNECT_DELAY),
            _ = stopped.wait_for(|stop| *stop) => return,
        }
    }
}

/// Listens on one connection until it is lost.
async fn listen(forge: &Forge) -> Result<(), OpenError> {
    let shared = forge.shared();
    let Some(mut listener) = shared.database.listen().await? else { return Ok(()) };
    measure_time(shared, &listener).await?;
    // Notifications were missed before.
    wake_all(shared);
    info!("listening for notifications of the database");
    let mut interval = time::interval(MEASUREMENT_INTERVAL);
    interval.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            payload = listener.next() => {
                let Some(payload) = payload else {
                    warn!("lost the connection that listens for notifications of the database");
                    return Ok(());
                };
                receive(shared, &payload);
            }
            _ = interval.tick() => measure_time(shared, &listener).await?,
        }
    }
}

async fn measure_time(shared: &Shared, listener: &Listener) -> Result<(), OpenError> {
    shared.clock.synchronize(&listener.measure_time().await?);
    Ok(())
}

fn wake_all(shared: &Shared) {
    Wakeups { deliveries: true, tasks: true, jobs: true, traces: Vec::new() }.wake(shared);
    traces::wake_all_followers(shared);
}

/// Wakes up what a notification names. Unknown ones come from another version, and are ignored.
fn receive(shared: &Shared, payload: &str) {
    let Some((sender, what)) = payload.split_once(' ') else { return };
    if sender == shared.wakeup_sender.sender {
        return;
    }
    let wakeups = match what {
        "jobs" => Wakeups { jobs: true, ..Wakeups::default() },
        "tasks" => Wakeups { tasks: true, ..Wakeups::default() },
        "hooks" => Wakeups { deliveries: true, ..Wakeups::default() },
        _ => {
            if let Some(job) = what.strip_prefix("trace ").and_then(|job| job.parse().ok()) {
                traces::wake_followers(shared, job);
            }
            return;
        }
    };
    wakeups.wake(shared);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemSecrets;

    fn sent(sender: &WakeupSender, wakeups: &Wakeups) -> Vec<String> {
        let without_sender = |text: String| text.split_once(' ').expect("a sender").1.to_owned();
        sender.notifications(wakeups).into_iter().map(without_sender).collect()
    }

    #[test]
    fn other_nodes_are_notified_only_of_what_they_need() {
        let database = Database::postgres("postgres://localhost/gable").expect("a URL");
        let sender = WakeupSender::new(&database, &SystemSecrets);
        let all = || Wakeups { deliveries: true, tasks: true, jobs: true, traces: Vec::new() };
        assert_eq!(sent(&sender, &all()), ["jobs", "tasks", "hooks"]);
        sender.has_workers.store(true, Ordering::Relaxed);
        assert_eq!(sent(&sender, &all()), ["jobs"]);
        assert_eq!(sent(&sender, &Wakeups::default()), [] as [&str; 0]);
        let embedded = WakeupSender::new(&Database::sqlite("x"), &SystemSecrets);
        assert_eq!(sent(&embedded, &all()), [] as [&str; 0]);
    }

    #[test]
    fn the_output_of_a_job_is_notified_once_a_second_and_its_end_always() {
        let database = Database::postgres("postgres://localhost/gable").expect("a URL");
        let sender = WakeupSender::new(&database, &SystemSecrets);
        let change = |job, change| Wakeups { traces: vec![(JobId::new(job), change)], ..Wakeups::default() };
        assert_eq!(sent(&sender, &change(7, TraceChange::Appended)), ["trace 7"]);
        assert_eq!(sent(&sender, &change(7, TraceChange::Appended)), [] as [&str; 0]);
        assert_eq!(sent(&sender, &change(8, TraceChange::Appended)), ["trace 8"]);
        assert_eq!(sent(&sender, &change(7, TraceChange::Ended)), ["trace 7"]);
    }
}
