//! Reproducible random choices: all come from one printed seed.

/// SplitMix64: small, and random enough to choose moments and kinds.
#[derive(Debug, Clone)]
pub(crate) struct Choices(u64);

impl Choices {
    /// Takes the seed from `TEST_SEED` or makes one, and prints it, so that a failure can be reproduced.
    pub(crate) fn new(name: &str) -> Self {
        let given = std::env::var("TEST_SEED").ok();
        let seed = given.map(|text| text.parse().expect("TEST_SEED is a number"));
        let seed = seed.unwrap_or_else(|| uuid::Uuid::now_v7().as_u64_pair().1 % 1_000_000_000);
        println!("{name}: TEST_SEED={seed}");
        Self(seed)
    }

    /// An independent generator for one of several actors.
    pub(crate) fn split(&mut self) -> Self {
        Self(self.next())
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
