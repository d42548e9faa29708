//! Gives memory back to the system.

/// Allocations from this size on are given back as soon as they are freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE: i32 = 1 << 20;

/// Keeps the memory of large allocations from staying with the process.
///
/// Hashing a password takes 7 MiB for a moment. Left to itself, glibc raises its idea of a large allocation to that size
/// after the first one, and from then on every thread that hashes keeps as much for good.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn give_back_large_allocations() {
    #[expect(unsafe_code, reason = "mallopt has no safe wrapper; it is called before any thread is started")]
    // SAFETY: `mallopt` takes two integers and only changes parameters of the allocator.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
    }
}

/// Other allocators do so by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn give_back_large_allocations() {}
