//! How old the node's store is, and what is given up because of its age.
//!
//! Nothing here asks what time it is: a node's clock may be wrong by years, and may be put right while reports wait. Age is
//! the time for which the store has been open, summed up over all starts and kept in it. While the local controller is down
//! nothing grows older, so that nothing is given up too early.

use std::time::Duration;

use super::{
    error::StoreError,
    outbox::{Class, give_up},
    writer::Database,
};

/// How the age goes on.
pub(super) struct Age {
    /// How old the store was when it was opened.
    base: Duration,
    /// For how long it has been open, by a clock that never goes back.
    open: Box<dyn Fn() -> Duration + Send>,
}

impl Age {
    /// Goes on from nothing, until the store says from where.
    pub(super) fn new(open: impl Fn() -> Duration + Send + 'static) -> Self {
        Self {
            base: Duration::ZERO,
            open: Box::new(open),
        }
    }

    /// How old the store is, in seconds.
    pub(super) fn seconds(&self) -> u64 {
        (self.base + (self.open)()).as_secs()
    }
}

impl Database {
    /// Reads how old the store was when it was closed.
    pub(super) fn read_age(&mut self) -> Result<(), StoreError> {
        let seconds = self.first("SELECT seconds FROM age", [], |row| row.get(0))?;
        let seconds = seconds.ok_or_else(|| StoreError::damaged("the store has lost its age"))?;
        self.age.base = Duration::from_secs(seconds);
        Ok(())
    }

    /// How old the store is now, in seconds: kept, so that it goes on from there.
    pub(super) fn keep_age(&mut self) -> Result<u64, StoreError> {
        let seconds = self.age.seconds();
        self.execute("UPDATE age SET seconds = ?1 WHERE seconds < ?1", [seconds])?;
        Ok(seconds)
    }

    /// Gives up figures that are too old, which are counted in a gap; how many there were.
    pub(super) fn give_up_old(&mut self) -> Result<u64, StoreError> {
        let now = self.keep_age()?;
        let Some(until) = now.checked_sub(self.limits.metrics_age.as_secs()) else {
            return Ok(0);
        };
        let old = self.all(
            "SELECT seq FROM outbox WHERE class = ?1 AND born < ?2 ORDER BY seq",
            [Class::Metrics as u64, until],
            |row| row.get(0),
        )?;
        give_up(self, old)
    }
}
