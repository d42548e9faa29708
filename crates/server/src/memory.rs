//! Configures glibc's allocator to return memory to the system and to reserve little address space.

use std::time::Duration;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use rustix::process::{Resource, getrlimit};
use tokio::{
    sync::watch,
    task::{JoinHandle, spawn_blocking},
    time::timeout,
};

/// The time after the start at which memory is released for the first time: the first background tasks have run by then.
const FIRST_RELEASE: Duration = Duration::from_secs(2);
/// The time between later releases.
const RELEASE_INTERVAL: Duration = Duration::from_secs(60);

/// Allocations of at least this size are returned to the system when they are freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MMAP_THRESHOLD: i32 = 1 << 20;

/// The free memory at the end of an arena from which on it is returned to the system. A large request frees more than glibc's
/// default of 128 KiB, and the next one would have to get it again. [`release_free_memory`] returns the rest.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const TRIM_THRESHOLD: i32 = 4 << 20;

/// The number of arenas per core, one for each thread that requests keep busy: an async worker and two readers. Threads that
/// share an arena wait for each other. Glibc's default is eight per core.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const ARENAS_PER_CORE: u64 = 3;

/// The range of the number of arenas. Each retains freed memory.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const ARENA_COUNT: std::ops::RangeInclusive<u64> = 2..=12;

/// The address space that an arena reserves.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const ARENA_SIZE: u64 = 64 << 20;

/// Configures the allocator; must be called before any thread is started.
///
/// Hashing a password allocates 7 MiB. By default glibc raises its threshold for large allocations to that size after the
/// first one, and every thread that hashes retains as much. A fixed threshold prevents that.
///
/// Where the address space is limited, arenas reserve at most a quarter of it, except that there are at least two.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn configure_allocator() {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let address_space = getrlimit(Resource::As).current.unwrap_or(u64::MAX);
    let arenas = (cores * ARENAS_PER_CORE).min(address_space / 4 / ARENA_SIZE);
    let arenas = i32::try_from(arenas.clamp(*ARENA_COUNT.start(), *ARENA_COUNT.end())).unwrap_or(2);
    #[expect(unsafe_code, reason = "mallopt has no safe wrapper; it is called before any thread is started")]
    // SAFETY: `mallopt` takes two integers and only changes parameters of the allocator.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD);
        libc::mallopt(libc::M_ARENA_MAX, arenas);
    }
}

/// Other allocators need no configuration.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn configure_allocator() {}

/// Starts to release free memory periodically, until `stopped` becomes true.
pub(crate) fn release_until_stopped(mut stopped: watch::Receiver<bool>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut wait = FIRST_RELEASE;
        while timeout(wait, stopped.wait_for(|stopped| *stopped)).await.is_err() {
            let _ = spawn_blocking(release_free_memory).await;
            wait = RELEASE_INTERVAL;
        }
    })
}

/// Returns the free pages of all arenas to the system. Without it, glibc returns only those at the end of an arena; the
/// rest of what the start and busy periods have used would be retained.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn release_free_memory() {
    #[expect(unsafe_code, reason = "malloc_trim has no safe wrapper")]
    // SAFETY: `malloc_trim` takes an integer, is thread-safe, and only returns pages that are not in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Other allocators return memory by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn release_free_memory() {}
