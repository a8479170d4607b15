//! What was observed: the plain data that a decision is made from.

use std::{collections::BTreeMap, fmt, ops::Deref};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

/// A kind of Kubernetes object. No larger than a pointer: whoever keeps objects by the thousand keeps many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ObjectKind(&'static KindNames);

/// How the API server names a kind.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct KindNames {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Version within the group.
    pub version: &'static str,
    /// Kind in CamelCase.
    pub kind: &'static str,
    /// Resource name in the URL.
    pub plural: &'static str,
}

impl Deref for ObjectKind {
    type Target = KindNames;

    fn deref(&self) -> &KindNames {
        self.0
    }
}

impl ObjectKind {
    /// `apps/v1` Deployment.
    pub const DEPLOYMENT: Self = Self(&KindNames::new("apps", "v1", "Deployment", "deployments"));
    /// `v1` Service.
    pub const SERVICE: Self = Self(&KindNames::new("", "v1", "Service", "services"));
    /// `v1` Pod.
    pub const POD: Self = Self(&KindNames::new("", "v1", "Pod", "pods"));
    /// `v1` Secret.
    pub const SECRET: Self = Self(&KindNames::new("", "v1", "Secret", "secrets"));
    /// `autoscaling/v2` `HorizontalPodAutoscaler`.
    pub const AUTOSCALER: Self = Self(&KindNames::new(
        "autoscaling",
        "v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
    ));
    /// `sedna.io/v1alpha1` Model.
    pub const MODEL: Self = Self(&KindNames::new("sedna.io", "v1alpha1", "Model", "models"));
    /// `sedna.io/v1alpha1` Dataset.
    pub const DATASET: Self = Self(&KindNames::new("sedna.io", "v1alpha1", "Dataset", "datasets"));
    /// `sedna.io/v1alpha1` `JointInferenceService`.
    pub const JOINT_INFERENCE_SERVICE: Self = Self(&KindNames::new(
        "sedna.io",
        "v1alpha1",
        "JointInferenceService",
        "jointinferenceservices",
    ));
    /// `sedna.io/v1alpha1` `FederatedLearningJob`.
    pub const FEDERATED_LEARNING_JOB: Self = Self(&KindNames::new(
        "sedna.io",
        "v1alpha1",
        "FederatedLearningJob",
        "federatedlearningjobs",
    ));

    /// A kind of these names.
    pub const fn new(names: &'static KindNames) -> Self {
        Self(names)
    }

    /// `group/version`, or the version alone for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

impl KindNames {
    const fn new(group: &'static str, version: &'static str, kind: &'static str, plural: &'static str) -> Self {
        Self {
            group,
            version,
            kind,
            plural,
        }
    }
}

/// An object of the resource's own namespace that the resource names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Reference {
    /// What it is.
    pub kind: ObjectKind,
    /// Its name.
    pub name: String,
}

impl Reference {
    /// A reference to the object of `kind` called `name`.
    pub fn new(kind: ObjectKind, name: impl Into<String>) -> Self {
        Self {
            kind,
            name: name.into(),
        }
    }
}

/// What was found behind a [`Reference`].
#[derive(Clone, PartialEq)]
pub enum Lookup {
    /// The whole object, as the API server has it.
    Found(Value),
    /// There is no such object.
    Missing,
}

// The content of a Secret must not get into a log with whatever holds it.
impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Found(_) => "Found([redacted])",
            Self::Missing => "Missing",
        })
    }
}

/// What was found behind all references so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct References(pub BTreeMap<Reference, Lookup>);

impl References {
    /// The object, where it was looked up and found.
    pub fn get(&self, kind: ObjectKind, name: &str) -> Option<&Value> {
        match self.0.get(&Reference::new(kind, name)) {
            Some(Lookup::Found(object)) => Some(object),
            Some(Lookup::Missing) | None => None,
        }
    }

    /// The objects that were looked up in vain.
    pub fn missing(&self) -> impl Iterator<Item = &Reference> {
        self.0
            .iter()
            .filter(|(_, lookup)| **lookup == Lookup::Missing)
            .map(|(reference, _)| reference)
    }
}

