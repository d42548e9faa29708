//! The dispatcher: leases due queues, sends their deliveries and reports the results.
//!
//! Each queue is processed by its own task, so a slow receiver does not delay others. The number of active queues is
//! limited in total, per receiver, per project, and for queues whose last attempt failed.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use forge::{
    Forge,
    deliveries::{
        self, AttemptReport, BatchResults, Capacity, HookTarget, LeasedQueue, OutgoingDelivery, ReleasedQueue,
    },
};
use model::{
    HookId, ProjectId, Time,
    hooks::{AttemptOutcome, DeliveryAttempt},
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{sleep, sleep_until, timeout},
};
use tracing::error;

use crate::Client;

/// The maximum time between two batches; other processes may add events without notifying this one.
const MAX_IDLE: Duration = Duration::from_secs(1);
/// How long a worker starts new deliveries. Together with [`SEND_TIMEOUT`] this is shorter than the lease of a queue.
const MAX_WORKER_TIME: Duration = Duration::from_secs(25);
/// The timeout of a delivery, independent of those of the transport.
const SEND_TIMEOUT: Duration = Duration::from_secs(20);
/// How long active workers may continue after the dispatcher was asked to stop.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// The maximum number of failed attempts to save the last results before stopping.
const MAX_SAVE_ATTEMPTS: u32 = 3;
/// The maximum number of worker messages per batch.
const MAX_MESSAGES: usize = 1024;

/// Sends deliveries to receivers.
pub trait Transport: Clone + Send + Sync + 'static {
    /// Sends a delivery and waits for the response.
    fn send(&self, target: &HookTarget, delivery: &OutgoingDelivery) -> impl Future<Output = DeliveryAttempt> + Send;
}

impl Transport for Client {
    async fn send(&self, target: &HookTarget, delivery: &OutgoingDelivery) -> DeliveryAttempt {
        Self::send(self, target, delivery).await
    }
}

/// Limits on concurrent work.
#[derive(Clone, Copy, Debug)]
pub struct DispatcherLimits {
    /// The maximum number of active queues.
    pub queues: usize,
    /// The maximum number of active queues per receiver.
    pub per_receiver: usize,
    /// The maximum number of active queues per project.
    pub per_project: usize,
    /// The maximum number of active queues whose last attempt failed.
    pub failing: usize,
    /// The maximum size of all payloads in memory, in bytes.
    pub bytes: usize,
}

impl Default for DispatcherLimits {
    fn default() -> Self {
        Self { queues: 256, per_receiver: 16, per_project: 32, failing: 64, bytes: 32 << 20 }
    }
}

/// Dispatches deliveries until `stop` is set. Active workers then have a few seconds to finish; what is not delivered by
/// then stays in the queues.
pub async fn run(forge: Forge, transport: impl Transport, limits: DispatcherLimits, mut stop: watch::Receiver<bool>) {
    let (sender, mut inbox) = mpsc::unbounded_channel();
    let mut dispatcher = Dispatcher {
        forge,
        transport,
        limits,
        stop: stop.clone(),
        sender,
        tasks: JoinSet::new(),
        active: HashMap::new(),
    };
    let mut buffer = ResultBuffer::default();
    let mut received = Vec::new();
    while !*stop.borrow_and_update() {
        let capacity = dispatcher.capacity();
        let wait = match buffer.next_batch(&dispatcher.forge, capacity).await {
            Ok(batch) => {
                for queue in batch.queues {
                    dispatcher.spawn_worker(queue);
                }
                batch.next_due_at.map_or(MAX_IDLE, |due_at| idle_time(due_at, dispatcher.forge.now()))
            }
            Err(error) => {
                error!(%error, "cannot record or load webhook deliveries; retrying");
                sleep(MAX_IDLE).await;
                Duration::ZERO
            }
        };
        if buffer.has_results() {
            continue;
        }
        tokio::select! {
            _ = inbox.recv_many(&mut received, MAX_MESSAGES) => {}
            () = deliveries::wait_for_wakeup(&dispatcher.forge) => {}
            () = sleep(wait) => {}
            _ = stop.changed() => {}
        }
        dispatcher.collect(&mut received, &mut buffer);
    }
    dispatcher.stop(inbox, buffer).await;
}

/// Returns the time until `due_at`, at most [`MAX_IDLE`].
fn idle_time(due_at: Time, now: Time) -> Duration {
    Duration::try_from(due_at.duration_since(now)).unwrap_or_default().min(MAX_IDLE)
}

/// A message from a worker to the dispatcher.
enum WorkerMessage {
    /// An attempt has finished.
    Attempted(AttemptReport),
    /// The worker has stopped.
    Finished(ReleasedQueue),
}

/// Results that have not been saved yet.
#[derive(Default)]
struct ResultBuffer {
    results: BatchResults,
    /// Results whose transaction failed.
    unsaved: Option<Arc<BatchResults>>,
}

impl ResultBuffer {
    /// Saves the results and returns the next batch. Results whose transaction failed are saved first.
    async fn next_batch(&mut self, forge: &Forge, capacity: Capacity) -> forge::Result<deliveries::Batch> {
        let results = self.unsaved.take().unwrap_or_else(|| Arc::new(std::mem::take(&mut self.results)));
        let batch = deliveries::next_batch(forge, Arc::clone(&results), capacity).await;
        if batch.is_err() && !results.is_empty() {
            self.unsaved = Some(results);
        }
        batch
    }

    fn has_results(&self) -> bool {
        self.unsaved.is_some() || !self.results.is_empty()
    }
}

