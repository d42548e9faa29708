//! What both ways of talking share: the forge, the cache, and how much may go on at once.

use std::{sync::Arc, time::Duration};

use files::spool::Spools;
use forge::Forge;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// How much may go on at once, and for how long.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How many programs may send packs at once.
    pub fetches: usize,
    /// How many packs may be taken in at once.
    pub pushes: usize,
    /// How long a client waits for its turn before it is told to come back.
    pub wait: Duration,
    /// How long one fetch or push may take in all.
    pub time: Duration,
    /// How long a client may take nothing of what is sent to it.
    pub stall: Duration,
    /// How long a client may send nothing; its git may be busy making a pack.
    pub quiet: Duration,
    /// How much memory a program may use for its data, in bytes.
    pub memory: u64,
    /// How large a request for a fetch may be once it is unpacked, in bytes.
    pub fetch_request: u64,
    /// How large a pack may be that is pushed, in bytes.
    pub pack: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fetches: 16,
            pushes: 16,
            wait: Duration::from_secs(30),
            time: Duration::from_secs(2 * 60 * 60),
            stall: Duration::from_secs(60),
            quiet: Duration::from_secs(10 * 60),
            memory: 2 << 30,
            fetch_request: 64 << 20,
            pack: None,
        }
    }
}

/// What both ways of talking share; cheap to clone.
#[derive(Clone)]
pub struct Transfers(Arc<Inner>);

struct Inner {
    forge: Forge,
    spools: Spools,
    limits: Limits,
    fetches: Arc<Semaphore>,
    pushes: Arc<Semaphore>,
}

/// Leave to start a program; given back when it is dropped.
pub(crate) struct Turn(#[expect(dead_code, reason = "held, not looked at")] OwnedSemaphorePermit);

/// So much is going on that no turn came.
#[derive(Debug)]
pub(crate) struct Busy;

impl Transfers {
    /// The transfers of a forge.
    pub fn new(forge: Forge, spools: Spools, limits: Limits) -> Self {
        let (fetches, pushes) = (Arc::new(Semaphore::new(limits.fetches)), Arc::new(Semaphore::new(limits.pushes)));
        Self(Arc::new(Inner { forge, spools, limits, fetches, pushes }))
    }

    pub(crate) fn forge(&self) -> &Forge {
        &self.0.forge
    }

    pub(crate) fn spools(&self) -> &Spools {
        &self.0.spools
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// Waits for a turn to send something.
    pub(crate) async fn fetch_turn(&self) -> Result<Turn, Busy> {
        self.turn(&self.0.fetches, "fetch").await
    }

    /// Waits for a turn to take something in.
    pub(crate) async fn push_turn(&self) -> Result<Turn, Busy> {
        self.turn(&self.0.pushes, "push").await
    }

    async fn turn(&self, places: &Arc<Semaphore>, service: &'static str) -> Result<Turn, Busy> {
        let waiting = timeout(self.0.limits.wait, Arc::clone(places).acquire_owned());
        if let Ok(Ok(permit)) = waiting.await {
            return Ok(Turn(permit));
        }
        metrics::counter!("gable_git_turned_away_total", "service" => service).increment(1);
        Err(Busy)
    }
}
