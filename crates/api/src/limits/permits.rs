//! Concurrency limits: permits in total and per client network.

use std::{net::IpAddr, sync::Arc, time::Duration};

use forge::weak_map::WeakMap;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

/// The permits for one kind of work.
pub(crate) struct PermitPool {
    total: Arc<Semaphore>,
    per_network: usize,
    max_wait: Duration,
    /// The permits of each client network that holds or awaits some.
    networks: WeakMap<IpAddr, Semaphore>,
}

/// One or several permits, released on drop.
pub(crate) struct Permit(
    #[expect(dead_code, reason = "held until dropped")] (OwnedSemaphorePermit, OwnedSemaphorePermit),
);

/// Why a permit was not available in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolExhausted {
    /// The client network holds its maximum.
    PerNetwork,
    /// All permits are held.
    Total,
}

impl PermitPool {
    /// Creates a pool with this many permits in total and per client network, and a maximum wait.
    pub(crate) fn new(total: usize, per_network: usize, max_wait: Duration) -> Self {
        Self { total: Arc::new(Semaphore::new(total)), per_network, max_wait, networks: WeakMap::default() }
    }

    /// Waits for a permit. The permit of the network comes first, so a waiting network does not block others.
    pub(crate) async fn acquire(&self, network: IpAddr) -> Result<Permit, PoolExhausted> {
        self.acquire_many(network, 1).await
    }

    /// Waits for several permits at once; `count` is clamped to the maximum of one network.
    pub(crate) async fn acquire_many(&self, network: IpAddr, count: usize) -> Result<Permit, PoolExhausted> {
        let (deadline, count) = (Instant::now() + self.max_wait, self.clamp(count));
        let own = self.network_permits(network).acquire_many_owned(count);
        let Ok(Ok(own)) = timeout_at(deadline, own).await else { return Err(PoolExhausted::PerNetwork) };
        let total = Arc::clone(&self.total).acquire_many_owned(count);
        let Ok(Ok(total)) = timeout_at(deadline, total).await else { return Err(PoolExhausted::Total) };
        Ok(Permit((own, total)))
    }

    /// Takes several permits if they are available now.
    pub(crate) fn try_acquire_many(&self, network: IpAddr, count: usize) -> Result<Permit, PoolExhausted> {
        let count = self.clamp(count);
        let own = self.network_permits(network).try_acquire_many_owned(count).map_err(|_| PoolExhausted::PerNetwork)?;
        let total = Arc::clone(&self.total).try_acquire_many_owned(count).map_err(|_| PoolExhausted::Total)?;
        Ok(Permit((own, total)))
    }

    fn clamp(&self, count: usize) -> u32 {
        u32::try_from(count.min(self.per_network.max(1))).unwrap_or(u32::MAX)
    }

    fn network_permits(&self, network: IpAddr) -> Arc<Semaphore> {
        self.networks.get_or_create(network, || Semaphore::new(self.per_network))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_network_cannot_take_all_permits() {
        let pool = PermitPool::new(3, 2, Duration::from_secs(10));
        let network = |text: &str| text.parse::<IpAddr>().expect("an address");
        let (here, there) = (network("192.0.2.1"), network("192.0.2.2"));
        let held = (pool.acquire(here).await.expect("free"), pool.acquire(here).await.expect("free"));
        assert_eq!(pool.acquire(here).await.err(), Some(PoolExhausted::PerNetwork));
        let other = pool.acquire(there).await.expect("free");
        assert_eq!(pool.acquire(there).await.err(), Some(PoolExhausted::Total));
        drop(held);
        let again = pool.acquire(here).await.expect("free again");
        drop((other, again));
        assert_eq!(pool.total.available_permits(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn several_permits_are_acquired_and_released_together() {
        let pool = PermitPool::new(10, 6, Duration::from_secs(10));
        let network = |text: &str| text.parse::<IpAddr>().expect("an address");
        let (here, there) = (network("192.0.2.1"), network("192.0.2.2"));
        let held = pool.acquire_many(here, 4).await.expect("free");
        assert_eq!(pool.try_acquire_many(here, 3).err(), Some(PoolExhausted::PerNetwork));
        assert_eq!(pool.acquire_many(here, 3).await.err(), Some(PoolExhausted::PerNetwork));
        // More than the maximum of one network is clamped to it.
        let clamped = pool.acquire_many(there, 1000).await.expect("free");
        assert_eq!(pool.try_acquire_many(network("192.0.2.3"), 1).err(), Some(PoolExhausted::Total));
        drop(held);
        assert!(pool.try_acquire_many(here, 4).is_ok());
        drop(clamped);
        assert_eq!(pool.total.available_permits(), 10);
    }
}
