//! What ties a child to its resource: names, labels, the owner reference.

use std::collections::BTreeMap;

use kube::ResourceExt;
use serde_json::{Map, Value, json};
use skerry_crds::names::{annotation, label};

use crate::{Kind, ObjectKind, inputs::hash};

/// The resource that children belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Its kind.
    pub(crate) kind: ObjectKind,
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// Its uid.
    pub(crate) uid: String,
    /// Its generation.
    pub(crate) generation: i64,
}

impl Owner {
    /// The owner that `resource` is.
    pub(crate) fn of<K: Kind>(resource: &K) -> Self {
        Self {
            kind: K::KIND,
            namespace: resource.namespace().unwrap_or_default(),
            name: resource.name_any(),
            uid: resource.uid().unwrap_or_default(),
            generation: resource.meta().generation.unwrap_or_default(),
        }
    }

    /// Sedna's labels of a worker and of what serves it: name, uid and worker type.
    pub(crate) fn labels(&self, worker_type: &str) -> BTreeMap<String, String> {
        BTreeMap::from([
            (label::name(self.kind.kind), self.name.clone()),
            (label::uid(self.kind.kind), self.uid.clone()),
            (label::worker_type(self.kind.kind), worker_type.to_ascii_lowercase()),
        ])
    }

    /// A child's metadata.
    pub(crate) fn metadata(&self, name: &str, labels: &BTreeMap<String, String>) -> Map<String, Value> {
        let metadata = json!({
            "name": name,
            "namespace": self.namespace,
            "labels": labels,
            "ownerReferences": [{
                "apiVersion": self.kind.api_version(),
                "kind": self.kind.kind,
                "name": self.name,
                "uid": self.uid,
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        });
        match metadata {
            Value::Object(metadata) => metadata,
            _ => Map::new(),
        }
    }

    /// Five characters that tell this resource's worker in this role from all others, and stay the same.
    pub(crate) fn hash(&self, role: &str) -> String {
        hash::short(&[&self.uid, role])
    }

    /// What a node is told of the resource.
    pub(crate) fn body(&self, spec: &impl serde::Serialize, workers: &[String]) -> Value {
        json!({
            "apiVersion": self.kind.api_version(),
            "kind": self.kind.kind,
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "uid": self.uid,
                "generation": self.generation,
            },
            "spec": spec,
            "workers": workers,
        })
    }
}

/// Whether the user has frozen the resource.
pub(crate) fn paused<K: Kind>(resource: &K) -> bool {
    resource
        .annotations()
        .get(annotation::PAUSED)
        .is_some_and(|value| value == "true")
}

/// Whether the resource is on its way out.
pub(crate) fn terminating<K: Kind>(resource: &K) -> bool {
    resource.meta().deletion_timestamp.is_some()
}