/// A live object, trimmed to what decisions need: no `managedFields` but who owns `spec.replicas` and whether we own what
/// an object's pods are made from, and of a Pod only its metadata, where it runs, which worker it is, and its status.
#[derive(Clone, Debug, PartialEq)]
pub struct Live {
    /// What it is.
    pub kind: ObjectKind,
    /// The object as JSON.
    pub object: Value,
}

impl Live {
    /// `metadata.name`.
    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// `metadata.uid`.
    pub fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    /// Whether the object is on its way out.
    pub fn terminating(&self) -> bool {
        self.object
            .pointer("/metadata/deletionTimestamp")
            .is_some_and(|at| !at.is_null())
    }

    /// An annotation's value.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.object.pointer("/metadata/annotations")?.get(key)?.as_str()
    }

    /// A label's value.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.object.pointer("/metadata/labels")?.get(key)?.as_str()
    }

    /// The object's `status`, where it has one.
    pub fn status(&self) -> Option<&Map<String, Value>> {
        self.object.get("status")?.as_object()
    }

    /// Whether a field manager other than `manager` owns `spec.replicas`: an autoscaler that has taken over.
    pub fn replicas_owned_by_another(&self, manager: &str) -> bool {
        let entries = self.object.pointer("/metadata/managedFields").and_then(Value::as_array);
        entries.into_iter().flatten().any(|entry| {
            entry.get("manager").and_then(Value::as_str) != Some(manager)
                && entry.pointer("/fieldsV1/f:spec/f:replicas").is_some()
        })
    }

    /// Whether the field manager `manager` owns this field, or fields below it: a pointer into `fieldsV1`.
    pub fn owned_by(&self, manager: &str, field: &str) -> bool {
        let entries = self.object.pointer("/metadata/managedFields").and_then(Value::as_array);
        entries.into_iter().flatten().any(|entry| {
            let fields = entry.get("fieldsV1").and_then(|fields| fields.pointer(field));
            entry.get("manager").and_then(Value::as_str) == Some(manager) && fields.is_some()
        })
    }

    /// The text at a JSON pointer; empty where there is none.
    pub fn text(&self, pointer: &str) -> &str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }
}

/// All that a plan is made from, beside the resource itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Objects of [`Kind::CHILDREN`](crate::Kind::CHILDREN) whose controller owner is this resource's uid, in order of
    /// kind and name; those on their way out included.
    pub children: Vec<Live>,
    /// Pods below the resource that it does not own itself (those of its Deployments), found by its labels.
    pub pods: Vec<Live>,
    /// What was found behind [`Kind::references`](crate::Kind::references).
    pub references: References,
    /// When this was observed. A plan may let something wait until a time ([`Plan::again`](crate::Plan::again)), and
    /// never writes one.
    pub now: Timestamp,
}

impl Observed {
    /// The live child of this kind and name, on its way out or not.
    pub fn child(&self, kind: ObjectKind, name: &str) -> Option<&Live> {
        self.children
            .iter()
            .find(|live| live.kind == kind && live.name() == name)
    }

    /// The live children of this kind.
    pub fn children_of(&self, kind: ObjectKind) -> impl Iterator<Item = &Live> {
        self.children.iter().filter(move |live| live.kind == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_holds_a_secret_does_not_print_it() {
        let secret = Lookup::Found(json!({"data": {"SECRET_ACCESS_KEY": "a2V5"}}));
        let references = References([(Reference::new(ObjectKind::SECRET, "keys"), secret)].into());
        let seen = Observed {
            references,
            ..Observed::default()
        };
        assert!(!format!("{seen:?}").contains("a2V5"));
    }

    #[test]
    fn replicas_belong_to_whoever_last_set_them() {
        let by = |manager: &str| Live {
            kind: ObjectKind::DEPLOYMENT,
            object: json!({"metadata": {"managedFields": [
                {"manager": manager, "fieldsV1": {"f:spec": {"f:replicas": {}}}},
                {"manager": "other", "fieldsV1": {"f:spec": {"f:template": {}}}}]}}),
        };
        assert!(by("kube-controller-manager").replicas_owned_by_another("us"));
        assert!(!by("us").replicas_owned_by_another("us"));
        assert!(by("us").owned_by("us", "/f:spec/f:replicas"));
        assert!(!by("us").owned_by("us", "/f:spec/f:template"));
        assert!(by("us").owned_by("other", "/f:spec/f:template"));
    }
}
