//! How many cores each part keeps busy: where all of them are, a figure says what the machine can do rather than what the
//! parts can.

use tokio::time::Instant;

use super::{
    super::{
        costs::{Costs, machine_seconds},
        manager::Manager,
    },
    fleet::Fleet,
};
use crate::failure::Failure;

/// Processor time that each part has used up to a moment, in seconds.
pub(super) struct Busy {
    at: Instant,
    used: [(&'static str, f64); 4],
}

impl Busy {
    /// Up to now. What is neither the manager's nor the nodes' nor the bench's is the API server's, where nothing else runs.
    pub(super) fn now(manager: &Manager, fleet: &Fleet) -> Result<Self, Failure> {
        Ok(Self {
            at: Instant::now(),
            used: [
                ("all", machine_seconds()?),
                ("manager", manager.costs.processor_seconds()?),
                ("nodes", fleet.costs()?.processor_seconds()?),
                ("bench", Costs::own()?.processor_seconds()?),
            ],
        })
    }

    /// Seconds since an earlier moment.
    pub(super) fn seconds_since(&self, before: &Self) -> f64 {
        self.at.duration_since(before.at).as_secs_f64()
    }

    /// Cores that each part kept busy since then, on the average.
    pub(super) fn since(&self, before: &Self) -> impl Iterator<Item = (&'static str, f64)> {
        let seconds = self.seconds_since(before);
        let parts = self.used.into_iter().zip(before.used);
        parts.map(move |((part, now), (_, then))| (part, (now - then) / seconds))
    }
}
