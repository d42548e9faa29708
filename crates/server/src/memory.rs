//! Gives memory back to the system, and reserves little of the address space.

/// Allocations from this size on are given back as soon as they are freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE: i32 = 1 << 20;

/// The most arenas from which threads allocate. Each reserves 64 MB of the address space and keeps some of what is freed;
/// glibc would have eight for each core.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const ARENAS: std::ops::RangeInclusive<usize> = 2..=8;

/// Sets the allocator up; to be called before any thread is started.
///
/// Large allocations are given back as soon as they are freed. Hashing a password takes 7 MiB for a moment. Left to
/// itself, glibc raises its idea of a large allocation to that size after the first one, and from then on every thread that
/// hashes keeps as much for good.
///
/// There are as many arenas as cores, within bounds, so that the server runs where the address space is limited.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn set_allocator_up() {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let arenas = i32::try_from(cores.clamp(*ARENAS.start(), *ARENAS.end())).unwrap_or(2);
    #[expect(unsafe_code, reason = "mallopt has no safe wrapper; it is called before any thread is started")]
    // SAFETY: `mallopt` takes two integers and only changes parameters of the allocator.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_ARENA_MAX, arenas);
    }
}

/// Other allocators do so by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn set_allocator_up() {}
