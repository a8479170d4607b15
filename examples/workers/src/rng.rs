//! Repeatable pseudo-random numbers (SplitMix64): the same seed gives the same split of the data and the same model,
//! with every version of every library. Not for secrets.

/// A generator; equal seeds give equal sequences.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator that starts from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator that differs at each start, for what need not be repeatable.
    pub fn from_clock() -> Self {
        let since_epoch = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        Self(since_epoch.as_secs().rotate_left(32) ^ u64::from(since_epoch.subsec_nanos()))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `[0, 1)`.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit a f64 exactly")]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Puts the items in a random order (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let bound = last as u64 + 1;
            // The bias of the remainder is below 2⁻⁵⁰ for the sizes here.
            let chosen = usize::try_from(self.next() % bound).unwrap_or(last);
            items.swap(last, chosen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn equal_seeds_give_equal_orders_and_all_items_stay() {
        let shuffled = |seed| {
            let mut items: Vec<u32> = (0..100).collect();
            Rng::new(seed).shuffle(&mut items);
            items
        };
        assert_eq!(shuffled(1), shuffled(1));
        assert_ne!(shuffled(1), shuffled(2));
        let mut sorted = shuffled(1);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn unit_fills_its_interval_evenly() {
        let mut rng = Rng::new(7);
        let mut values: Vec<f64> = (0..10_000).map(|_| rng.unit()).collect();
        values.sort_by(f64::total_cmp);
        assert!(values[0] >= 0.0 && values[9_999] < 1.0);
        let deciles: Vec<f64> = values.iter().copied().step_by(1_000).collect();
        for (tenth, decile) in (0..10).zip(deciles) {
            assert!(
                (decile - f64::from(tenth) / 10.0).abs() < 0.02,
                "decile {tenth} is {decile}"
            );
        }
    }
}
