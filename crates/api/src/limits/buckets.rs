//! Counts by key, in bounded memory: whoever has been quiet for longest is forgotten first.
//!
//! Written by hand and not with `governor`, which the sign-ins use: this stands in the way of every request, has to know
//! more of a key than its count, and must not walk over all keys to forget some.

use std::{
    hash::{BuildHasher as _, BuildHasherDefault, Hasher, RandomState},
    num::NonZeroU32,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lru::LruCache;

/// How many parts there are, so that requests of several threads seldom wait for each other.
const PARTS: usize = 16;
/// How many keys each part remembers: about 6 MiB in all, if so many ever come.
const REMEMBERED: usize = 4096;
/// The time that a count is for.
const PERIOD: Duration = Duration::from_secs(60);

/// Counts requests by key. A key may use up a minute's worth at once; it comes back evenly.
pub(super) struct Buckets {
    /// What one request costs, as time.
    cost: Duration,
    parts: Box<[Mutex<Part>]>,
    hasher: RandomState,
}

type Part = LruCache<u64, Bucket, BuildHasherDefault<Same>>;

/// Under what something is counted: a hash under a key that nobody knows, so that nobody can aim at another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u64);

#[derive(Default)]
struct Bucket {
    /// When everything will have come back, since the beginning.
    whole_at: Duration,
    proved: bool,
}

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// There was something left. Tells whether the key has proved itself before.
    Taken { proved: bool },
    /// Nothing is left for so long.
    Empty { wait: Duration },
}

/// The keys are hashes already.
#[derive(Default)]
struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers")
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

impl Buckets {
    pub(super) fn new(per_minute: NonZeroU32) -> Self {
        let part = || Mutex::new(LruCache::unbounded_with_hasher(BuildHasherDefault::default()));
        Self {
            cost: PERIOD / per_minute.get(),
            parts: (0..PARTS).map(|_| part()).collect(),
            hasher: RandomState::new(),
        }
    }

    /// Under what this is counted.
    pub(super) fn key(&self, of: impl std::hash::Hash) -> Key {
        Key(self.hasher.hash_one(of))
    }

    /// Takes one at a moment, told as the time since the beginning.
    pub(super) fn take(&self, key: Key, now: Duration) -> Outcome {
        let mut part = self.part(key);
        let bucket = part.get_or_insert_mut(key.0, Bucket::default);
        let whole_at = bucket.whole_at.max(now) + self.cost;
        let wait = whole_at.saturating_sub(now).saturating_sub(PERIOD);
        if !wait.is_zero() {
            return Outcome::Empty { wait };
        }
        bucket.whole_at = whole_at;
        let proved = bucket.proved;
        if part.len() > REMEMBERED {
            part.pop_lru();
        }
        Outcome::Taken { proved }
    }

    /// How a key stands, without taking anything.
    pub(super) fn is_proved(&self, key: Key) -> bool {
        self.part(key).peek(&key.0).is_some_and(|bucket| bucket.proved)
    }

    /// Remembers whether what was shown was right.
    pub(super) fn set_proved(&self, key: Key, proved: bool) {
        if let Some(bucket) = self.part(key).peek_mut(&key.0) {
            bucket.proved = proved;
        }
    }

    fn part(&self, Key(key): Key) -> MutexGuard<'_, Part> {
        // The lower bits choose the place inside a part.
        let index = usize::try_from(key >> 60).unwrap_or_default() % PARTS;
        self.parts[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(per_minute: u32) -> Buckets {
        Buckets::new(NonZeroU32::new(per_minute).expect("not zero"))
    }

    #[test]
    fn a_minutes_worth_may_come_at_once_and_comes_back_evenly() {
        let buckets = buckets(6);
        let (one, other) = (buckets.key("one"), buckets.key("other"));
        let at = Duration::from_secs;
        for _ in 0..6 {
            assert_eq!(buckets.take(one, at(100)), Outcome::Taken { proved: false });
        }
        assert_eq!(buckets.take(one, at(100)), Outcome::Empty { wait: at(10) });
        assert_eq!(buckets.take(one, at(104)), Outcome::Empty { wait: at(6) });
        assert_eq!(buckets.take(other, at(104)), Outcome::Taken { proved: false });
        assert_eq!(buckets.take(one, at(110)), Outcome::Taken { proved: false });
        assert_eq!(buckets.take(one, at(110)), Outcome::Empty { wait: at(10) });
        // Who waits for long has a minute's worth again and no more.
        let taken = (0..100).filter(|_| matches!(buckets.take(one, at(10_000)), Outcome::Taken { .. })).count();
        assert_eq!(taken, 6);
    }

    #[test]
    fn a_proof_is_remembered_with_the_key() {
        let buckets = buckets(6);
        let key = buckets.key("token");
        buckets.set_proved(key, true);
        assert!(!buckets.is_proved(key), "nothing was taken for it yet");
        buckets.take(key, Duration::ZERO);
        buckets.set_proved(key, true);
        assert_eq!(buckets.take(key, Duration::ZERO), Outcome::Taken { proved: true });
        buckets.set_proved(key, false);
        assert_eq!(buckets.take(key, Duration::ZERO), Outcome::Taken { proved: false });
    }

    #[test]
    fn a_flood_of_keys_takes_no_more_memory_and_does_not_free_who_comes_again() {
        let buckets = buckets(2);
        let busy = buckets.key("busy");
        for number in 0..(PARTS * REMEMBERED * 3) {
            buckets.take(buckets.key(number), Duration::from_millis(1));
            if number % 1000 == 0 {
                buckets.take(busy, Duration::from_millis(1));
            }
        }
        assert!(matches!(buckets.take(busy, Duration::from_millis(1)), Outcome::Empty { .. }));
        for part in &buckets.parts {
            assert!(part.lock().expect("whole").len() <= REMEMBERED);
        }
    }
}
