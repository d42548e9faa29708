//! Name resolution: a name is looked up once, all its addresses are checked, and only those are connected to.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    vec,
};

use forge::outbound_addresses::DestinationError;
use hyper_util::client::legacy::connect::dns::Name;
use model::addresses::may_connect_to;
use tokio::sync::Semaphore;
use tower::Service;

/// The maximum number of concurrent lookups. Each occupies a thread until the system resolver gives up, even if the
/// result is no longer needed.
const MAX_LOOKUPS: usize = 128;

/// Resolves a host name.
pub type LookupFn = Arc<dyn Fn(String) -> LookupFuture + Send + Sync>;

/// The result of a lookup.
pub type LookupFuture = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Returns a lookup with the system resolver.
pub(super) fn system() -> LookupFn {
    let permits = Arc::new(Semaphore::new(MAX_LOOKUPS));
    Arc::new(move |name| {
        let permits = Arc::clone(&permits);
        Box::pin(async move {
            let permit = permits.acquire_owned().await.map_err(io::Error::other)?;
            // A separate task holds the permit until the lookup ends, even if the caller stops waiting.
            let lookup = tokio::spawn(async move {
                let addresses = tokio::net::lookup_host((name, 0)).await;
                let addresses = addresses.map(|addresses| addresses.map(|address| address.ip()).collect());
                drop(permit);
                addresses
            });
            lookup.await?
        })
    })
}

/// A resolver that refuses names with forbidden addresses.
#[derive(Clone)]
pub(super) struct GuardedResolver {
    lookup: LookupFn,
    allow_local: bool,
}

impl GuardedResolver {
    pub(super) fn new(lookup: LookupFn, allow_local: bool) -> Self {
        Self { lookup, allow_local }
    }
}

impl Service<Name> for GuardedResolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = DestinationError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, DestinationError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DestinationError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let lookup = (self.lookup)(name.as_str().to_owned());
        let allow_local = self.allow_local;
        Box::pin(async move {
            let addresses = lookup.await.map_err(|_| DestinationError::UnknownHost)?;
            // A single forbidden address is enough to refuse a name: legitimate names do not mix them.
            if !addresses.iter().all(|address| may_connect_to(*address, allow_local)) {
                return Err(DestinationError::ForbiddenAddress);
            }
            if addresses.is_empty() {
                return Err(DestinationError::UnknownHost);
            }
            // The connector replaces port 0 with the port of the URL.
            let addresses: Vec<_> = addresses.into_iter().map(|address| SocketAddr::new(address, 0)).collect();
            Ok(addresses.into_iter())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::ready,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use tower::ServiceExt as _;

    use super::*;

    /// Resolves a name several times; its addresses change with each lookup.
    async fn resolve_all(allow_local: bool, lookups: &'static [&[&str]]) -> Vec<Result<Vec<IpAddr>, DestinationError>> {
        let count = Arc::new(AtomicUsize::new(0));
        let lookup: LookupFn = Arc::new(move |_| {
            let addresses = lookups[count.fetch_add(1, Ordering::SeqCst)];
            Box::pin(ready(Ok(parse_all(addresses))))
        });
        let mut resolver = GuardedResolver::new(lookup, allow_local);
        let mut results = Vec::new();
        for _ in lookups {
            let name = "some.test".parse().expect("a valid name");
            let result = resolver.ready().await.expect("it is always ready").call(name).await;
            results.push(result.map(|addresses| addresses.map(|address| address.ip()).collect()));
        }
        results
    }

    fn parse_all(addresses: &[&str]) -> Vec<IpAddr> {
        addresses.iter().map(|address| address.parse().expect("a valid address")).collect()
    }

    #[tokio::test]
    async fn only_checked_addresses_are_returned() {
        let results = resolve_all(false, &[&["9.9.9.9", "2620:fe::9"], &["127.0.0.1"], &["9.9.9.9", "::1"], &[]]).await;
        let expected = [
            Ok(parse_all(&["9.9.9.9", "2620:fe::9"])),
            Err(DestinationError::ForbiddenAddress),
            Err(DestinationError::ForbiddenAddress),
            Err(DestinationError::UnknownHost),
        ];
        assert_eq!(results, expected);
    }

    #[tokio::test]
    async fn some_addresses_are_forbidden_even_if_local_ones_are_allowed() {
        let lookups: &'static [&[&str]] = &[&["127.0.0.1", "10.0.0.1"], &["169.254.169.254"], &["10.0.0.1", "fe80::1"]];
        let results = resolve_all(true, lookups).await;
        let expected = [
            Ok(parse_all(&["127.0.0.1", "10.0.0.1"])),
            Err(DestinationError::ForbiddenAddress),
            Err(DestinationError::ForbiddenAddress),
        ];
        assert_eq!(results, expected);
    }

    #[tokio::test]
    async fn localhost_resolves_to_loopback_addresses() {
        let addresses = system()("localhost".into()).await.expect("every machine has this name");
        assert!(addresses.iter().all(IpAddr::is_loopback) && !addresses.is_empty(), "{addresses:?}");
    }
}
