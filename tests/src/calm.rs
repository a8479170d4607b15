//! When nothing more is to come on a real control plane: what its objects say about work that is under way. Pure.
//!
//! It knows what the built-in controllers, the scheduler and kubelets do to a settled end, and nothing of ours: the
//! manager tells for itself. Work that never comes to an end (a rollout that is stuck, say) is named here, too; for how
//! long it is waited for is up to whoever asks.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::DynamicObject;
use serde_json::Value;

use crate::look::text;

/// What is awaited of an object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// What may never come: a rollout that is stuck, say.
    Perhaps(String),
    /// What is up to Kubernetes alone.
    Surely(String),
}

/// The objects of a namespace, by kind and name.
#[derive(Default)]
pub(crate) struct Objects {
    known: BTreeMap<(&'static str, String), DynamicObject>,
    /// The kinds of which a list is under way, or nothing was heard since a watch was lost: what is known of them may be old.
    unsure: BTreeSet<&'static str>,
}

impl Objects {
    /// Remembers an object as it is now.
    pub(crate) fn seen(&mut self, kind: &'static str, object: DynamicObject) {
        let name = object.metadata.name.clone().unwrap_or_default();
        self.known.insert((kind, name), object);
    }

    /// Forgets an object that is gone.
    pub(crate) fn gone(&mut self, kind: &'static str, object: &DynamicObject) {
        let name = object.metadata.name.clone().unwrap_or_default();
        self.known.remove(&(kind, name));
    }

    /// Forgets all objects of a kind, of which a list is to come.
    pub(crate) fn listed_anew(&mut self, kind: &'static str) {
        self.known.retain(|(known, _), _| *known != kind);
        self.lost(kind);
    }

    /// A watch of a kind was lost.
    pub(crate) fn lost(&mut self, kind: &'static str) {
        self.unsure.insert(kind);
    }

    /// All of a kind was heard again.
    pub(crate) fn heard(&mut self, kind: &'static str) {
        self.unsure.remove(kind);
    }

    /// The first object with which somebody is not done yet, and what is awaited.
    pub(crate) fn under_way(&self) -> Option<Awaited> {
        let is_held_back = self.known.values().any(is_held);
        let mut perhaps = None;
        for ((kind, name), object) in &self.known {
            let Some(awaited) = self.awaited(kind, object) else {
                continue;
            };
            let told = format!("{kind} {name}: {awaited}");
            // A pod's kubelet may be gone for good, and then so is whoever would end it.
            let is_sure = awaited == COLLECTED || (awaited == ITS_END && *kind != "Pod");
            if is_sure && !is_held_back {
                return Some(Awaited::Surely(told));
            }
            perhaps = perhaps.or(Some(Awaited::Perhaps(told)));
        }
        let unheard = || {
            self.unsure
                .first()
                .map(|kind| Awaited::Perhaps(format!("news of {kind}s")))
        };
        perhaps.or_else(unheard)
    }

    fn awaited(&self, kind: &str, object: &DynamicObject) -> Option<&'static str> {
        if object.metadata.deletion_timestamp.is_some() {
            return is_going(object).then_some(ITS_END);
        }
        if self.is_left_behind(object) {
            return Some(COLLECTED);
        }
        match kind {
            "Deployment" => self.of_deployment(object),
            "ReplicaSet" => self.of_replica_set(object),
            "Pod" => of_pod(object),
            _ => None,
        }
    }

    /// Whether its owner is gone.
    fn is_left_behind(&self, object: &DynamicObject) -> bool {
        let owners: Vec<_> = object.metadata.owner_references.iter().flatten().collect();
        let there: BTreeSet<_> = self
            .known
            .values()
            .filter_map(|owner| owner.metadata.uid.as_ref())
            .collect();
        !owners.is_empty() && !owners.iter().any(|owner| there.contains(&owner.uid))
    }

