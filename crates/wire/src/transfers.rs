//! State shared by the HTTP and SSH transports: the forge, the clone cache, and the limits on concurrent transfers.

use std::{net::IpAddr, sync::Arc, time::Duration};

use files::spool::Spools;
use forge::{
    Forge,
    downloads::{GENERATION_TIMEOUT, MAX_ARCHIVE_BYTES},
    transport::ChildLimits,
    weak_map::WeakMap,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use model::{ProjectId, addresses::client_network};

/// Limits on the number, duration and size of transfers.
#[derive(Clone, Debug)]
pub struct TransferLimits {
    /// The maximum number of concurrent fetches.
    pub max_fetches: usize,
    /// The maximum number of concurrent pushes.
    pub max_pushes: usize,
    /// How long a client waits for a permit before it is refused.
    pub queue_timeout: Duration,
    /// The maximum duration of a fetch or push.
    pub transfer_timeout: Duration,
    /// How long a client may stop reading.
    pub write_timeout: Duration,
    /// The maximum duration of `git archive --remote`.
    pub archive_timeout: Duration,
    /// The maximum size of an archive sent over SSH, in bytes.
    pub max_archive_bytes: u64,
    /// How long a client may send nothing; its git may be creating a pack.
    pub read_timeout: Duration,
    /// The maximum size of the data segment of a git process, in bytes.
    pub max_memory: u64,
    /// The maximum size of a decompressed fetch request, in bytes.
    pub max_fetch_request_bytes: u64,
    /// The maximum size of a pushed pack, in bytes.
    pub max_pack_bytes: Option<u64>,
}

impl Default for TransferLimits {
    fn default() -> Self {
        Self {
            max_fetches: 16,
            max_pushes: 16,
            queue_timeout: Duration::from_secs(30),
            transfer_timeout: Duration::from_secs(2 * 60 * 60),
            write_timeout: Duration::from_secs(60),
            archive_timeout: GENERATION_TIMEOUT,
            max_archive_bytes: MAX_ARCHIVE_BYTES,
            read_timeout: Duration::from_secs(10 * 60),
            max_memory: ChildLimits::default().memory,
            max_fetch_request_bytes: 64 << 20,
            max_pack_bytes: None,
        }
    }
}

/// State shared by the HTTP and SSH transports; cheap to clone.
#[derive(Clone)]
pub struct Transfers(Arc<Inner>);

struct Inner {
    forge: Forge,
    spools: Spools,
    limits: TransferLimits,
    fetches: Arc<Semaphore>,
    pushes: Arc<Semaphore>,
    /// The semaphores of projects and client networks with transfers.
    semaphores: WeakMap<LimitKey, Semaphore>,
}

/// The permit for one transfer; released when dropped.
pub(crate) struct TransferPermit(#[expect(dead_code, reason = "held until dropped")] [OwnedSemaphorePermit; 3]);

/// The service and the scope to which a limit applies.
type LimitKey = (&'static str, LimitScope);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum LimitScope {
    Project(ProjectId),
    Network(IpAddr),
}

/// Why a permit was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Busy {
    /// The server or the project has its maximum number of transfers.
    Server,
    /// The client network has its maximum number of transfers.
    Client,
}

impl Transfers {
    /// Creates the state for a forge.
    pub fn new(forge: Forge, spools: Spools, limits: TransferLimits) -> Self {
        let (fetches, pushes) =
            (Arc::new(Semaphore::new(limits.max_fetches)), Arc::new(Semaphore::new(limits.max_pushes)));
        Self(Arc::new(Inner { forge, spools, limits, fetches, pushes, semaphores: WeakMap::default() }))
    }

    /// Returns the semaphore of a project or client network; it exists while permits are held or awaited.
    fn semaphore(&self, key: LimitKey, permits: usize) -> Arc<Semaphore> {
        self.0.semaphores.get_or_create(key, || Semaphore::new(permits))
    }

    pub(crate) fn forge(&self) -> &Forge {
        &self.0.forge
    }

    pub(crate) fn spools(&self) -> &Spools {
        &self.0.spools
    }

    pub(crate) fn limits(&self) -> &TransferLimits {
        &self.0.limits
    }

    /// Waits for a permit to fetch from a project.
    pub(crate) async fn acquire_fetch(&self, project: ProjectId, address: IpAddr) -> Result<TransferPermit, Busy> {
        let max = self.0.limits.max_fetches;
        self.acquire(&self.0.fetches, max, "fetch", project, address).await
    }

    /// Waits for a permit to push to a project.
    pub(crate) async fn acquire_push(&self, project: ProjectId, address: IpAddr) -> Result<TransferPermit, Busy> {
        let max = self.0.limits.max_pushes;
        self.acquire(&self.0.pushes, max, "push", project, address).await
    }

    /// Waits for a permit to create an archive over SSH; each client network has one.
    pub(crate) async fn acquire_archive(&self, address: IpAddr) -> Result<OwnedSemaphorePermit, Busy> {
        let semaphore = self.semaphore(("archive", LimitScope::Network(client_network(address))), 1);
        let deadline = Instant::now() + self.0.limits.queue_timeout;
        let Ok(Ok(permit)) = timeout_at(deadline, semaphore.acquire_owned()).await else {
            metrics::counter!("gable_git_rejected_total", "service" => "archive").increment(1);
            return Err(Busy::Client);
        };
        Ok(permit)
    }

    /// Waits for a permit. A project has at most half of the permits and a client network three quarters, so that others are not
    /// starved; many runners may share a network.
    async fn acquire(
        &self,
        server: &Arc<Semaphore>,
        max: usize,
        service: &'static str,
        project: ProjectId,
        address: IpAddr,
    ) -> Result<TransferPermit, Busy> {
        let network = LimitScope::Network(client_network(address));
        let of_network = self.semaphore((service, network), (max * 3).div_ceil(4).max(1));
        let of_project = self.semaphore((service, LimitScope::Project(project)), max.div_ceil(2));
        let deadline = Instant::now() + self.0.limits.queue_timeout;
        let acquire = async |semaphore: Arc<Semaphore>, busy: Busy| {
            if let Ok(Ok(permit)) = timeout_at(deadline, semaphore.acquire_owned()).await {
                return Ok(permit);
            }
            metrics::counter!("gable_git_rejected_total", "service" => service).increment(1);
            Err(busy)
        };
        Ok(TransferPermit([
            acquire(of_network, Busy::Client).await?,
            acquire(of_project, Busy::Server).await?,
            acquire(Arc::clone(server), Busy::Server).await?,
        ]))
    }
}
