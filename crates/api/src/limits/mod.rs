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
use tokio::sync::Semaphore;

use crate::{
    access_log::Footprint,
    buffered::{self, Making},
    error::ApiError,
    neighbourhood::{address_in, neighbourhood},
    params::Bag,
    proxies::TrustedProxies,
    runner,
};
use buckets::{Buckets, Key, Outcome};
use notices::Notices;
pub(crate) use places::Place;
use places::{Full, Places};
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
    /// Kilobytes of bodies whose senders have proved who they are, and of all others.
    bodies: [Places; 2],
    /// Answers about repositories that are made, those that take long after the others.
    repository_answers: [Places; 2],
    /// Kilobytes of other answers that are made.
    other_answers: Places,
    request_time: Duration,
    notices: Notices,
}

struct Tables {
    tokens: Buckets,
    addresses: Option<Buckets>,
}

/// How a request was let in.
#[derive(Default)]
pub(crate) struct Ticket {
    /// The one thing that was shown, and whether it was right the last time. Of several nobody knows which one opens.
    shown: Option<(Key, bool)>,
    /// The body may tell more.
    owed: Option<Owed>,
}

/// A request that is counted, or counted once more, as soon as its body is known.
#[derive(Clone)]
pub(crate) struct Owed {
    /// What was shown before the body.
    before: Arc<[Key]>,
    /// What is known of the one thing that was shown, after the body.
    after: Arc<OnceLock<Option<(Key, bool)>>>,
}

/// What a request is turned away for.
struct Refused {
    kind: &'static str,
    wait: Duration,
}

/// How many bytes of large request bodies one address may have in memory at once. Those who have proved who they are may have
/// twice as much together, and all others together have a budget of their own, which is a quarter larger than this.
const BODIES_OF_ONE_ADDRESS: usize = 32 << 20;

impl Limits {
    /// Sets limits up. No request body is larger than `largest_body`, apart from files and packs, which are never held in
    /// memory.
    pub(crate) fn new(guards: &Guards, largest_body: usize) -> Self {
        let each = largest_body.max(BODIES_OF_ONE_ADDRESS).div_ceil(1024).min(Semaphore::MAX_PERMITS / 2);
        let bodies = |all| Places::new(all, each, guards.wait);
        let answers = |(all, each)| Places::new(all, each, guards.request_time);
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
            bodies: [bodies(each + each / 4), bodies(2 * each)],
            repository_answers: [answers(buffered::AT_ONCE), answers(buffered::AT_ONCE)],
            other_answers: answers(buffered::KILOBYTES_AT_ONCE),
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
        let Some(tables) = &self.tables else { return Ok(Ticket::default()) };
        let address = address_in(request.extensions());
        let path = request.uri().path();
        if is_free(path, address) {
            return Ok(Ticket::default());
        }
        let shown = if is_git(path) {
            Shown::to_git(request.headers())
        } else {
            Shown::by(request.headers(), request.uri().query())
        };
        let keys: Arc<[Key]> = shown.each().map(|secret| tables.tokens.key(secret)).collect();
        let may_tell_more = path.starts_with("/api/") || path.starts_with(runner::CI_V1);
        let owed = (may_tell_more && !request.body().is_end_stream())
            .then(|| Owed { before: Arc::clone(&keys), after: Arc::default() });
        if let Some(owed) = &owed {
            request.extensions_mut().insert(owed.clone());
            if keys.is_empty() {
                return Ok(Ticket { shown: None, owed: Some(owed.clone()) });
            }
        }
        let shown =
            tables.take(&keys, address, self.start.elapsed()).map_err(|refused| self.refuse(address, &refused))?;
        Ok(Ticket { shown, owed })
    }

    /// Counts a request whose body is known by now.
    pub(crate) fn settle(&self, extensions: &Extensions, bag: &Bag) -> Result<(), ApiError> {
        let (Some(tables), Some(owed)) = (&self.tables, extensions.get::<Owed>()) else { return Ok(()) };
        let address = address_in(extensions);
        let mut shown = Shown::default();
        for text in PARAMETERS.iter().filter_map(|name| bag.text(name)) {
            shown.add(text.as_bytes().into());
        }
        // What came before the body was counted then.
        let keys: Vec<Key> =
            shown.each().map(|secret| tables.tokens.key(secret)).filter(|key| !owed.before.contains(key)).collect();
        if keys.is_empty() && !owed.before.is_empty() {
            return Ok(());
        }
        let counted = tables.take(&keys, address, self.start.elapsed());
        let one = counted.as_ref().ok().copied().flatten().filter(|_| owed.before.is_empty());
        let _ = owed.after.set(one);
        counted.map(drop).map_err(|refused| self.refuse(address, &refused))
    }

