//! How many may be connected at once, and how many of them without having proved who they are.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::neighbourhood::neighbourhood;

/// How many at once.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// Connections of all kinds.
    pub connections: usize,
    /// Connections that have not proved who they are.
    pub strangers: usize,
    /// Those of one address.
    pub strangers_per_address: usize,
}

/// Counts who is here.
#[derive(Clone)]
pub(super) struct Counter(Arc<Inner>);

struct Inner {
    places: Places,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    connections: usize,
    strangers: HashMap<IpAddr, usize>,
}

/// A place for a connection; free again when it is dropped.
pub(super) struct Place {
    counter: Counter,
    /// The address of somebody who has not proved who they are.
    stranger: Option<IpAddr>,
}

impl Counter {
    pub(super) fn new(places: Places) -> Self {
        Self(Arc::new(Inner { places, taken: Mutex::default() }))
    }

    /// A place for somebody from this address, if there is one.
    pub(super) fn take(&self, address: IpAddr) -> Option<Place> {
        let address = neighbourhood(address);
        let (places, mut taken) = (self.0.places, self.taken());
        let strangers: usize = taken.strangers.values().sum();
        let own = taken.strangers.get(&address).copied().unwrap_or(0);
        let free = taken.connections < places.connections
            && strangers < places.strangers
            && own < places.strangers_per_address;
        free.then(|| {
            taken.connections += 1;
            taken.strangers.insert(address, own + 1);
            Place { counter: self.clone(), stranger: Some(address) }
        })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Whoever has it has proved who they are.
    pub(super) fn proved(&mut self) {
        let mut taken = self.counter.taken();
        if let Some(address) = self.stranger.take() {
            taken.no_stranger(address);
        }
    }
}

impl Taken {
    fn no_stranger(&mut self, address: IpAddr) {
        if let Some(count) = self.strangers.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.strangers.remove(&address);
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.proved();
        self.counter.taken().connections -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lesson_30_strangers_cannot_take_all_places() {
        let counter = Counter::new(Places { connections: 5, strangers: 3, strangers_per_address: 2 });
        let take = |address: &str| counter.take(address.parse().expect("an address"));
        let mut one = take("192.0.2.1").expect("free");
        let two = take("192.0.2.1").expect("free");
        assert!(take("192.0.2.1").is_none());
        let three = take("2001:db8::1").expect("free");
        assert!(take("192.0.2.9").is_none());
        one.proved();
        let four = take("192.0.2.1").expect("free again");
        drop((two, three));
        let five = take("2001:db8::2").expect("free again");
        let six = take("2001:db8::3").expect("free again");
        assert!(take("192.0.2.7").is_none());
        drop((four, five, six));
        let all: Vec<_> = (1..=4)
            .map(|number| {
                let mut place = take(&format!("192.0.2.{number}")).expect("free");
                place.proved();
                place
            })
            .collect();
        assert!(take("192.0.2.7").is_none());
        drop((one, all));
        assert!(counter.taken().strangers.is_empty() && counter.taken().connections == 0);
    }
}
