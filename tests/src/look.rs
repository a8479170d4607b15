//! What a scenario looks at: conditions, environment, events, and the state of a whole namespace in a form in which two
//! runs can be compared.

use std::{collections::BTreeMap, fmt::Debug};

use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::Deployment,
        autoscaling::v2::HorizontalPodAutoscaler,
        core::v1::{Pod, Service},
        events::v1::Event,
    },
};
use kube::{Resource, ResourceExt, api::ListParams};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use skerry_crds::sedna::v1alpha1::{Dataset, FederatedLearningJob, JointInferenceService, Model};

use crate::{server::Server, world::World};

/// Any kind of object of a namespace.
pub trait Seen:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Serialize
{
}

impl<K> Seen for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Serialize
{
}

impl World {
    /// The object, if there is one.
    pub async fn find<K: Seen>(&self, name: &str) -> Option<Value> {
        let found = self.view::<K>().get_opt(name).await.expect("the object can be read");
        found.map(|object| serde_json::to_value(object).expect("an object is JSON"))
    }

    /// The object, which must exist.
    pub async fn object<K: Seen>(&self, name: &str) -> Value {
        let found = self.find::<K>(name).await;
        found.unwrap_or_else(|| panic!("there is no {} {name}", K::kind(&())))
    }

    /// All objects of a kind, in order of name.
    pub async fn all<K: Seen>(&self) -> Vec<Value> {
        let found = self.view::<K>().list(&ListParams::default()).await;
        let found = found.expect("the objects can be listed");
        found
            .into_iter()
            .map(|object| serde_json::to_value(object).expect("an object is JSON"))
            .collect()
    }

    /// Their names.
    pub async fn names<K: Seen>(&self) -> Vec<String> {
        let found = self.view::<K>().list(&ListParams::default()).await;
        found
            .expect("the objects can be listed")
            .iter()
            .map(ResourceExt::name_any)
            .collect()
    }

    /// The object's uid.
    pub async fn uid<K: Seen>(&self, name: &str) -> String {
        text(&self.object::<K>(name).await, "/metadata/uid").to_owned()
    }

    /// A condition as `Status Reason: message`.
    pub async fn condition<K: Seen>(&self, name: &str, type_: &str) -> String {
        let object = self.object::<K>(name).await;
        told(&object, type_).unwrap_or_else(|| panic!("{name} has no condition {type_}: {}", object["status"]))
    }

    /// The same of an object of which nothing may have been told yet.
    pub async fn condition_if_told<K: Seen>(&self, name: &str, type_: &str) -> Option<String> {
        told(&self.object::<K>(name).await, type_)
    }

    /// The type of the last condition: for Sedna's clients, the state.
    pub async fn state<K: Seen>(&self, name: &str) -> String {
        let object = self.object::<K>(name).await;
        conditions(&object)
            .last()
            .map(|last| text(last, "/type").to_owned())
            .unwrap_or_default()
    }

    /// The types of all conditions.
    pub async fn condition_types<K: Seen>(&self, name: &str) -> Vec<String> {
        let object = self.object::<K>(name).await;
        conditions(&object)
            .iter()
            .map(|condition| text(condition, "/type").to_owned())
            .collect()
    }

    /// The events about an object as `Type Reason: note`, in order of their first time.
    pub async fn events_about(&self, name: &str) -> Vec<String> {
        let events = self.view::<Event>().list(&ListParams::default()).await;
        let mut events: Vec<_> = events
            .expect("events can be listed")
            .into_iter()
            .filter(|event| event.regarding.as_ref().and_then(|about| about.name.as_deref()) == Some(name))
            .collect();
        events.sort_by_key(|event| event.event_time.clone());
        events
            .into_iter()
            .map(|event| {
                let part = |part: Option<String>| part.unwrap_or_default();
                format!("{} {}: {}", part(event.type_), part(event.reason), part(event.note))
            })
            .collect()
    }

