//! How much of what takes long may go on at once, and how much of it for one address.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

/// With more addresses than this, those that want nothing any more are forgotten.
const MOST_KEPT: usize = 1024;

/// Places for one kind of work.
pub(crate) struct Places {
    all: Arc<Semaphore>,
    each: usize,
    wait: Duration,
    /// The places of those addresses that have or want some.
    own: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
}

/// A place; free again when it is dropped.
pub(crate) struct Place(
    #[expect(dead_code, reason = "held, not looked at")] (OwnedSemaphorePermit, OwnedSemaphorePermit),
);

/// Why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// The address has as many as it may have.
    Own,
    /// Others have all of them.
    All,
}

impl Places {
    /// So many places in all and for each address; a wait for one ends after a while.
    pub(crate) fn new(all: usize, each: usize, wait: Duration) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), each, wait, own: Mutex::default() }
    }

    /// Waits for a place. Whoever waits for one of their own stands in nobody's way.
    pub(crate) async fn enter(&self, address: IpAddr) -> Result<Place, Full> {
        self.enter_many(address, 1).await
    }

    /// Waits for several places at once; no more than one address may have are ever needed.
    pub(crate) async fn enter_many(&self, address: IpAddr, count: usize) -> Result<Place, Full> {
        let (end, count) = (Instant::now() + self.wait, self.within_bounds(count));
        let own = self.own(address).acquire_many_owned(count);
        let Ok(Ok(own)) = timeout_at(end, own).await else { return Err(Full::Own) };
        let all = Arc::clone(&self.all).acquire_many_owned(count);
        let Ok(Ok(all)) = timeout_at(end, all).await else { return Err(Full::All) };
        Ok(Place((own, all)))
    }

    /// Takes several places if they are free at this moment.
    pub(crate) fn try_enter_many(&self, address: IpAddr, count: usize) -> Result<Place, Full> {
        let count = self.within_bounds(count);
        let own = self.own(address).try_acquire_many_owned(count).map_err(|_| Full::Own)?;
        let all = Arc::clone(&self.all).try_acquire_many_owned(count).map_err(|_| Full::All)?;
        Ok(Place((own, all)))
    }

    fn within_bounds(&self, count: usize) -> u32 {
        u32::try_from(count.min(self.each.max(1))).unwrap_or(u32::MAX)
    }

    fn own(&self, address: IpAddr) -> Arc<Semaphore> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if own.len() > MOST_KEPT {
            own.retain(|_, places| places.strong_count() > 0);
        }
        let places = own.entry(address).or_default();
        places.upgrade().unwrap_or_else(|| {
            let fresh = Arc::new(Semaphore::new(self.each));
            *places = Arc::downgrade(&fresh);
            fresh
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_address_cannot_take_all_places() {
        let places = Places::new(3, 2, Duration::from_secs(10));
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let (here, there) = (address("192.0.2.1"), address("192.0.2.2"));
        let held = (places.enter(here).await.expect("free"), places.enter(here).await.expect("free"));
        assert_eq!(places.enter(here).await.err(), Some(Full::Own));
        let other = places.enter(there).await.expect("free");
        assert_eq!(places.enter(there).await.err(), Some(Full::All));
        drop(held);
        let again = places.enter(here).await.expect("free again");
        drop((other, again));
        assert_eq!(places.all.available_permits(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn several_places_are_taken_and_given_back_together() {
        let places = Places::new(10, 6, Duration::from_secs(10));
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let (here, there) = (address("192.0.2.1"), address("192.0.2.2"));
        let held = places.enter_many(here, 4).await.expect("free");
        assert_eq!(places.try_enter_many(here, 3).err(), Some(Full::Own));
        assert_eq!(places.enter_many(here, 3).await.err(), Some(Full::Own));
        // More than one address may have is as much as it may have.
        let most = places.enter_many(there, 1000).await.expect("free");
        assert_eq!(places.try_enter_many(address("192.0.2.3"), 1).err(), Some(Full::All));
        drop(held);
        assert!(places.try_enter_many(here, 4).is_ok());
        drop(most);
        assert_eq!(places.all.available_permits(), 10);
    }
}
