//! Whose turn it is, where not all may write at once.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::ResourceKey;

/// Turns that resources wait for: one after the other, as they asked.
#[derive(Debug, Default)]
pub(super) struct Turns {
    given: BTreeMap<ResourceKey, Instant>,
    /// The next turn that nobody has.
    free: Option<Instant>,
}

impl Turns {
    /// How long it is to the turn of this resource, which is `apart` from any other's. It keeps it until it is
    /// [over](Self::over).
    pub(super) fn wait(&mut self, key: &ResourceKey, apart: Duration) -> Duration {
        let now = Instant::now();
        let turn = *self.given.entry(key.clone()).or_insert_with(|| {
            let turn = self.free.map_or(now, |free| free.max(now));
            self.free = Some(turn + apart);
            turn
        });
        turn.saturating_duration_since(now)
    }

    /// The turn that this resource has been given, if it waits for one.
    pub(super) fn of(&self, key: &ResourceKey) -> Option<Instant> {
        self.given.get(key).copied()
    }

    /// This resource had its turn, or needs none any more.
    pub(super) fn over(&mut self, key: &ResourceKey) {
        self.given.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ObjectKind;

    #[tokio::test(start_paused = true)]
    async fn turns_follow_each_other_and_each_resource_has_one() {
        const APART: Duration = Duration::from_millis(20);
        let mut turns = Turns::default();
        let key = |name: &str| ResourceKey {
            kind: ObjectKind::DATASET,
            namespace: "default".to_owned(),
            name: name.to_owned(),
        };
        let wait = |turns: &mut Turns, name| turns.wait(&key(name), APART).as_millis();
        assert_eq!(["a", "b", "c", "b"].map(|name| wait(&mut turns, name)), [0, 20, 40, 20]);
        turns.over(&key("b"));
        assert_eq!(wait(&mut turns, "b"), 60, "what was told may be told again");
        turns.over(&key("c"));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(["c", "d", "b"].map(|name| wait(&mut turns, name)), [0, 20, 0]);
    }
}
