//! Limits the pages that one client network has rendered at the same time, so that it cannot occupy all blocking threads.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use model::addresses::client_network;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// The maximum number of concurrent pages of a client network that take long.
const MAX_PER_NETWORK: usize = 8;
/// How long a request waits for others of its network.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The pages that are rendered, by client network.
#[derive(Clone, Default)]
pub(crate) struct PagePermits(Arc<Mutex<HashMap<IpAddr, Arc<Semaphore>>>>);

/// A permit to render a page; released when dropped.
pub(crate) struct PagePermit {
    permits: PagePermits,
    network: IpAddr,
    permit: Option<OwnedSemaphorePermit>,
}

impl PagePermits {
    /// Waits for a permit; `None` if other requests of the network take too long.
    pub(crate) async fn acquire(&self, address: IpAddr) -> Option<PagePermit> {
        let network = client_network(address);
        let mut permit = PagePermit { permits: self.clone(), network, permit: None };
        let semaphore =
            Arc::clone(self.lock().entry(network).or_insert_with(|| Arc::new(Semaphore::new(MAX_PER_NETWORK))));
        permit.permit = Some(timeout(MAX_WAIT, semaphore.acquire_owned()).await.ok()?.ok()?);
        Some(permit)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Arc<Semaphore>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PagePermit {
    fn drop(&mut self) {
        self.permit = None;
        let mut networks = self.permits.lock();
        // Only the map still refers to a semaphore that nobody uses or waits for.
        if networks.get(&self.network).is_some_and(|semaphore| Arc::strong_count(semaphore) == 1) {
            networks.remove(&self.network);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_network_has_a_limited_number_of_pages_at_once() {
        let permits = PagePermits::default();
        let address: IpAddr = "192.0.2.1".parse().expect("an address");
        let mut held = Vec::new();
        for _ in 0..MAX_PER_NETWORK {
            held.push(permits.acquire(address).await.expect("a permit"));
        }
        assert!(permits.acquire(address).await.is_none());
        assert!(permits.acquire("192.0.2.2".parse().expect("an address")).await.is_some());
        held.pop();
        assert!(permits.acquire(address).await.is_some());
        drop(held);
        assert!(permits.lock().is_empty());
    }
}
