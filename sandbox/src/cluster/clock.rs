//! The cluster's time as its objects carry it. The clock itself is the API server's, which follows tokio's time, so that
//! a test under paused time sees timestamps that agree with its sleeps.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use tokio::time::Instant;

use crate::api::Clock;

/// What a clock shows, in Kubernetes' types.
pub(crate) trait Times {
    /// The time now, cut to whole seconds as `Time` is on the wire, so that an object that was sent equals the one that
    /// comes back.
    fn time(&self) -> Time;

    /// The time now, to the microsecond, as leases carry it.
    fn micro(&self) -> MicroTime;

    /// When the clock will show `time`; now, if that is past.
    fn instant(&self, time: &Time) -> Instant;
}

impl Times for Clock {
    fn time(&self) -> Time {
        let now = self.now();
        Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
    }

    fn micro(&self) -> MicroTime {
        let now = self.now();
        MicroTime(Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now))
    }

    fn instant(&self, time: &Time) -> Instant {
        let wait = time.0.duration_since(self.now());
        Instant::now() + Duration::try_from(wait).unwrap_or_default()
    }
}

/// `time` and `seconds` after it.
pub(crate) fn after(time: &Time, seconds: i32) -> Time {
    Time(
        time.0
            .checked_add(SignedDuration::from_secs(seconds.into()))
            .unwrap_or(time.0),
    )
}

/// Returns at `due`; never where nothing is due.
pub(crate) async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_instant_is_when_the_clock_shows_the_time() {
        let clock = Clock::starting_at("2026-01-01T00:00:00.5Z".parse().unwrap());
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(clock.time().0.to_string(), "2026-01-01T00:01:30Z");
        let soon = after(&clock.time(), 10);
        assert_eq!(clock.instant(&soon) - Instant::now(), Duration::from_millis(9500));
        assert_eq!(clock.instant(&after(&clock.time(), -10)), Instant::now());
    }
}
