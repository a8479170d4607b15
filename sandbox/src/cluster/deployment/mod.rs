//! Deployments: which ReplicaSets a Deployment should have, of which size, and what its status says.
//!
//! ```text
//! template ──▶ the set whose template equals it ("new"; made when a rollout needs it, named by the template's hash)
//!              all other sets of the Deployment ("old")
//!
//! paused, or `replicas` changed ──▶ scale: the one active set follows; during a rollout all do in proportion
//! RollingUpdate ──▶ new grows within maxSurge, old shrink within maxUnavailable (unhealthy pods first)
//! Recreate ──▶ old to zero, wait for their pods to be gone, then new at full size
//! ```
//!
//! The rules, reasons and messages are those of Kubernetes 1.34's deployment controller. It never touches pods, and it
//! never decides on a Deployment that is being deleted beyond its status.

mod bounds;
mod recreate;
mod revision;
mod rolling;
mod rollout;
mod scale;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::claim::claim;
use super::decision::Decision;
use super::effect::{Announcement, Body, Effect};
use super::meta::{deleting, generation, reference};
use rollout::Rollout;
pub(crate) use status::set_refused;

/// The name under which this controller's events appear.
pub(crate) const COMPONENT: &str = "deployment-controller";

/// What to do about a Deployment, given all ReplicaSets and pods of its namespace.
pub(crate) fn reconcile(deployment: &Deployment, sets: &[Arc<ReplicaSet>], pods: &[Arc<Pod>], now: &Time) -> Decision {
    let Some(spec) = &deployment.spec else {
        return Decision::default();
    };
    if spec.selector.match_labels.is_none() && spec.selector.match_expressions.is_none() {
        return selects_everything(deployment);
    }
    let (claimed, mut effects) = claim(deployment, &spec.selector, sets.iter().cloned());
    let mut rollout = Rollout::new(deployment, &claimed, sets, now.clone());
    let again = if deleting(deployment) {
        rollout.status();
        None
    } else {
        rollout.note_pause();
        if spec.paused.unwrap_or_default() || rollout.replicas_changed() {
            rollout.scale();
            rollout.status();
            None
        } else {
            if bounds::rolling(deployment) {
                rollout.rolling();
            } else {
                rollout.recreate(pods);
            }
            rollout.rollout_status()
        }
    };
    effects.extend(rollout.finish());
    Decision { effects, again }
}

fn selects_everything(deployment: &Deployment) -> Decision {
    let mut effects = vec![Effect::Event(Announcement {
        about: reference(deployment),
        component: COMPONENT,
        warning: true,
        reason: "SelectingAll",
        message: "This deployment is selecting all pods. A non-empty selector is required.".to_owned(),
    })];
    let mut observed = deployment.clone();
    let status = observed.status.get_or_insert_default();
    if status.observed_generation.unwrap_or_default() < generation(deployment) {
        status.observed_generation = Some(generation(deployment));
        effects.push(Effect::UpdateStatus(Body::of(&observed)));
    }
    Decision::effects(effects)
}
