//! Limits concurrent SSH connections, and those that are not authenticated yet.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use model::addresses::client_network;

/// The maximum numbers of concurrent connections.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// All connections.
    pub total: usize,
    /// Connections that are not authenticated yet.
    pub unauthenticated: usize,
    /// Connections of one client network that are not authenticated yet.
    pub unauthenticated_per_address: usize,
}

/// Counts open connections.
#[derive(Clone)]
pub(super) struct ConnectionCounter(Arc<Inner>);

struct Inner {
    limits: ConnectionLimits,
    open: Mutex<OpenConnections>,
}

#[derive(Default)]
struct OpenConnections {
    total: usize,
    unauthenticated: HashMap<IpAddr, usize>,
}

/// The permit of an open connection; released when dropped.
pub(super) struct ConnectionPermit {
    counter: ConnectionCounter,
    /// The client network, while the connection is not authenticated.
    unauthenticated_network: Option<IpAddr>,
}

impl ConnectionCounter {
    pub(super) fn new(limits: ConnectionLimits) -> Self {
        Self(Arc::new(Inner { limits, open: Mutex::default() }))
    }

    /// Returns a permit for a connection from this address, unless a limit is reached.
    pub(super) fn try_acquire(&self, address: IpAddr) -> Option<ConnectionPermit> {
        let address = client_network(address);
        let (limits, mut open) = (self.0.limits, self.open());
        let unauthenticated: usize = open.unauthenticated.values().sum();
        let own = open.unauthenticated.get(&address).copied().unwrap_or(0);
        let free = open.total < limits.total
            && unauthenticated < limits.unauthenticated
            && own < limits.unauthenticated_per_address;
        free.then(|| {
            open.total += 1;
            open.unauthenticated.insert(address, own + 1);
            ConnectionPermit { counter: self.clone(), unauthenticated_network: Some(address) }
        })
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionPermit {
    /// Marks the connection as authenticated.
    pub(super) fn mark_authenticated(&mut self) {
        let mut open = self.counter.open();
        if let Some(address) = self.unauthenticated_network.take() {
            open.remove_unauthenticated(address);
        }
    }
}

impl OpenConnections {
    fn remove_unauthenticated(&mut self, address: IpAddr) {
        if let Some(count) = self.unauthenticated.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.unauthenticated.remove(&address);
            }
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.mark_authenticated();
        self.counter.open().total -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unauthenticated_connections_cannot_use_up_the_limit() {
        let counter =
            ConnectionCounter::new(ConnectionLimits { total: 5, unauthenticated: 3, unauthenticated_per_address: 2 });
        let try_acquire = |address: &str| counter.try_acquire(address.parse().expect("an address"));
        let mut one = try_acquire("192.0.2.1").expect("free");
        let two = try_acquire("192.0.2.1").expect("free");
        assert!(try_acquire("192.0.2.1").is_none());
        let three = try_acquire("2001:db8::1").expect("free");
        assert!(try_acquire("192.0.2.9").is_none());
        one.mark_authenticated();
        let four = try_acquire("192.0.2.1").expect("free again");
        drop((two, three));
        let five = try_acquire("2001:db8::2").expect("free again");
        let six = try_acquire("2001:db8::3").expect("free again");
        assert!(try_acquire("192.0.2.7").is_none());
        drop((four, five, six));
        let all: Vec<_> = (1..=4)
            .map(|number| {
                let mut permit = try_acquire(&format!("192.0.2.{number}")).expect("free");
                permit.mark_authenticated();
                permit
            })
            .collect();
        assert!(try_acquire("192.0.2.7").is_none());
        drop((one, all));
        assert!(counter.open().unauthenticated.is_empty() && counter.open().total == 0);
    }
}
