//! Configures glibc's allocator to return memory to the system and to reserve little address space.

/// Allocations of at least this size are returned to the system when they are freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MMAP_THRESHOLD: i32 = 1 << 20;

/// The range of the number of arenas. Each reserves 64 MB of address space and retains freed memory; glibc's default is
/// eight per core.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const ARENA_COUNT: std::ops::RangeInclusive<usize> = 2..=8;

/// Configures the allocator; must be called before any thread is started.
///
/// Hashing a password allocates 7 MiB. By default glibc raises its threshold for large allocations to that size after the
/// first one, and every thread that hashes retains as much. A fixed threshold prevents that.
///
/// The number of arenas is the number of cores, within limits, so that the server runs where the address space is limited.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn configure_allocator() {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let arenas = i32::try_from(cores.clamp(*ARENA_COUNT.start(), *ARENA_COUNT.end())).unwrap_or(2);
    #[expect(unsafe_code, reason = "mallopt has no safe wrapper; it is called before any thread is started")]
    // SAFETY: `mallopt` takes two integers and only changes parameters of the allocator.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD);
        libc::mallopt(libc::M_ARENA_MAX, arenas);
    }
}

/// Other allocators need no configuration.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn configure_allocator() {}
