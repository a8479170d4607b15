//! Uids and the random parts of names, from a seed: the same requests in the same order give the same ids.

use rand::{Rng, SeedableRng, rngs::StdRng};

/// The letters that Kubernetes uses for generated names: no vowels, nothing that is mistaken for another.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Length of a generated suffix.
const SUFFIX: usize = 5;

/// The longest prefix that a suffix is put after; longer ones are cut (a name has at most 63 characters).
const PREFIX_MAX: usize = 63 - SUFFIX;

/// Makes ids.
pub(super) struct Ids(StdRng);

impl Ids {
    pub(super) fn seeded(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    pub(super) fn uid(&mut self) -> String {
        uuid::Builder::from_random_bytes(self.0.random())
            .into_uuid()
            .to_string()
    }

    /// `metadata.generateName` with a suffix.
    pub(super) fn name(&mut self, prefix: &str) -> String {
        let mut name: String = prefix.chars().take(PREFIX_MAX).collect();
        for _ in 0..SUFFIX {
            let letter = LETTERS
                .get(self.0.random_range(0..LETTERS.len()))
                .copied()
                .unwrap_or(b'x');
            name.push(char::from(letter));
        }
        name
    }

    pub(super) fn up_to(&mut self, limit: u64) -> u64 {
        self.0.random_range(0..limit.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_ids() {
        let (mut a, mut b) = (Ids::seeded(7), Ids::seeded(7));
        assert_eq!((a.uid(), a.name("x-")), (b.uid(), b.name("x-")));
        assert_ne!(a.uid(), Ids::seeded(8).uid());
    }

    #[test]
    fn long_prefixes_are_cut() {
        assert_eq!(Ids::seeded(0).name(&"a".repeat(100)).len(), 63);
    }
}
