//! The API server's clock, as far as its answers show it.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use tokio::time::Instant;

/// Times in objects are whole seconds: something was written at some moment of that one.
const SECOND: Duration = Duration::from_secs(1);

/// What the API server's clock shows, seen from here. The two clocks need not agree: only what either measures is compared.
#[derive(Debug, Default)]
pub(super) struct ServerClock {
    /// It showed this second or a later one at that moment.
    shown: Option<(Timestamp, Instant)>,
}

impl ServerClock {
    /// By now, an answer has come that says that something was written in this second. Of all answers, the one counts whose
    /// second had begun the least before.
    pub(super) fn showed(&mut self, second: Timestamp, now: Instant) {
        if self.end_of(second).is_none_or(|end| now + SECOND < end) {
            self.shown = Some((second, now));
        }
    }

    /// When this second is over at the latest; not known while there was no answer.
    pub(super) fn end_of(&self, second: Timestamp) -> Option<Instant> {
        let (shown, then) = self.shown?;
        let later = second.duration_since(shown).unsigned_abs();
        let begins = if second < shown {
            then.checked_sub(later)
        } else {
            then.checked_add(later)
        };
        Some(begins? + SECOND)
    }
}

/// When the API server says that somebody last changed what an object declares. A status is none of that.
pub(super) fn last_declared(object: &impl ResourceExt) -> Option<Timestamp> {
    let entries = object.managed_fields().iter();
    let declared = entries.filter(|entry| entry.subresource.is_none());
    declared.filter_map(|entry| Some(entry.time.as_ref()?.0)).max()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{
        api::core::v1::Pod,
        apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time},
    };

    use super::*;

    fn second(number: i64) -> Timestamp {
        Timestamp::from_second(number).unwrap()
    }

    #[test]
    fn a_second_is_over_no_later_than_any_answer_shows() {
        let begun = Instant::now();
        let after = |seconds: f64| begun + Duration::from_secs_f64(seconds);
        let mut clock = ServerClock::default();
        assert_eq!(clock.end_of(second(100)), None);
        clock.showed(second(100), after(10.75));
        assert_eq!(clock.end_of(second(100)), Some(after(11.75)));
        assert_eq!(clock.end_of(second(105)), Some(after(16.75)));
        assert_eq!(clock.end_of(second(98)), Some(after(9.75)));
        // One that says more, and one that says less.
        clock.showed(second(103), after(13.25));
        assert_eq!(clock.end_of(second(105)), Some(after(16.25)));
        clock.showed(second(104), after(14.5));
        assert_eq!(clock.end_of(second(105)), Some(after(16.25)));
    }

    #[test]
    fn a_status_declares_nothing() {
        let entry = |subresource: Option<&str>, number| ManagedFieldsEntry {
            subresource: subresource.map(str::to_owned),
            time: Some(Time(second(number))),
            ..ManagedFieldsEntry::default()
        };
        let mut pod = Pod::default();
        assert_eq!(last_declared(&pod), None);
        pod.metadata.managed_fields = Some(vec![entry(None, 5), entry(None, 7), entry(Some("status"), 9)]);
        assert_eq!(last_declared(&pod), Some(second(7)));
    }
}