    /// Draws conclusions from the answer: whether what was shown is right.
    pub(crate) fn conclude(&self, ticket: Ticket, address: IpAddr, footprint: &Footprint, status: StatusCode) {
        let Some(tables) = &self.tables else { return };
        let shown = match ticket.owed {
            None => ticket.shown,
            Some(owed) => match owed.after.get() {
                Some(counted) => *counted,
                None if !owed.before.is_empty() => ticket.shown,
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

    /// Waits until so many bytes of a request body may be held in memory.
    pub(crate) async fn body_place(
        &self,
        extensions: &Extensions,
        bytes: usize,
        is_proved: bool,
    ) -> Result<Place, ApiError> {
        let address = address_in(extensions);
        let places = &self.bodies[usize::from(is_proved)];
        let entered = places.enter_many(neighbourhood(address), bytes.div_ceil(1024)).await;
        entered.map_err(|full| self.full(full, "bodies", address))
    }

    /// Adds what parameters take in memory beside their text, without waiting: the request holds a place already.
    pub(crate) fn more_body_place(
        &self,
        extensions: &Extensions,
        bytes: usize,
        is_proved: bool,
    ) -> Result<Place, ApiError> {
        let address = address_in(extensions);
        let places = &self.bodies[usize::from(is_proved)];
        let entered = places.try_enter_many(neighbourhood(address), bytes.div_ceil(1024));
        entered.map_err(|full| self.full(full, "bodies", address))
    }

    /// Waits until an answer may be made that may be long; others may follow once the place is dropped.
    pub(crate) async fn answer_place(&self, extensions: &Extensions, making: Making) -> Result<Place, ApiError> {
        let address = address_in(extensions);
        let (places, count) = match making {
            Making::Repository { takes_long } => (&self.repository_answers[usize::from(takes_long)], 1),
            Making::Kilobytes(count) => (&self.other_answers, count),
        };
        let entered = places.enter_many(neighbourhood(address), count).await;
        entered.map_err(|full| self.full(full, "answers", address))
    }

    async fn place(&self, of: &Places, kind: &'static str, extensions: &Extensions) -> Result<Place, ApiError> {
        let address = address_in(extensions);
        of.enter(neighbourhood(address)).await.map_err(|full| self.full(full, kind, address))
    }

    fn full(&self, full: Full, kind: &'static str, address: IpAddr) -> ApiError {
        match full {
            Full::Own => self.refuse(address, &Refused { kind, wait: Duration::from_secs(5) }),
            Full::All => {
                count(kind);
                ApiError::Forge(forge::Error::Busy)
            }
        }
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
    /// Counts a request by each thing that it shows: whichever of them opens the door, it pays. Answers what is known of
    /// the one thing, if it is only one.
    fn take(&self, keys: &[Key], address: IpAddr, now: Duration) -> Result<Option<(Key, bool)>, Refused> {
        // The address comes first: tokens that are made up must not push those that are right out of memory.
        if keys.len() != 1 || !self.tokens.is_proved(keys[0]) {
            self.take_address(address, now)?;
        }
        let mut one = None;
        for key in keys {
            match self.tokens.take(*key, now) {
                Outcome::Taken { proved } => one = Some((*key, proved)),
                Outcome::Empty { wait } => return Err(Refused { kind: "token", wait }),
            }
        }
        Ok(one.filter(|_| keys.len() == 1))
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

/// Whether git is asked, for a repository.
fn is_git(path: &str) -> bool {
    ["/info/refs", "/git-upload-pack", "/git-receive-pack"].iter().any(|end| path.ends_with(end))
}

/// Where nobody succeeds with a wrong token: git and runners, of whom the log knows no user.
fn proves_by_success(route: &str) -> bool {
    route == "git" || route.starts_with(runner::V4) || route.starts_with(runner::CI_V1)
}

/// Routes that keep a thread busy for long, and whose cost a caller can choose.
pub(crate) fn is_heavy(route: &str) -> bool {
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
