//! Infrastructure of the use cases: threads, caches, locks, wake-ups, disk space, outbound addresses.

pub(crate) mod blocking;
pub mod bridge;
pub mod clock;
pub(crate) mod commit_outcome;
pub mod disk_space;
pub(crate) mod lookups;
pub mod outbound_addresses;
pub mod rate_limiter;
pub(crate) mod read_cache;
pub(crate) mod repository_cache;
pub(crate) mod repository_locks;
pub(crate) mod stored_files;
pub mod wakeups;
pub mod weak_map;
pub(crate) mod work_queue;
