//! Reproducible random numbers.

/// A pseudo-random number generator (xorshift64); the state must not be 0.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    /// Returns the next number, of up to 53 bits.
    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }
}
