//! Random numbers from a seed.

/// A generator of random numbers (SplitMix64).
#[derive(Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        value ^ (value >> 31)
    }

    /// Returns a number below a limit.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.next_u64() % limit).unwrap_or_default()
    }
}

/// Content that is generated from a seed, so that only the seed has to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) seed: u64,
    pub(crate) size: usize,
}

impl Content {
    /// Returns the bytes, which cannot be compressed.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut rng = Rng::new(self.seed);
        let mut bytes = Vec::with_capacity(self.size + 8);
        while bytes.len() < self.size {
            bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
        }
        bytes.truncate(self.size);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_depends_on_its_seed_only() {
        let content = Content { seed: 7, size: 1001 };
        assert_eq!(content.bytes().len(), 1001);
        assert_eq!(content.bytes(), content.bytes());
        assert_ne!(content.bytes(), Content { seed: 8, size: 1001 }.bytes());
    }
}
