//! The server's only source of time: tokio's clock, shifted to a wall-clock base. Paused time gives virtual timestamps.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::time::Instant;

/// A clock. Copies tell the same time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base: Timestamp,
    start: Instant,
}

impl Clock {
    /// A clock that reads `base` now.
    pub fn starting_at(base: Timestamp) -> Self {
        Self {
            base,
            start: Instant::now(),
        }
    }

    /// The present time.
    pub fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.start.elapsed()).unwrap_or(SignedDuration::MAX);
        self.base.checked_add(elapsed).unwrap_or(Timestamp::MAX)
    }

    /// The present time plus `delay`.
    pub fn after(&self, delay: Duration) -> Timestamp {
        let delay = SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX);
        self.now().checked_add(delay).unwrap_or(Timestamp::MAX)
    }
}

/// Kubernetes' `metav1.Time`: whole seconds, cut off.
pub fn seconds(at: Timestamp) -> Value {
    Value::String(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}
