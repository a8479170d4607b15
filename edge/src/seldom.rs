//! Log lines that strangers can cause.
//!
//! Decides that such a line is written now and then only, with how many were left out, so that a flood of what is refused
//! is neither a flood of log lines nor kept anywhere. Metrics count every one.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use tokio::time::Instant;

/// How often one kind of such lines is written at most.
pub const LOG_EVERY: Duration = Duration::from_secs(5);

/// One kind of such lines.
#[derive(Debug)]
pub struct Seldom {
    origin: Instant,
    /// From when on the next one may be written, in milliseconds after the origin.
    next: AtomicU64,
    left_out: AtomicU64,
}

impl Default for Seldom {
    fn default() -> Self {
        Self {
            origin: Instant::now(),
            next: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
        }
    }
}

impl Seldom {
    /// Whether a line may be written now; how many were left out since the last.
    pub fn line(&self) -> Option<u64> {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let (now, next) = (millis(self.origin.elapsed()), self.next.load(Relaxed));
        // Of those that come at once, one writes.
        let mine = now >= next
            && self
                .next
                .compare_exchange(next, now.saturating_add(millis(LOG_EVERY)), Relaxed, Relaxed)
                .is_ok();
        if mine {
            return Some(self.left_out.swap(0, Relaxed));
        }
        self.left_out.fetch_add(1, Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn of_a_flood_one_line_is_written_now_and_then_and_the_rest_counted() {
        let seldom = Seldom::default();
        assert_eq!(seldom.line(), Some(0));
        assert!((0..1_000).all(|_| seldom.line().is_none()));
        tokio::time::advance(LOG_EVERY).await;
        assert_eq!((seldom.line(), seldom.line()), (Some(1_000), None));
    }
}
