//! The strategy `Recreate`: no pod of the new template before the last one of the old is gone.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::super::meta::{controller_of, finished, uid};
use super::bounds;
use super::rollout::{Rollout, Set};

impl Rollout<'_> {
    pub(super) fn recreate(&mut self, pods: &[Arc<Pod>]) {
        let old = self.old();
        let active: Vec<usize> = old
            .iter()
            .copied()
            .filter(|index| self.sets.get(*index).is_some_and(|set| set.replicas() > 0))
            .collect();
        if !active.is_empty() {
            for index in active {
                self.resize(index, 0);
            }
            return;
        }
        if self.old_pods_remain(&old, pods) {
            return;
        }
        match self.new {
            None => self.create_new_set(),
            Some(index) => {
                let wanted = bounds::replicas(&self.deployment);
                self.resize(index, wanted);
            }
        }
        if self.complete(self.observed.status.as_ref()) {
            self.clean_up();
        }
    }

    /// Whether an old set counts pods, or a pod of one still exists, on its way out or not, that has not finished.
    fn old_pods_remain(&self, old: &[usize], pods: &[Arc<Pod>]) -> bool {
        let old: Vec<&Set> = old.iter().filter_map(|index| self.sets.get(*index)).collect();
        let uids: Vec<&str> = old.iter().map(|set| uid(&set.object)).collect();
        let of_old = |pod: &Pod| controller_of(&pod.metadata).is_some_and(|owner| uids.contains(&owner.uid.as_str()));
        old.iter().any(|set| set.actual() > 0) || pods.iter().any(|pod| of_old(pod) && !finished(pod))
    }
}
