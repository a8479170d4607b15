//! One clock for all processes of a bench: when something happened is compared across them.

use std::time::Duration;

use nix::time::ClockId;

/// The time since the machine started.
pub(super) fn now() -> Duration {
    // This clock is always there.
    ClockId::CLOCK_MONOTONIC.now().map(Duration::from).unwrap_or_default()
}
