//! Lets a few look at a time: a look at a file of the host takes a thread, one at a server takes a client with the
//! authorities that it trusts, and whoever has a thousand Datasets has little memory for either.
//!
//! Nobody waits for a place that hangs: while no turn ends, those that wait go without one.

use std::{
    pin::pin,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

/// Turns at once.
const AT_ONCE: usize = 4;

/// For so long one waits while no turn ends.
const PATIENCE: Duration = Duration::from_secs(1);

/// The turns to look at places of one sort.
#[derive(Debug)]
pub(super) struct Turns {
    free: Semaphore,
    ended: AtomicU64,
}

/// A turn, until it is dropped.
pub(super) struct Turn<'a> {
    ended: &'a AtomicU64,
    _permit: SemaphorePermit<'a>,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            free: Semaphore::new(AT_ONCE),
            ended: AtomicU64::new(0),
        }
    }
}

impl Turns {
    /// Waits for a turn; none where those that have one take too long.
    pub(super) async fn take(&self) -> Option<Turn<'_>> {
        let mut free = pin!(self.free.acquire());
        loop {
            let before = self.ended.load(Ordering::Relaxed);
            match timeout(PATIENCE, free.as_mut()).await {
                Ok(permit) => {
                    return permit.ok().map(|permit| Turn {
                        ended: &self.ended,
                        _permit: permit,
                    });
                }
                Err(_) if self.ended.load(Ordering::Relaxed) == before => return None,
                Err(_) => {}
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_has_a_turn_and_hangs_keeps_no_other_waiting() {
        let turns = Turns::default();
        let hanging = join_all((0..AT_ONCE).map(|_| turns.take())).await;
        assert!(hanging.iter().all(Option::is_some));
        let began = Instant::now();
        assert!(turns.take().await.is_none());
        assert_eq!(began.elapsed(), PATIENCE);
        drop(hanging);
        assert!(turns.take().await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_waits_for_as_long_as_turns_end() {
        let turns = Turns::default();
        let began = Instant::now();
        let looks = (0..10 * AT_ONCE).map(|_| async {
            let turn = turns.take().await;
            sleep(PATIENCE.mul_f64(0.9)).await;
            turn.is_some()
        });
        assert!(join_all(looks).await.into_iter().all(|had| had));
        assert!(began.elapsed() >= PATIENCE.mul_f64(9.0));
    }
}
