//! Lets a few look at a time: a look at a file of the host takes a thread, one at a server takes a client with the
//! authorities that it trusts, and whoever has a thousand Datasets has little memory for either.
//!
//! Nobody waits for a place that hangs: while no turn ends there is one more each second. So where all hang, few do at once.

use std::{
    pin::pin,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

/// Turns at once, where none takes long.
const AT_ONCE: usize = 4;

/// For so long one waits while no turn ends.
const PATIENCE: Duration = Duration::from_secs(1);

/// The turns to look at places of one sort.
#[derive(Debug)]
pub(super) struct Turns {
    free: Semaphore,
    /// How many turns have ended or were added.
    moved: AtomicU64,
    /// How many there are beyond [`AT_ONCE`].
    added: AtomicUsize,
}

/// A turn, until it is dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    permit: Option<SemaphorePermit<'a>>,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            free: Semaphore::new(AT_ONCE),
            moved: AtomicU64::new(0),
            added: AtomicUsize::new(0),
        }
    }
}

impl Turns {
    /// Waits for a turn.
    pub(super) async fn take(&self) -> Turn<'_> {
        let mut free = pin!(self.free.acquire());
        loop {
            let before = self.moved.load(Ordering::Relaxed);
            if let Ok(permit) = timeout(PATIENCE, free.as_mut()).await {
                return Turn {
                    turns: self,
                    permit: permit.ok(),
                };
            }
            // Of all that wait, one.
            let (next, order) = (before.wrapping_add(1), Ordering::Relaxed);
            if self.moved.compare_exchange(before, next, order, order).is_ok() {
                self.added.fetch_add(1, Ordering::Relaxed);
                self.free.add_permits(1);
            }
        }
    }

    /// Takes one away that was added, unless somebody waits for it.
    fn shrink(&self) {
        let order = Ordering::Relaxed;
        if self
            .added
            .fetch_update(order, order, |added| added.checked_sub(1))
            .is_err()
        {
            return;
        }
        match self.free.try_acquire() {
            Ok(surplus) => surplus.forget(),
            Err(_) => drop(self.added.fetch_add(1, order)),
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.moved.fetch_add(1, Ordering::Relaxed);
        drop(self.permit.take());
        self.turns.shrink();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures::future::join_all;
    use tokio::time::{Instant, sleep};

    use super::*;

    /// Looks of a crowd that take so long each: how many there were at once, and how long it took.
    async fn look(turns: &Turns, crowd: usize, long: Duration) -> (usize, Duration) {
        let (now, most, began) = (Cell::new(0), Cell::new(0), Instant::now());
        let looks = (0..crowd).map(|_| async {
            let _turn = turns.take().await;
            now.set(now.get() + 1);
            most.set(most.get().max(now.get()));
            sleep(long).await;
            now.set(now.get() - 1);
        });
        join_all(looks).await;
        (most.get(), began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_a_turn_and_hangs_keeps_no_other_waiting() {
        let turns = Turns::default();
        let hanging = join_all((0..AT_ONCE).map(|_| turns.take())).await;
        let quick = Duration::from_millis(1);
        assert_eq!(look(&turns, 100, quick).await, (1, PATIENCE + 100 * quick));
        drop(hanging);
        assert_eq!(turns.free.available_permits(), AT_ONCE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_waits_for_as_long_as_turns_end() {
        let (most, took) = look(&Turns::default(), 10 * AT_ONCE, PATIENCE.mul_f64(0.9)).await;
        assert_eq!((most, took), (AT_ONCE, PATIENCE.mul_f64(9.0)));
    }

    #[tokio::test(start_paused = true)]
    async fn where_all_hang_for_a_while_few_do_at_once() {
        let turns = Turns::default();
        let (most, took) = look(&turns, 1000, 10 * PATIENCE).await;
        assert!((AT_ONCE + 1..AT_ONCE + 12).contains(&most), "{most}");
        assert!(took < 1000 * PATIENCE, "{took:?}");
        assert_eq!(turns.free.available_permits(), AT_ONCE, "none stays");
    }
}
