//! Small questions about objects' metadata that every controller asks.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ObjectReference, Pod, PodCondition, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference, Time};
use kube::core::{Selector, SelectorExt};
use kube::{Resource, ResourceExt};

/// Namespace (empty for cluster-wide kinds) and name.
pub(crate) type Id = (String, String);

pub(crate) fn id<K: Resource>(object: &K) -> Id {
    let meta = object.meta();
    (
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}

pub(crate) fn uid<K: Resource>(object: &K) -> &str {
    object.meta().uid.as_deref().unwrap_or_default()
}

pub(crate) fn deleting<K: Resource>(object: &K) -> bool {
    object.meta().deletion_timestamp.is_some()
}

pub(crate) fn generation<K: Resource>(object: &K) -> i64 {
    object.meta().generation.unwrap_or_default()
}

/// The owner reference with `controller: true`.
pub(crate) fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true))
}

/// A reference to `owner` as its controller writes it into what it creates.
pub(crate) fn controller_reference<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.name_any(),
        uid: uid(owner).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// What an event about `object` names.
pub(crate) fn reference<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    ObjectReference {
        resource_version: object.resource_version(),
        ..object.object_ref(&())
    }
}

/// A selector from an object's spec. One that cannot be read, or that is empty, selects nothing: what it would match is
/// never what its author meant.
pub(crate) fn selects(selector: &LabelSelector, labels: Option<&BTreeMap<String, String>>) -> bool {
    static EMPTY: BTreeMap<String, String> = BTreeMap::new();
    let Ok(selector) = Selector::try_from(selector.clone()) else {
        return false;
    };
    !selector.selects_all() && selector.matches(labels.unwrap_or(&EMPTY))
}

/// Whether all of `wanted` are among `labels`.
pub(crate) fn has_labels(wanted: Option<&BTreeMap<String, String>>, labels: Option<&BTreeMap<String, String>>) -> bool {
    wanted
        .into_iter()
        .flatten()
        .all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
}

pub(crate) fn template_labels(template: &PodTemplateSpec) -> Option<&BTreeMap<String, String>> {
    template.metadata.as_ref().and_then(|meta| meta.labels.as_ref())
}

/// A count for a status field. Nobody has more pods than that.
pub(crate) fn count(items: usize) -> i32 {
    i32::try_from(items).unwrap_or(i32::MAX)
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("Pending")
}

pub(crate) fn finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Neither finished nor on its way out.
pub(crate) fn active(pod: &Pod) -> bool {
    !finished(pod) && !deleting(pod)
}

pub(crate) fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|node| !node.is_empty())
}

/// The condition `Ready`, if it holds.
fn readiness(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions
        .iter()
        .find(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Since when the pod has been ready, if it is and somebody wrote the time.
pub(crate) fn ready_since(pod: &Pod) -> Option<&Time> {
    readiness(pod)?.last_transition_time.as_ref()
}

pub(crate) fn ready(pod: &Pod) -> bool {
    readiness(pod).is_some()
}
