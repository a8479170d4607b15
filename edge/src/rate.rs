//! How often each of many may do something.
//!
//! Decides by a bucket for each: so many at once, and one more after each such time. A bucket that is full again is not kept,
//! and no more than so many are: whoever comes beyond these waits for one of them.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The buckets of all.
#[derive(Debug)]
pub struct Rates {
    at_once: u32,
    every: Duration,
    counted: usize,
    /// When each bucket will be full again.
    full_at: Mutex<HashMap<String, Instant>>,
}

impl Rates {
    /// Buckets of `at_once` that get one back after each `every`, of which `counted` are kept.
    pub fn new(at_once: u32, every: Duration, counted: usize) -> Self {
        Self {
            at_once,
            every,
            counted,
            full_at: Mutex::default(),
        }
    }

    /// Takes one out of somebody's bucket; otherwise, after how long there will be one.
    pub fn take(&self, who: &str) -> Result<(), Duration> {
        let (now, whole) = (Instant::now(), self.every * self.at_once);
        let mut buckets = self.buckets();
        if buckets.len() >= self.counted && !buckets.contains_key(who) {
            buckets.retain(|_, full_at| *full_at > now);
            if buckets.len() >= self.counted {
                return Err(self.every);
            }
        }
        let full_at = buckets.entry(who.to_owned()).or_insert(now);
        let next = (*full_at).max(now) + self.every;
        let ahead = next.saturating_duration_since(now + whole);
        if !ahead.is_zero() {
            return Err(ahead);
        }
        *full_at = next;
        Ok(())
    }

    /// Puts one back that was taken for what does not count.
    pub fn put_back(&self, who: &str) {
        if let Some(full_at) = self.buckets().get_mut(who) {
            *full_at = full_at.checked_sub(self.every).unwrap_or(*full_at);
        }
    }

    fn buckets(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.full_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: u32 = 500;
    const EVERY: Duration = Duration::from_millis(20);
    const COUNTED: usize = 1024;

    fn rates() -> Rates {
        Rates::new(AT_ONCE, EVERY, COUNTED)
    }

    fn taken(rates: &Rates, who: &str) -> usize {
        (0..10 * AT_ONCE).take_while(|_| rates.take(who).is_ok()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn each_has_so_many_at_once_and_then_so_many_a_second() {
        let rates = rates();
        assert_eq!(taken(&rates, "a"), AT_ONCE as usize);
        assert_eq!(rates.take("a"), Err(EVERY));
        assert_eq!(taken(&rates, "b"), AT_ONCE as usize, "another one");
        tokio::time::advance(EVERY * 3).await;
        assert_eq!(taken(&rates, "a"), 3);
        tokio::time::advance(EVERY * 2 * AT_ONCE).await;
        assert_eq!(taken(&rates, "a"), AT_ONCE as usize, "no more is saved up");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_put_back_can_be_taken_and_no_more() {
        let rates = rates();
        rates.put_back("a");
        assert_eq!(taken(&rates, "a"), AT_ONCE as usize);
        rates.put_back("a");
        assert_eq!(taken(&rates, "a"), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_have_been_quiet_are_forgotten() {
        let rates = rates();
        for who in 0..COUNTED {
            rates.take(&who.to_string()).unwrap();
        }
        assert!(rates.take("one more").is_err());
        assert!(rates.take("0").is_ok(), "those that are known go on");
        tokio::time::advance(EVERY).await;
        assert!(rates.take("one more").is_ok());
        assert_eq!(rates.buckets().len(), 2);
    }
}
