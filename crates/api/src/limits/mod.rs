//! How much one caller may ask of us: requests a minute, and work that takes long at the same time.
//!
//! Who shows a token is counted by what they show, before anybody looks whether it is true. Until it has proved to be
//! true they are counted by their address as well, so that tokens which are made up do not help. Everybody else is
//! counted by address alone.

mod buckets;
mod notices;
mod places;
mod shown;

use std::{
    net::IpAddr,
    num::NonZeroU32,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use axum::{
    body::HttpBody as _,
    extract::{MatchedPath, Request},
    http::{Extensions, StatusCode},
};

use crate::{
    access_log::Footprint,
    error::ApiError,
    neighbourhood::{address_in, neighbourhood},
    params::Bag,
    proxies::TrustedProxies,
    runner,
};
use buckets::{Buckets, Key, Outcome};
use notices::Notices;
use places::{Full, Place, Places};
use shown::{PARAMETERS, Shown};

/// How the interface is kept usable for everybody.
pub struct Guards {
    /// How many requests a minute one token is good for; `None` is without limit.
    pub requests_per_minute: Option<NonZeroU32>,
    /// How many requests a minute may come from one address without a token that is known; `None` is without limit.
    pub anonymous_requests_per_minute: Option<NonZeroU32>,
    /// Whose word counts about where requests come from.
    pub trusted_proxies: TrustedProxies,
    /// For how many seconds browsers are told to come by TLS only; 0 is not at all.
    pub hsts_seconds: u32,
    /// How long a request may take, once its body is there.
    pub request_time: Duration,
    /// How many requests that take long are let in at once, in all and of one address.
    pub heavy: (usize, usize),
    /// How many files are taken at once, in all and of one address.
    pub uploads: (usize, usize),
    /// How long a request waits for its turn.
    pub wait: Duration,
}

impl Default for Guards {
    /// Without limits on requests.
    fn default() -> Self {
        Self {
            requests_per_minute: None,
            anonymous_requests_per_minute: None,
            trusted_proxies: TrustedProxies::default(),
            hsts_seconds: 0,
            request_time: Duration::from_secs(2 * 60),
            heavy: (64, 8),
            uploads: (256, 64),
            wait: Duration::from_secs(10),
        }
    }
}

/// Counts what callers ask for.
pub(crate) struct Limits {
    start: Instant,
    tables: Option<Tables>,
    heavy: Places,
    uploads: Places,
    request_time: Duration,
    notices: Notices,
}

struct Tables {
    tokens: Buckets,
    addresses: Option<Buckets>,
}

/// How a request was let in.
pub(crate) enum Ticket {
    /// Nothing more is to be done about it.
    Settled,
    /// By a token that has not proved to be right, or that was right the last time.
    Shown { key: Key, proved: bool },
    /// Nothing was shown yet; the body may tell more.
    Owed(Owed),
}

/// A request that is counted as soon as its body is known.
#[derive(Clone, Default)]
pub(crate) struct Owed(Arc<OnceLock<Option<(Key, bool)>>>);

/// What a request is turned away for.
struct Refused {
    kind: &'static str,
    wait: Duration,
}

impl Limits {
    pub(crate) fn new(guards: &Guards) -> Self {
        let (tokens, addresses) = (guards.requests_per_minute, guards.anonymous_requests_per_minute);
        let tables = (tokens.is_some() || addresses.is_some()).then(|| Tables {
            // Without a limit it still remembers which tokens have proved to be right.
            tokens: Buckets::new(tokens.unwrap_or(NonZeroU32::MAX)),
            addresses: addresses.map(Buckets::new),
        });
        Self {
            start: Instant::now(),
            tables,
            heavy: Places::new(guards.heavy.0, guards.heavy.1, guards.wait),
            uploads: Places::new(guards.uploads.0, guards.uploads.1, guards.wait),
            request_time: guards.request_time,
            notices: Notices::default(),
        }
    }

    /// How long a request may take, once its body is there.
    pub(crate) fn request_time(&self) -> Duration {
        self.request_time
    }

    /// Lets a request in, or refuses it with 429.
    pub(crate) fn admit(&self, request: &mut Request) -> Result<Ticket, ApiError> {
        let Some(tables) = &self.tables else { return Ok(Ticket::Settled) };
        let address = address_in(request.extensions());
        let path = request.uri().path();
        if is_free(path, address) {
            return Ok(Ticket::Settled);
        }
        let may_tell_more = path.starts_with("/api/") || path.starts_with(runner::CI_V1);
        let admitted = match Shown::by(request.headers(), request.uri().query()) {
            Shown::One(secret) => tables.take_token(tables.tokens.key(secret), address, self.start.elapsed()),
            Shown::Nothing if may_tell_more && !request.body().is_end_stream() => {
                let owed = Owed::default();
                request.extensions_mut().insert(owed.clone());
                Ok(Ticket::Owed(owed))
            }
            Shown::Nothing | Shown::Several => {
                tables.take_address(address, self.start.elapsed()).map(|()| Ticket::Settled)
            }
        };
        admitted.map_err(|refused| self.refuse(address, &refused))
    }

    /// Counts a request whose body is known by now.
    pub(crate) fn settle(&self, extensions: &Extensions, bag: &Bag) -> Result<(), ApiError> {
        let (Some(tables), Some(Owed(owed))) = (&self.tables, extensions.get::<Owed>()) else { return Ok(()) };
        let address = address_in(extensions);
        let texts = PARAMETERS.iter().filter_map(|name| bag.text(name));
        let shown = texts.fold(Shown::Nothing, |shown, text| shown.and(text.as_bytes().into()));
        let now = self.start.elapsed();
        let counted = match shown {
            Shown::One(secret) => tables.take_token(tables.tokens.key(secret), address, now),
            Shown::Nothing | Shown::Several => tables.take_address(address, now).map(|()| Ticket::Settled),
        };
        let key = match &counted {
            Ok(Ticket::Shown { key, proved }) => Some((*key, *proved)),
            _ => None,
        };
        let _ = owed.set(key);
        counted.map(drop).map_err(|refused| self.refuse(address, &refused))
    }

    /// Draws conclusions from the answer: whether what was shown is right.
    pub(crate) fn conclude(&self, ticket: Ticket, address: IpAddr, footprint: &Footprint, status: StatusCode) {
        let Some(tables) = &self.tables else { return };
        let shown = match ticket {
            Ticket::Settled => None,
            Ticket::Shown { key, proved } => Some((key, proved)),
            Ticket::Owed(Owed(owed)) => match owed.get() {
                Some(counted) => *counted,
                // It came to nothing before its body was looked at, and counts all the same.
                None => return drop(tables.take_address(address, self.start.elapsed())),
            },
        };
        let Some((key, before)) = shown else { return };
        let proves = footprint.knows_user() || (status.is_success() && proves_by_success(footprint.route()));
        if proves && !before {
            tables.tokens.set_proved(key, true);
        } else if before && status == StatusCode::UNAUTHORIZED {
            tables.tokens.set_proved(key, false);
        }
    }

    /// A place for a request, if its route takes long.
    pub(crate) async fn heavy_place(&self, extensions: &Extensions) -> Result<Option<Place>, ApiError> {
        let route = extensions.get::<MatchedPath>().map(MatchedPath::as_str);
        if !route.is_some_and(is_heavy) {
            return Ok(None);
        }
        self.place(&self.heavy, "heavy", extensions).await.map(Some)
    }

    /// A place for a request that brings a file.
    pub(crate) async fn upload_place(&self, extensions: &Extensions) -> Result<Place, ApiError> {
        self.place(&self.uploads, "uploads", extensions).await
    }

    async fn place(&self, of: &Places, kind: &'static str, extensions: &Extensions) -> Result<Place, ApiError> {
        let address = address_in(extensions);
        of.enter(neighbourhood(address)).await.map_err(|full| match full {
            Full::Own => self.refuse(address, &Refused { kind, wait: Duration::from_secs(5) }),
            Full::All => {
                count(kind);
                ApiError::Forge(forge::Error::Busy)
            }
        })
    }

    /// Tells the operator of somebody who tries too many passwords.
    pub(crate) fn note_sign_in(&self, address: IpAddr) {
        count("sign_in");
        self.notices.tell(neighbourhood(address), "sign_in");
    }

    fn refuse(&self, address: IpAddr, refused: &Refused) -> ApiError {
        count(refused.kind);
        self.notices.tell(neighbourhood(address), refused.kind);
        ApiError::Limited(refused.wait)
    }
}

impl Tables {
    fn take_token(&self, key: Key, address: IpAddr, now: Duration) -> Result<Ticket, Refused> {
        // The address comes first: tokens that are made up must not push those that are right out of memory.
        if !self.tokens.is_proved(key) {
            self.take_address(address, now)?;
        }
        match self.tokens.take(key, now) {
            Outcome::Taken { proved } => Ok(Ticket::Shown { key, proved }),
            Outcome::Empty { wait } => Err(Refused { kind: "token", wait }),
        }
    }

    fn take_address(&self, address: IpAddr, now: Duration) -> Result<(), Refused> {
        let Some(addresses) = &self.addresses else { return Ok(()) };
        match addresses.take(addresses.key(neighbourhood(address)), now) {
            Outcome::Taken { .. } => Ok(()),
            Outcome::Empty { wait } => Err(Refused { kind: "address", wait }),
        }
    }
}

fn count(kind: &'static str) {
    metrics::counter!("gable_limited_requests_total", "kind" => kind).increment(1);
}

/// What monitors ask is not counted.
fn is_free(path: &str, address: IpAddr) -> bool {
    match path {
        "/-/health" | "/-/ready" => true,
        "/-/metrics" => address.is_loopback(),
        _ => false,
    }
}

/// Where nobody succeeds with a wrong token: git and runners, of whom the log knows no user.
fn proves_by_success(route: &str) -> bool {
    route == "git" || route.starts_with(runner::V4) || route.starts_with(runner::CI_V1)
}

/// Routes that keep a thread busy for long, and whose cost a caller can choose.
fn is_heavy(route: &str) -> bool {
    let Some(route) = route.strip_prefix("/api/v3/") else { return false };
    matches!(
        route,
        "projects/{id}/repository/archive"
            | "projects/{id}/repository/archive.{format}"
            | "projects/{id}/repository/compare"
            | "projects/{id}/repository/contributors"
            | "projects/{id}/repository/commits/{sha}/diff"
            | "projects/{id}/repository/merged_branches"
            | "projects/fork/{id}"
            | "ci/lint"
            | "session"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_heavy_route_is_one_that_is_served() {
        let served: Vec<String> = crate::routes::v3().iter().map(|route| format!("/api/v3{}", route.path)).collect();
        let heavy: Vec<&str> = served.iter().map(String::as_str).filter(|route| is_heavy(route)).collect();
        let mut different = heavy.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), 9, "{different:?}");
        assert!(!is_heavy("/api/v3/projects/{id}"));
    }
}
