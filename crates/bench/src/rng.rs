//! A deterministic pseudo-random number generator, and words for generated names.

const WORDS: [&str; 48] = [
    "amber", "anchor", "apple", "arrow", "basil", "beacon", "birch", "bridge", "canyon", "cedar", "cloud", "comet",
    "copper", "coral", "delta", "ember", "falcon", "fern", "forest", "garnet", "glacier", "harbor", "hazel", "heron",
    "indigo", "island", "jasper", "juniper", "lagoon", "lantern", "maple", "meadow", "nectar", "oasis", "orchid",
    "otter", "pebble", "prairie", "quartz", "raven", "river", "saffron", "sparrow", "thistle", "tundra", "velvet",
    "willow", "zephyr",
];

/// A SplitMix64 generator.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns a number from `first` to `last`, both included.
    pub(crate) fn range(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    pub(crate) fn word(&mut self) -> &'static str {
        word(self.next())
    }

    /// Returns an access level from guest to master.
    pub(crate) fn access_level(&mut self) -> u64 {
        10 * self.range(1, 4)
    }

    pub(crate) fn bytes(&mut self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.next().to_le_bytes());
        bytes[8..].copy_from_slice(&self.next().to_le_bytes());
        bytes
    }
}

pub(crate) fn word(number: u64) -> &'static str {
    usize::try_from(number % WORDS.len() as u64).ok().and_then(|at| WORDS.get(at)).copied().unwrap_or_default()
}

pub(crate) fn capitalize(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
