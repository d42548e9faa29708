//! What names lead to: looked up once, judged as a whole, and handed on to whoever connects.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    vec,
};

use forge::outgoing;
use hyper_util::client::legacy::connect::dns::Name;
use model::addresses::is_talked_to;
use tokio::sync::Semaphore;
use tower::Service;

/// How many names are looked up at once. Each holds a thread until the system gives up, whoever still waits for it.
const LOOKUPS: usize = 128;

/// Finds out to which addresses a name leads.
pub type Lookup = Arc<dyn Fn(String) -> Looking + Send + Sync>;

/// What a lookup finds, in time.
pub type Looking = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Asks the system.
pub(super) fn system() -> Lookup {
    let places = Arc::new(Semaphore::new(LOOKUPS));
    Arc::new(move |name| {
        let places = Arc::clone(&places);
        Box::pin(async move {
            let place = places.acquire_owned().await.map_err(io::Error::other)?;
            // A task of its own: the place is taken for as long as the system looks, not only for as long as we wait.
            let looking = tokio::spawn(async move {
                let found =
                    tokio::net::lookup_host((name, 0)).await.map(|found| found.map(|found| found.ip()).collect());
                drop(place);
                found
            });
            looking.await?
        })
    })
}

/// Lets nobody connect to an address that is not for them.
#[derive(Clone)]
pub(super) struct Guard {
    lookup: Lookup,
    may_be_local: bool,
}

impl Guard {
    pub(super) fn new(lookup: Lookup, may_be_local: bool) -> Self {
        Self { lookup, may_be_local }
    }
}

/// Why a name leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dead {
    /// To an address that is not talked to.
    Closed,
    /// To no address at all.
    Unknown,
}

impl fmt::Display for Dead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => outgoing::CLOSED,
            Self::Unknown => outgoing::UNKNOWN,
        })
    }
}

impl std::error::Error for Dead {}

impl Service<Name> for Guard {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = Dead;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Dead>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Dead>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let looking = (self.lookup)(name.as_str().to_owned());
        let may_be_local = self.may_be_local;
        Box::pin(async move {
            let found = looking.await.map_err(|_| Dead::Unknown)?;
            // One bad address is enough: whoever answers such a name means no good.
            if !found.iter().all(|address| is_talked_to(*address, may_be_local)) {
                return Err(Dead::Closed);
            }
            if found.is_empty() {
                return Err(Dead::Unknown);
            }
            // The connector puts the port of the URL in place of 0.
            let found: Vec<_> = found.into_iter().map(|address| SocketAddr::new(address, 0)).collect();
            Ok(found.into_iter())
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

    /// What a guard hands on, asked several times, if the name leads to these addresses in turn.
    async fn ask(may_be_local: bool, answers: &'static [&[&str]]) -> Vec<Result<Vec<IpAddr>, Dead>> {
        let asked = Arc::new(AtomicUsize::new(0));
        let lookup: Lookup = Arc::new(move |_| {
            let found = answers[asked.fetch_add(1, Ordering::SeqCst)];
            Box::pin(ready(Ok(found.iter().map(|found| found.parse().expect("an address")).collect())))
        });
        let mut guard = Guard::new(lookup, may_be_local);
        let mut handed = Vec::new();
        for _ in answers {
            let found =
                guard.ready().await.expect("it is always ready").call("some.test".parse().expect("a name")).await;
            handed.push(found.map(|found| found.map(|found| found.ip()).collect()));
        }
        handed
    }

    fn found(addresses: &[&str]) -> Vec<IpAddr> {
        addresses.iter().map(|address| address.parse().expect("an address")).collect()
    }

    #[tokio::test]
    async fn lesson_10_what_is_judged_is_what_is_handed_on() {
        let handed = ask(false, &[&["9.9.9.9", "2620:fe::9"], &["127.0.0.1"], &["9.9.9.9", "::1"], &[]]).await;
        let expected =
            [Ok(found(&["9.9.9.9", "2620:fe::9"])), Err(Dead::Closed), Err(Dead::Closed), Err(Dead::Unknown)];
        assert_eq!(handed, expected);
    }

    #[tokio::test]
    async fn lesson_10_some_addresses_are_handed_to_nobody() {
        let handed = ask(true, &[&["127.0.0.1", "10.0.0.1"], &["169.254.169.254"], &["10.0.0.1", "fe80::1"]]).await;
        assert_eq!(handed, [Ok(found(&["127.0.0.1", "10.0.0.1"])), Err(Dead::Closed), Err(Dead::Closed)]);
    }

    #[tokio::test]
    async fn the_system_knows_this_machine() {
        let found = system()("localhost".into()).await.expect("every machine has this name");
        assert!(found.iter().all(|address| address.is_loopback()) && !found.is_empty(), "{found:?}");
    }
}