    fn of_deployment(&self, deployment: &DynamicObject) -> Option<&'static str> {
        if is_unobserved(deployment) {
            return Some("its controller");
        }
        let sets: Vec<_> = self.owned("ReplicaSet", deployment).collect();
        let total = |pointer| sets.iter().map(|set| number(&set.data, pointer)).sum::<i64>();
        for of_all in ["/status/replicas", "/status/readyReplicas"] {
            if number(&deployment.data, of_all) != total(of_all) {
                return Some("the sum of its ReplicaSets");
            }
        }
        let wanted = number(&deployment.data, "/spec/replicas");
        let all_are = |count| number(&deployment.data, count) == wanted;
        if !all_are("/status/updatedReplicas") {
            return Some("its rollout");
        }
        let kept = number(&deployment.data, "/spec/revisionHistoryLimit") + 1;
        let is_complete = all_are("/status/replicas") && all_are("/status/availableReplicas");
        let are_too_many = i64::try_from(sets.len()).is_ok_and(|sets| sets > kept);
        (is_complete && are_too_many).then_some("the end of its old ReplicaSets")
    }

    fn of_replica_set(&self, set: &DynamicObject) -> Option<&'static str> {
        if is_unobserved(set) {
            return Some("its controller");
        }
        let live = |pod: &&DynamicObject| pod.metadata.deletion_timestamp.is_none() && !is_finished(pod);
        let pods: Vec<_> = self.owned("Pod", set).filter(live).collect();
        let ready = pods.iter().filter(|pod| is_ready(pod)).count();
        let counts = [
            ("/spec/replicas", pods.len()),
            ("/status/replicas", pods.len()),
            ("/status/readyReplicas", ready),
        ];
        let differs = |&(pointer, count): &(&str, usize)| i64::try_from(count) != Ok(number(&set.data, pointer));
        counts.iter().any(differs).then_some("its pods")
    }

    fn owned(&self, kind: &'static str, owner: &DynamicObject) -> impl Iterator<Item = &DynamicObject> {
        let uid = owner.metadata.uid.clone().unwrap_or_default();
        let objects = self.known.iter().filter(move |((known, _), _)| *known == kind);
        let is_owned = move |object: &&DynamicObject| {
            let mut owners = object.metadata.owner_references.iter().flatten();
            owners.any(|owner| owner.uid == uid)
        };
        objects.map(|(_, object)| object).filter(is_owned)
    }
}

/// What is awaited of an object that was deleted.
const ITS_END: &str = "its end";
/// What is awaited of an object whose owner is gone: the garbage collector may be busy with what it learns of kinds.
const COLLECTED: &str = "to be collected";

/// Whether somebody holds it back who is not Kubernetes: then whatever waits for its end may wait for ever.
fn is_held(object: &DynamicObject) -> bool {
    let mut finalizers = object.metadata.finalizers.iter().flatten();
    finalizers.any(|finalizer| !KUBERNETES.contains(&finalizer.as_str()))
}

/// Kubernetes' own finalizers.
const KUBERNETES: [&str; 2] = ["orphan", "foregroundDeletion"];

/// Whether nobody but Kubernetes itself holds back what is deleted.
fn is_going(object: &DynamicObject) -> bool {
    let mut finalizers = object.metadata.finalizers.iter().flatten();
    finalizers.all(|finalizer| KUBERNETES.contains(&finalizer.as_str()))
}

fn is_unobserved(object: &DynamicObject) -> bool {
    let observed = number(&object.data, "/status/observedGeneration");
    object
        .metadata
        .generation
        .is_some_and(|generation| generation != observed)
}

fn of_pod(pod: &DynamicObject) -> Option<&'static str> {
    if is_finished(pod) {
        return None;
    }
    if text(&pod.data, "/spec/nodeName").is_empty() {
        return Some("a node");
    }
    let statuses = pod.data.pointer("/status/containerStatuses").and_then(Value::as_array);
    let Some(statuses) = statuses else {
        return Some("its kubelet");
    };
    let passing = |status: &Value| {
        let reason = text(status, "/state/waiting/reason");
        ["ContainerCreating", "ErrImagePull"].contains(&reason)
    };
    statuses.iter().any(passing).then_some("its containers")
}

fn is_finished(pod: &DynamicObject) -> bool {
    ["Succeeded", "Failed"].contains(&text(&pod.data, "/status/phase"))
}

