//! What a controller's look at one object yields.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::effect::Effect;

/// What to do now, and when to look again if nothing changes until then.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Decision {
    pub(crate) effects: Vec<Effect>,
    pub(crate) again: Option<Time>,
}

impl Decision {
    pub(crate) fn effects(effects: Vec<Effect>) -> Self {
        Self { effects, again: None }
    }

    pub(crate) fn again_at(mut self, time: Time) -> Self {
        self.again = Some(self.again.map_or(time.clone(), |sooner| sooner.min(time)));
        self
    }
}

/// Kubernetes leaves counts of zero out of a status.
pub(crate) fn nonzero(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}