/// What an active queue uses of the limits.
struct ActiveQueue {
    project: Option<ProjectId>,
    receiver: String,
    failing: bool,
    bytes: usize,
}

struct Dispatcher<T> {
    forge: Forge,
    transport: T,
    limits: DispatcherLimits,
    stop: watch::Receiver<bool>,
    sender: mpsc::UnboundedSender<WorkerMessage>,
    tasks: JoinSet<()>,
    active: HashMap<HookId, ActiveQueue>,
}

impl<T: Transport> Dispatcher<T> {
    /// Returns what is left of the limits.
    fn capacity(&self) -> Capacity {
        let (mut busy_receivers, mut busy_projects) = (HashMap::new(), HashMap::new());
        let (mut failing, mut bytes) = (0, 0_usize);
        for queue in self.active.values() {
            *busy_receivers.entry(queue.receiver.clone()).or_default() += 1;
            if let Some(project) = queue.project {
                *busy_projects.entry(project).or_default() += 1;
            }
            failing += usize::from(queue.failing);
            bytes = bytes.saturating_add(queue.bytes);
        }
        Capacity {
            queues: self.limits.queues.saturating_sub(self.active.len()),
            failing: self.limits.failing.saturating_sub(failing),
            bytes: self.limits.bytes.saturating_sub(bytes),
            busy_receivers,
            max_per_receiver: self.limits.per_receiver,
            busy_projects,
            max_per_project: self.limits.per_project,
        }
    }

    /// Spawns a worker that processes a queue.
    fn spawn_worker(&mut self, queue: LeasedQueue) {
        let bytes = queue.deliveries.iter().map(|delivery| delivery.body.len()).sum();
        let (project, receiver) = (queue.project, queue.receiver.clone());
        self.active.insert(queue.hook, ActiveQueue { project, receiver, failing: queue.failing, bytes });
        let (forge, transport, stop) = (self.forge.clone(), self.transport.clone(), self.stop.clone());
        let released = ReleasedQueue { hook: queue.hook, leased_until: queue.leased_until };
        let worker = QueueWorker { sender: self.sender.clone(), released };
        self.tasks.spawn(async move { worker.process(&forge, &transport, queue, &stop).await });
    }

    /// Moves the content of worker messages into the buffer.
    fn collect(&mut self, received: &mut Vec<WorkerMessage>, buffer: &mut ResultBuffer) {
        while self.tasks.try_join_next().is_some() {}
        for message in received.drain(..) {
            match message {
                WorkerMessage::Attempted(report) => buffer.results.attempts.push(report),
                WorkerMessage::Finished(released) => {
                    self.active.remove(&released.hook);
                    buffer.results.released.push(released);
                }
            }
        }
    }

    /// Waits for active workers, aborts those that take too long, and saves the last results.
    async fn stop(mut self, mut inbox: mpsc::UnboundedReceiver<WorkerMessage>, mut buffer: ResultBuffer) {
        let deadline = tokio::time::Instant::now() + SHUTDOWN_GRACE;
        let all_finished = async { while self.tasks.join_next().await.is_some() {} };
        tokio::select! {
            () = all_finished => {}
            () = sleep_until(deadline) => {}
        }
        self.tasks.shutdown().await;
        let mut received = Vec::new();
        while let Ok(message) = inbox.try_recv() {
            received.push(message);
        }
        self.collect(&mut received, &mut buffer);
        let mut failures = 0;
        while buffer.has_results() && failures < MAX_SAVE_ATTEMPTS {
            if let Err(error) = buffer.next_batch(&self.forge, Capacity::none()).await {
                failures += 1;
                error!(%error, "cannot record webhook deliveries; delivered ones may be sent again");
                sleep(MAX_IDLE).await;
            }
        }
    }
}

/// Processes one queue. Dropping it, also by a panic, reports that it has finished.
struct QueueWorker {
    sender: mpsc::UnboundedSender<WorkerMessage>,
    released: ReleasedQueue,
}

impl QueueWorker {
    /// Sends one delivery after the other, until one has to be retried.
    async fn process(
        self,
        forge: &Forge,
        transport: &impl Transport,
        queue: LeasedQueue,
        stop: &watch::Receiver<bool>,
    ) {
        let start = Instant::now();
        for delivery in &queue.deliveries {
            if *stop.borrow() || start.elapsed() > MAX_WORKER_TIME {
                return;
            }
            let attempt = attempt(forge, transport, &queue.target, delivery).await;
            let continues = deliveries::continues_after(&attempt.outcome);
            let report = AttemptReport { hook: queue.hook, delivery: delivery.id, attempt };
            if self.sender.send(WorkerMessage::Attempted(report)).is_err() || !continues {
                return;
            }
        }
    }
}

impl Drop for QueueWorker {
    fn drop(&mut self) {
        // Fails only if the dispatcher is gone.
        let _ = self.sender.send(WorkerMessage::Finished(self.released));
    }
}

/// Sends a delivery. The start time is that of the forge's clock.
async fn attempt(
    forge: &Forge,
    transport: &impl Transport,
    target: &HookTarget,
    delivery: &OutgoingDelivery,
) -> DeliveryAttempt {
    let (started_at, start) = (forge.now(), Instant::now());
    let Ok(attempt) = timeout(SEND_TIMEOUT, transport.send(target, delivery)).await else {
        let duration = i64::try_from(start.elapsed().as_micros()).unwrap_or(i64::MAX);
        let outcome = AttemptOutcome::Unreachable("timed out".to_owned());
        return DeliveryAttempt { started_at, duration, url: String::new(), signed: target.token.is_some(), outcome };
    };
    DeliveryAttempt { started_at, ..attempt }
}
