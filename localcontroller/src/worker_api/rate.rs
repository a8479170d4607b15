//! How often a worker may report.
//!
//! Decides by a bucket for each worker: [`limits::BURST`] messages at once, and one more after each [`limits::EVERY`]. A
//! bucket that is full again is not kept.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::limits;

/// The buckets of all workers.
#[derive(Debug, Default)]
pub(super) struct Rates {
    /// When each bucket will be full again.
    full_at: Mutex<HashMap<String, Instant>>,
}

impl Rates {
    /// Takes a message out of a worker's bucket; otherwise, after how long there will be one.
    pub(super) fn take(&self, worker: &str) -> Result<(), Duration> {
        let (now, whole) = (Instant::now(), limits::EVERY * limits::BURST);
        let mut buckets = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= limits::COUNTED && !buckets.contains_key(worker) {
            buckets.retain(|_, full_at| *full_at > now);
            if buckets.len() >= limits::COUNTED {
                return Err(limits::EVERY);
            }
        }
        let full_at = buckets.entry(worker.to_owned()).or_insert(now);
        let next = (*full_at).max(now) + limits::EVERY;
        let ahead = next.saturating_duration_since(now + whole);
        if !ahead.is_zero() {
            return Err(ahead);
        }
        *full_at = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(rates: &Rates, worker: &str) -> usize {
        (0..10 * limits::BURST)
            .take_while(|_| rates.take(worker).is_ok())
            .count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_may_send_a_burst_and_then_so_many_a_second() {
        let rates = Rates::default();
        assert_eq!(taken(&rates, "a"), limits::BURST as usize);
        assert_eq!(rates.take("a"), Err(limits::EVERY));
        assert_eq!(taken(&rates, "b"), limits::BURST as usize, "another worker");
        tokio::time::advance(limits::EVERY * 3).await;
        assert_eq!(taken(&rates, "a"), 3);
        tokio::time::advance(limits::EVERY * 2 * limits::BURST).await;
        assert_eq!(taken(&rates, "a"), limits::BURST as usize, "no more is saved up");
    }

    #[tokio::test(start_paused = true)]
    async fn workers_that_have_been_quiet_are_forgotten() {
        let rates = Rates::default();
        for worker in 0..limits::COUNTED {
            rates.take(&worker.to_string()).unwrap();
        }
        assert!(rates.take("one more").is_err());
        assert!(rates.take("0").is_ok(), "those that are known go on");
        tokio::time::advance(limits::EVERY).await;
        assert!(rates.take("one more").is_ok());
        assert_eq!(rates.full_at.lock().unwrap().len(), 2);
    }
}
