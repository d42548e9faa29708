//! Rate limits by key, in bounded memory: the least recently used keys are evicted first.
//!
//! Not `governor`, which limits the sign-ins: this runs for every request, stores more per key than its count, and must not
//! iterate over all keys to evict some.

use std::{
    hash::{BuildHasher as _, BuildHasherDefault, Hasher, RandomState},
    num::NonZeroU32,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lru::LruCache;

/// The number of shards, so that threads seldom wait for each other.
const SHARDS: usize = 16;
/// The maximum number of keys per shard: about 6 MiB for all shards.
const MAX_KEYS_PER_SHARD: usize = 4096;
/// The period to which a rate refers.
const PERIOD: Duration = Duration::from_secs(60);

/// One token bucket per key. A key may use a full period at once; its allowance refills evenly.
pub(super) struct Buckets {
    /// The time in which the allowance for one request refills.
    cost: Duration,
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
}

type Shard = LruCache<u64, Bucket, BuildHasherDefault<IdentityHasher>>;

/// A keyed hash with a random seed, so that no client can cause a collision with the key of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u64);

#[derive(Default)]
struct Bucket {
    /// When the bucket is full again, as time since the start.
    full_at: Duration,
    verified: bool,
}

/// The outcome of taking one request from a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakeOutcome {
    /// The request is within the limit; says whether the key is verified.
    Taken { verified: bool },
    /// The bucket is empty for this time.
    Empty { wait: Duration },
}

/// The hasher of the cache, whose keys are hashes already.
#[derive(Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
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
        let shard = || Mutex::new(LruCache::unbounded_with_hasher(BuildHasherDefault::default()));
        Self {
            cost: PERIOD / per_minute.get(),
            shards: (0..SHARDS).map(|_| shard()).collect(),
            hasher: RandomState::new(),
        }
    }

    /// Returns the key under which a value is counted.
    pub(super) fn key(&self, value: impl std::hash::Hash) -> Key {
        Key(self.hasher.hash_one(value))
    }

    /// Takes one request from a bucket; `now` is the time since the start.
    pub(super) fn take(&self, key: Key, now: Duration) -> TakeOutcome {
        let mut shard = self.shard(key);
        let bucket = shard.get_or_insert_mut(key.0, Bucket::default);
        let full_at = bucket.full_at.max(now) + self.cost;
        let wait = full_at.saturating_sub(now).saturating_sub(PERIOD);
        if !wait.is_zero() {
            return TakeOutcome::Empty { wait };
        }
        bucket.full_at = full_at;
        let verified = bucket.verified;
        if shard.len() > MAX_KEYS_PER_SHARD {
            shard.pop_lru();
        }
        TakeOutcome::Taken { verified }
    }

    /// Returns whether a key is verified.
    pub(super) fn is_verified(&self, key: Key) -> bool {
        self.shard(key).peek(&key.0).is_some_and(|bucket| bucket.verified)
    }

    /// Sets whether a key is verified, if it has a bucket.
    pub(super) fn set_verified(&self, key: Key, verified: bool) {
        if let Some(bucket) = self.shard(key).peek_mut(&key.0) {
            bucket.verified = verified;
        }
    }

    fn shard(&self, Key(key): Key) -> MutexGuard<'_, Shard> {
        // The lower bits choose the slot inside a shard.
        let index = usize::try_from(key >> 60).unwrap_or_default() % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(per_minute: u32) -> Buckets {
        Buckets::new(NonZeroU32::new(per_minute).expect("not zero"))
    }

    #[test]
    fn a_full_minute_may_be_used_at_once_and_refills_evenly() {
        let buckets = buckets(6);
        let (first, second) = (buckets.key("one"), buckets.key("other"));
        let at = Duration::from_secs;
        for _ in 0..6 {
            assert_eq!(buckets.take(first, at(100)), TakeOutcome::Taken { verified: false });
        }
        assert_eq!(buckets.take(first, at(100)), TakeOutcome::Empty { wait: at(10) });
        assert_eq!(buckets.take(first, at(104)), TakeOutcome::Empty { wait: at(6) });
        assert_eq!(buckets.take(second, at(104)), TakeOutcome::Taken { verified: false });
        assert_eq!(buckets.take(first, at(110)), TakeOutcome::Taken { verified: false });
        assert_eq!(buckets.take(first, at(110)), TakeOutcome::Empty { wait: at(10) });
        // After a long pause the bucket is full and no more than full.
        let taken = (0..100).filter(|_| matches!(buckets.take(first, at(10_000)), TakeOutcome::Taken { .. })).count();
        assert_eq!(taken, 6);
    }

    #[test]
    fn verification_is_stored_with_the_key() {
        let buckets = buckets(6);
        let key = buckets.key("token");
        buckets.set_verified(key, true);
        assert!(!buckets.is_verified(key), "nothing was taken for it yet");
        buckets.take(key, Duration::ZERO);
        buckets.set_verified(key, true);
        assert_eq!(buckets.take(key, Duration::ZERO), TakeOutcome::Taken { verified: true });
        buckets.set_verified(key, false);
        assert_eq!(buckets.take(key, Duration::ZERO), TakeOutcome::Taken { verified: false });
    }

    #[test]
    fn a_flood_of_keys_is_bounded_in_memory_and_does_not_reset_an_active_key() {
        let buckets = buckets(2);
        let active = buckets.key("busy");
        for number in 0..(SHARDS * MAX_KEYS_PER_SHARD * 3) {
            buckets.take(buckets.key(number), Duration::from_millis(1));
            if number % 1000 == 0 {
                buckets.take(active, Duration::from_millis(1));
            }
        }
        assert!(matches!(buckets.take(active, Duration::from_millis(1)), TakeOutcome::Empty { .. }));
        for shard in &buckets.shards {
            assert!(shard.lock().expect("not poisoned").len() <= MAX_KEYS_PER_SHARD);
        }
    }
}
