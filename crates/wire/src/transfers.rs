//! What both ways of talking share: the forge, the cache, and how much may go on at once.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use files::spool::Spools;
use forge::{
    Forge,
    downloads::{MAKING_TIMEOUT, MOST_ARCHIVE_BYTES},
    transport::ChildLimits,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use crate::neighbourhood::neighbourhood;

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
    /// How long an archive may take in all, and how many bytes it may have.
    pub archive: (Duration, u64),
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
            archive: (MAKING_TIMEOUT, MOST_ARCHIVE_BYTES),
            quiet: Duration::from_secs(10 * 60),
            memory: ChildLimits::default().memory,
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
    /// The places of those projects and addresses that have or want some.
    shares: Mutex<HashMap<Key, Weak<Semaphore>>>,
}

/// Leave to start a program; given back when it is dropped.
pub(crate) struct Turn(#[expect(dead_code, reason = "held, not looked at")] [OwnedSemaphorePermit; 3]);

/// For whom places are counted apart, and for what.
type Key = (&'static str, Sharer);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sharer {
    Project(i64),
    Address(IpAddr),
}

/// Why no turn came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Busy {
    /// So much is going on.
    Everywhere,
    /// The address has as many turns as it may have at once.
    Here,
}

impl Transfers {
    /// The transfers of a forge.
    pub fn new(forge: Forge, spools: Spools, limits: Limits) -> Self {
        let (fetches, pushes) = (Arc::new(Semaphore::new(limits.fetches)), Arc::new(Semaphore::new(limits.pushes)));
        Self(Arc::new(Inner { forge, spools, limits, fetches, pushes, shares: Mutex::default() }))
    }

    fn own_places(&self, key: Key, most: usize) -> Arc<Semaphore> {
        let mut all = self.0.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() > 1024 {
            all.retain(|_, places| places.strong_count() > 0);
        }
        let place = all.entry(key).or_default();
        place.upgrade().unwrap_or_else(|| {
            let places = Arc::new(Semaphore::new(most));
            *place = Arc::downgrade(&places);
            places
        })
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

    /// Waits for a turn to send something of a project to an address.
    pub(crate) async fn fetch_turn(&self, project: i64, address: IpAddr) -> Result<Turn, Busy> {
        let most = self.0.limits.fetches;
        self.turn(&self.0.fetches, most, "fetch", project, address).await
    }

    /// Waits for a turn to take something in for a project from an address.
    pub(crate) async fn push_turn(&self, project: i64, address: IpAddr) -> Result<Turn, Busy> {
        let most = self.0.limits.pushes;
        self.turn(&self.0.pushes, most, "push", project, address).await
    }

    /// Waits for the one archive that an address may have made over SSH at a time.
    pub(crate) async fn archive_turn(&self, address: IpAddr) -> Result<OwnedSemaphorePermit, Busy> {
        let own = self.own_places(("archive", Sharer::Address(neighbourhood(address))), 1);
        let end = Instant::now() + self.0.limits.wait;
        let Ok(Ok(permit)) = timeout_at(end, own.acquire_owned()).await else {
            metrics::counter!("gable_git_turned_away_total", "service" => "archive").increment(1);
            return Err(Busy::Here);
        };
        Ok(permit)
    }

    /// Waits for a place. One project has at most half of them and one address three quarters, so that others get their
    /// turn; many runners may share an address.
    async fn turn(
        &self,
        places: &Arc<Semaphore>,
        most: usize,
        service: &'static str,
        project: i64,
        address: IpAddr,
    ) -> Result<Turn, Busy> {
        let of_address =
            self.own_places((service, Sharer::Address(neighbourhood(address))), (most * 3).div_ceil(4).max(1));
        let of_project = self.own_places((service, Sharer::Project(project)), most.div_ceil(2));
        let end = Instant::now() + self.0.limits.wait;
        let place = async |of: Arc<Semaphore>, busy: Busy| {
            if let Ok(Ok(permit)) = timeout_at(end, of.acquire_owned()).await {
                return Ok(permit);
            }
            metrics::counter!("gable_git_turned_away_total", "service" => service).increment(1);
            Err(busy)
        };
        Ok(Turn([
            place(of_address, Busy::Here).await?,
            place(of_project, Busy::Everywhere).await?,
            place(Arc::clone(places), Busy::Everywhere).await?,
        ]))
    }
}
