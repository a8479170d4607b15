//! What a decision says: plain data, compared in tests and printed by `skerry plan`.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;
use serde_json::Value;

use crate::{Live, ObjectKind, Reference};

/// What should exist, and what each edge node should hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Plan {
    /// The resource's children.
    pub children: Children,
    /// What the edge nodes hold of it.
    pub nodes: Nodes,
    /// What keeps the resource from being as it was declared; the status says so.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// What to tell the user; emitted only by a pass that changed something, so a plan may repeat them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// When to look again although nothing was seen to change; none where a watch will tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub again: Option<Duration>,
}

/// The resource's children as they should be.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Children {
    /// Left as they are, none made and none pruned: the resource is paused, on its way out, or an outcome has to be
    /// in the status before anything else may be done.
    #[default]
    Unchanged,
    /// These and no others: whatever else the resource owns is deleted.
    Exactly(Vec<Child>),
}

/// One child.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Child {
    /// What it is.
    pub kind: ObjectKind,
    /// Its name.
    pub name: String,
    /// How it comes to be.
    pub make: Make,
}

/// How a child comes to be.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Make {
    /// Applied (server-side) whenever the live object differs: the whole object, deterministic to the byte, with
    /// apiVersion, kind, metadata and the controller owner reference.
    Apply(Value),
    /// Created where it is absent, then left alone: an object that cannot be changed (a Pod).
    Create(Value),
    /// Neither made nor changed nor pruned: what cannot be planned now, or what is finished and kept for its logs.
    Keep,
}

/// What the edge nodes hold of the resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Nodes {
    /// Their last objects: the resource cannot be planned, or is paused.
    #[default]
    Unchanged,
    /// By node name; a node that is not named holds nothing of it.
    Exactly(BTreeMap<String, NodePart>),
}

/// What one node holds of a resource.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodePart {
    /// The object for the node's local controller: apiVersion, kind, metadata (name, namespace, uid, generation),
    /// spec, and `workers`: the names of its workers on this node.
    pub body: Value,
    /// The Secret whose content the node needs to reach the data; it travels in a frame of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<Reference>,
}

/// Something that keeps a resource from being as it was declared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it means for the resource.
    pub impact: Impact,
    /// CamelCase word for the condition's reason.
    pub reason: &'static str,
    /// One sentence that names the object at fault and what would be right.
    pub message: String,
}

/// What a [`Finding`] means for the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Impact {
    /// It goes on by itself; the user waits.
    Waiting,
    /// It works less well than declared.
    Degraded,
    /// Somebody has to act.
    Blocked,
}

/// What the user is told with `kubectl describe`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Normal or Warning.
    #[serde(rename = "type")]
    pub type_: EventType,
    /// CamelCase word.
    pub reason: &'static str,
    /// One sentence.
    pub message: String,
}

/// The two types of Kubernetes events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum EventType {
    /// All is well.
    Normal,
    /// Somebody may have to look.
    Warning,
}

/// What is there after the plan was carried out: the only source of the status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Applied {
    /// The live children, those just made or changed included, in order of kind and name.
    pub children: Vec<Live>,
    /// What the API server would not take.
    pub failures: Vec<Failure>,
}

impl Applied {
    /// The live child of this kind and name.
    pub fn child(&self, kind: ObjectKind, name: &str) -> Option<&Live> {
        self.children
            .iter()
            .find(|live| live.kind == kind && live.name() == name)
    }
}

/// A child that could not be made as planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// What it is.
    pub kind: ObjectKind,
    /// Its name.
    pub name: String,
    /// CamelCase word: the API server's reason, or `NameTaken` where the name belongs to an object that is not ours.
    pub reason: String,
    /// The API server's sentence.
    pub message: String,
}
