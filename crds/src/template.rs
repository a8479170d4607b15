//! Objects of Kubernetes inside our own: a pod template, a metric, a selector.
//!
//! They stay JSON from the user's manifest to the child, because a typed struct silently drops every field that its
//! version does not know. The API server knows their full schema all the same and refuses what is wrong; what is read
//! of them here is read with care.

use std::{borrow::Cow, marker::PhantomData};

use k8s_openapi::api::core::v1::PodTemplateSpec;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A JSON object that has the schema of the Kubernetes type `K`.
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct Embedded<K>(Map<String, Value>, #[serde(skip)] PhantomData<fn() -> K>);

/// The pod of a worker.
pub type PodTemplate = Embedded<PodTemplateSpec>;

impl<K> Embedded<K> {
    /// The object itself.
    pub fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }

    /// The object itself, to change.
    pub fn as_map_mut(&mut self) -> &mut Map<String, Value> {
        &mut self.0
    }

    /// The object itself.
    pub fn into_map(self) -> Map<String, Value> {
        self.0
    }
}

// Not derived: a derive would ask of `K` what only the map needs.
impl<K> Clone for Embedded<K> {
    fn clone(&self) -> Self {
        self.0.clone().into()
    }
}

impl<K> Default for Embedded<K> {
    fn default() -> Self {
        Map::new().into()
    }
}

impl<K> PartialEq for Embedded<K> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<K> std::fmt::Debug for Embedded<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<K> From<Map<String, Value>> for Embedded<K> {
    fn from(map: Map<String, Value>) -> Self {
        Self(map, PhantomData)
    }
}

impl<K> From<Embedded<K>> for Value {
    fn from(embedded: Embedded<K>) -> Self {
        Value::Object(embedded.0)
    }
}

impl<K: JsonSchema> JsonSchema for Embedded<K> {
    fn schema_name() -> Cow<'static, str> {
        K::schema_name()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<K>()
    }
}

impl PodTemplate {
    /// `metadata`, where it is an object.
    pub fn metadata(&self) -> Option<&Map<String, Value>> {
        self.0.get("metadata")?.as_object()
    }

    /// `metadata.labels`; those that are not text are left out.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        texts(self.metadata(), "labels")
    }

    /// `metadata.annotations`; those that are not text are left out.
    pub fn annotations(&self) -> impl Iterator<Item = (&str, &str)> {
        texts(self.metadata(), "annotations")
    }

    /// `spec`, where it is an object.
    pub fn spec(&self) -> Option<&Map<String, Value>> {
        self.0.get("spec")?.as_object()
    }

    /// `spec.nodeName`, where the user placed the pod.
    pub fn node_name(&self) -> Option<&str> {
        let name = self.spec()?.get("nodeName")?.as_str()?;
        (!name.is_empty()).then_some(name)
    }

    /// `spec.hostNetwork`; false where it is absent.
    pub fn host_network(&self) -> bool {
        let host_network = self.spec().and_then(|spec| spec.get("hostNetwork"));
        host_network.and_then(Value::as_bool).unwrap_or_default()
    }

    /// `spec.restartPolicy`, where the user chose one.
    pub fn restart_policy(&self) -> Option<&str> {
        let policy = self.spec()?.get("restartPolicy")?.as_str()?;
        (!policy.is_empty()).then_some(policy)
    }

    /// `spec.containers`; those that are not objects are left out.
    pub fn containers(&self) -> impl Iterator<Item = &Map<String, Value>> {
        let containers = self.spec().and_then(|spec| spec.get("containers"));
        let containers = containers.and_then(Value::as_array);
        containers.into_iter().flatten().filter_map(Value::as_object)
    }
}

/// The text values of the map at `key`.
fn texts<'a>(map: Option<&'a Map<String, Value>>, key: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let map = map.and_then(|map| map.get(key)).and_then(Value::as_object);
    map.into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn template(value: Value) -> PodTemplate {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn unknown_fields_survive_in_their_order() {
        let value = json!({"spec": {"newIn1_99": {"b": 1, "a": 2}, "containers": []}, "metadata": {"labels": {}}});
        let there_and_back = serde_json::to_string(&template(value.clone())).unwrap();
        assert_eq!(there_and_back, value.to_string());
    }

    #[test]
    fn helpers_read_what_is_there() {
        let template = template(json!({
            "metadata": {"labels": {"app": "x", "odd": 1}, "annotations": {"note": "y"}},
            "spec": {
                "nodeName": "edge-1",
                "hostNetwork": true,
                "restartPolicy": "Never",
                "containers": [{"name": "a"}, "odd", {"name": "b"}],
            },
        }));
        assert_eq!(template.labels().collect::<Vec<_>>(), [("app", "x")]);
        assert_eq!(template.annotations().collect::<Vec<_>>(), [("note", "y")]);
        assert_eq!(template.node_name(), Some("edge-1"));
        assert!(template.host_network());
        assert_eq!(template.restart_policy(), Some("Never"));
        assert_eq!(template.containers().count(), 2);
    }

    #[test]
    fn helpers_take_an_empty_template() {
        for value in [
            json!({}),
            json!({"metadata": null, "spec": null}),
            json!({"spec": {"nodeName": "", "hostNetwork": null}}),
        ] {
            let template = template(value);
            assert_eq!(template.labels().count(), 0);
            assert_eq!(template.node_name(), None);
            assert_eq!(template.restart_policy(), None);
            assert!(!template.host_network());
            assert_eq!(template.containers().count(), 0);
        }
    }
}