fn is_ready(pod: &DynamicObject) -> bool {
    let conditions = pod.data.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn number(value: &Value, pointer: &str) -> i64 {
    value.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn put(objects: &mut Objects, kind: &'static str, object: Value) {
        objects.seen(kind, serde_json::from_value(object).unwrap());
    }

    fn owned_by(uid: &str) -> Value {
        json!([{"apiVersion": "v1", "kind": "K", "name": "n", "uid": uid}])
    }

    #[test]
    fn of_what_is_listed_anew_nothing_is_known_until_it_is_there() {
        let mut objects = Objects::default();
        put(&mut objects, "Service", json!({"metadata": {"name": "s"}}));
        assert_eq!(objects.under_way(), None);
        for unsure in [Objects::lost, Objects::listed_anew] {
            unsure(&mut objects, "Service");
            assert!(matches!(objects.under_way(), Some(Awaited::Perhaps(_))));
            objects.heard("Service");
            assert_eq!(objects.under_way(), None);
        }
    }

    /// A Deployment of one pod that is up, with an earlier template, but for one object that is as given.
    fn but_for(kind: &'static str, changed: &Value) -> Option<Awaited> {
        let mut objects = Objects::default();
        let counts = json!({"observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1,
            "availableReplicas": 1});
        let up = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"state": {"running": {}}}]});
        let all = [
            (
                "Deployment",
                json!({"metadata": {"name": "d", "uid": "d", "generation": 1},
                "spec": {"replicas": 1, "revisionHistoryLimit": 10}, "status": counts}),
            ),
            (
                "ReplicaSet",
                json!({"metadata": {"name": "r", "uid": "r", "generation": 1,
                "ownerReferences": owned_by("d")}, "spec": {"replicas": 1}, "status": counts}),
            ),
            (
                "Pod",
                json!({"metadata": {"name": "p", "uid": "p", "ownerReferences": owned_by("r")},
                "spec": {"nodeName": "n"}, "status": up}),
            ),
        ];
        let old = json!({"metadata": {"name": "old", "ownerReferences": owned_by("d")}, "spec": {"replicas": 0}});
        put(&mut objects, "ReplicaSet", old);
        for (known, mut object) in all {
            if known == kind {
                json_patch(&mut object, changed);
            }
            put(&mut objects, known, object);
        }
        objects.under_way()
    }

    fn told(awaited: Option<Awaited>) -> Option<String> {
        awaited.map(|(Awaited::Perhaps(told) | Awaited::Surely(told))| told)
    }

    fn json_patch(into: &mut Value, patch: &Value) {
        match (into, patch) {
            (Value::Object(into), Value::Object(patch)) => {
                for (key, value) in patch {
                    json_patch(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
            (into, patch) => *into = patch.clone(),
        }
    }

    #[test]
    fn what_is_up_awaits_nothing_and_each_step_towards_it_is_known() {
        assert_eq!(but_for("", &json!({})), None);
        let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let held = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.org/x"]}});
        for (kind, changed, awaited) in [
            (
                "Deployment",
                json!({"metadata": {"generation": 2}}),
                Some("Deployment d: its controller"),
            ),
            (
                "Deployment",
                json!({"spec": {"replicas": 2}}),
                Some("Deployment d: its rollout"),
            ),
            (
                "Deployment",
                json!({"spec": {"revisionHistoryLimit": 0}}),
                Some("Deployment d: the end of its old ReplicaSets"),
            ),
            (
                "ReplicaSet",
                json!({"status": {"readyReplicas": 0}}),
                Some("Deployment d: the sum of its ReplicaSets"),
            ),
            (
                "ReplicaSet",
                json!({"spec": {"replicas": 2}}),
                Some("ReplicaSet r: its pods"),
            ),
            ("ReplicaSet", deleted.clone(), Some("ReplicaSet r: its end")),
            (
                "Pod",
                json!({"status": {"phase": "Failed"}}),
                Some("ReplicaSet r: its pods"),
            ),
            ("Pod", json!({"spec": {"nodeName": ""}}), Some("Pod p: a node")),
            (
                "Pod",
                json!({"status": {"containerStatuses": null}}),
                Some("Pod p: its kubelet"),
            ),
            (
                "Pod",
                json!({"metadata": {"ownerReferences": owned_by("gone")}}),
                Some("Pod p: to be collected"),
            ),
            ("Deployment", held, None),
        ] {
            assert_eq!(told(but_for(kind, &changed)).as_deref(), awaited, "{kind} {changed}");
        }
        assert_eq!(told(but_for("Pod", &deleted)).as_deref(), Some("Pod p: its end"));
    }
}