    /// All that a user may care about in the namespace, without what two runs that came to the same end may differ in:
    /// times, versions, uids, addresses, and the names that controllers made up.
    pub async fn outcome(&self) -> Value {
        let mut outcome = json!({
            "models": self.all::<Model>().await,
            "datasets": self.all::<Dataset>().await,
            "services": self.all::<JointInferenceService>().await,
            "jobs": self.all::<FederatedLearningJob>().await,
            "deployments": self.all::<Deployment>().await,
            "kubernetesServices": self.all::<Service>().await,
            "autoscalers": self.all::<HorizontalPodAutoscaler>().await,
            "pods": self.all::<Pod>().await,
            "nodes": self.held.all(),
        });
        if let Server::Cluster(_) = self.api {
            forget_made_up(&mut outcome);
        }
        let pods = outcome["pods"].as_array_mut().expect("pods are listed");
        pods.sort_by_cached_key(|pod| format!("{} {}", pod["metadata"]["labels"], pod["spec"]["containers"]));
        for pod in pods.iter_mut().filter(|pod| owner_kind(pod) == "ReplicaSet") {
            pod["metadata"] = json!({"labels": pod["metadata"]["labels"]});
        }
        for deployment in outcome["deployments"].as_array_mut().expect("Deployments are listed") {
            deployment["status"]["observedGeneration"].take();
        }
        strip(&mut outcome);
        outcome
    }
}

/// In memory uids are the same in each run. On a real control plane they are not, nor are the ends of names that derive
/// from them or are random.
fn forget_made_up(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(forget_made_up),
        Value::Array(elements) => elements.iter_mut().for_each(forget_made_up),
        Value::String(text) if MADE_UP.iter().any(|name| text.contains(name)) => {
            let words = text.split(' ').map(|word| match word.rsplit_once('-') {
                Some((name, end)) if end.len() == 5 && MADE_UP.iter().any(|made_up| name.starts_with(made_up)) => {
                    format!("{name}-")
                }
                _ => word.to_owned(),
            });
            *text = words.collect::<Vec<_>>().join(" ");
        }
        _ => {}
    }
}

/// Beginnings of names of which the end is made up.
const MADE_UP: [&str; 3] = ["surface-aggregation", "surface-train", "kube-api-access"];

fn owner_kind(object: &Value) -> &str {
    text(object, "/metadata/ownerReferences/0/kind")
}

/// What differs between two runs.
const PASSING: [&str; 25] = [
    "clusterIP",
    "clusterIPs",
    "collisionCount",
    "completionTime",
    "containerID",
    "creationTimestamp",
    "deployment.kubernetes.io/revision",
    "finishedAt",
    "generation",
    "lastHeartbeatTime",
    "lastProbeTime",
    "lastTransitionTime",
    "lastUpdateTime",
    "managedFields",
    "pod-template-hash",
    "podIP",
    "podIPs",
    "podUid",
    "resourceVersion",
    "skerry.io/aggregator-uid",
    "skerry.io/applied-hash",
    "skerry.io/replaces",
    "startTime",
    "startedAt",
    "uid",
];

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| !PASSING.contains(&key.as_str()) && !key.ends_with(".sedna.io/uid"));
            // The name of a ReplicaSet is in the message.
            if fields
                .get("reason")
                .is_some_and(|reason| reason == "NewReplicaSetAvailable")
            {
                fields.remove("message");
            }
            fields.values_mut().for_each(strip);
        }
        Value::Array(elements) => elements.iter_mut().for_each(strip),
        // The name of a worker derives from a uid.
        Value::String(text) => {
            if let Some((role, _)) = text.split_once("worker-") {
                *text = format!("{role}worker-");
            }
        }
        _ => {}
    }
}

/// The object's conditions.
pub fn conditions(object: &Value) -> &[Value] {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions.map(Vec::as_slice).unwrap_or_default()
}

/// A condition as `Status Reason: message`.
fn told(object: &Value, type_: &str) -> Option<String> {
    let found = conditions(object).iter().find(|condition| condition["type"] == type_)?;
    let [status, reason, message] = ["/status", "/reason", "/message"].map(|field| text(found, field));
    Some(format!("{status} {reason}: {message}"))
}

/// The environment of the first container below `spec` (of a pod, or of a template) by name: values, or where they
/// come from.
pub fn env(spec: &Value) -> BTreeMap<String, Value> {
    let vars = spec.pointer("/containers/0/env").and_then(Value::as_array);
    let vars = vars.into_iter().flatten();
    vars.map(|var| {
        let value = var.get("value").or(var.get("valueFrom")).cloned().unwrap_or_default();
        (text(var, "/name").to_owned(), value)
    })
    .collect()
}

/// The text at a JSON pointer; empty where there is none.
pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
