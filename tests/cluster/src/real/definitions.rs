//! Sedna's definitions as large as they are: with Kubernetes' own types written out.
//!
//! In short, they only name such a type, in a description. What it consists of is asked of the API server, which describes
//! it from the source that Sedna's generator reads, in a version of its own.

use std::collections::BTreeSet;

use anyhow::Context;
use serde_json::{Map, Value, json};

use super::kubernetes::text;
use crate::control_plane::ControlPlane;

/// Those of the kinds that the manager looks after, and one more.
const FIRST: &str = include_str!("../../../tests/manifests/sedna/definitions.yaml");
const OTHERS: &str = include_str!("sedna/definitions.yaml");

/// Where the API server describes the types.
const DOCUMENTS: [&str; 3] = [
    "/openapi/v3/apis/apps/v1",
    "/openapi/v3/apis/autoscaling/v2",
    "/openapi/v3/apis/batch/v1",
];

/// How many of Sedna's kinds there are here.
pub const COUNT: usize = 11;

/// What the name of each type of Kubernetes' begins with.
const KUBERNETES: &str = "io.k8s.";

/// What the generator writes, too, of all that the API server tells; properties, items and what is required go beside.
const KEPT: [&str; 8] = [
    "default",
    "description",
    "format",
    "minimum",
    "type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
];

/// All of them, with the types as this API server has them.
pub fn of_sedna(plane: &ControlPlane) -> anyhow::Result<Vec<Value>> {
    let mut types = Types::default();
    for document in DOCUMENTS {
        types.learn(&serde_json::from_str(&plane.kubectl(&["get", "--raw", document])?)?);
    }
    let mut definitions = in_short()?;
    for definition in &mut definitions {
        let name = text(definition, "/metadata/name").to_owned();
        let schema = definition.pointer_mut("/spec/versions/0/schema/openAPIV3Schema");
        let schema = schema.with_context(|| format!("{name} has no schema"))?;
        *schema = types
            .written_out(schema)
            .with_context(|| format!("writing out {name}"))?;
    }
    Ok(definitions)
}

/// All of them, with the types by name.
pub fn in_short() -> anyhow::Result<Vec<Value>> {
    let mut definitions: Vec<Value> = serde_saphyr::from_multiple(FIRST)?;
    definitions.extend(serde_saphyr::from_multiple::<Value>(OTHERS)?);
    Ok(definitions)
}

/// Kubernetes' types by name.
#[derive(Default)]
struct Types(Map<String, Value>);

impl Types {
    fn learn(&mut self, document: &Value) {
        let types = document.pointer("/components/schemas").and_then(Value::as_object);
        self.0.extend(types.cloned().unwrap_or_default());
    }

    /// A schema with each type that it names in place of the name. What the schema says itself stands above the type.
    fn written_out(&self, schema: &Value) -> anyhow::Result<Value> {
        let Some(schema) = schema.as_object() else {
            return Ok(schema.clone());
        };
        let of_kubernetes = type_of(schema);
        let mut whole = match of_kubernetes {
            Some(name) => object(self.of_name(name)?),
            None => Map::new(),
        };
        for (key, value) in schema {
            let value = match key.as_str() {
                "properties" => {
                    let mut properties = object(whole.remove(key).unwrap_or_default());
                    for (name, property) in object(value.clone()) {
                        properties.insert(name, self.written_out(&property)?);
                    }
                    properties.into()
                }
                "items" | "additionalProperties" => {
                    let mut each = self.written_out(value)?;
                    forget_default(&mut each);
                    each
                }
                "required" => union(whole.remove(key), value),
                // These two are the name's.
                "default" if of_kubernetes.is_some() => continue,
                "description" if of_kubernetes.is_some_and(|name| value == name) => continue,
                key if KEPT.contains(&key) => value.clone(),
                _ => continue,
            };
            whole.insert(key.clone(), value);
        }
        let required = whole.get("required").cloned().unwrap_or_default();
        for name in names(&required) {
            // The zero that Go has where nothing is said, which must not be taken for the user's word.
            if let Some(property) = whole.get_mut("properties").and_then(|all| all.get_mut(name)) {
                forget_default(property);
            }
        }
        Ok(whole.into())
    }

    fn of_name(&self, name: &str) -> anyhow::Result<Value> {
        match name.rsplit('.').next() {
            // Thus the API server prunes all of it.
            Some("ObjectMeta") => Ok(json!({"type": "object"})),
            Some("IntOrString" | "Quantity") => Ok(json!({
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "x-kubernetes-int-or-string": true,
            })),
            _ => {
                let found = self
                    .0
                    .get(name)
                    .with_context(|| format!("the API server knows no {name}"))?;
                self.written_out(found)
            }
        }
    }
}

/// The type that a schema names: by a reference, as the API server does, or in its description.
fn type_of(schema: &Map<String, Value>) -> Option<&str> {
    let reference = schema.get("$ref").or_else(|| schema.get("allOf")?.pointer("/0/$ref"));
    match reference {
        Some(reference) => reference.as_str()?.rsplit('/').next(),
        None => schema
            .get("description")?
            .as_str()
            .filter(|text| text.starts_with(KUBERNETES)),
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

fn names(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// All names of both lists, each once.
fn union(one: Option<Value>, other: &Value) -> Value {
    let one = one.unwrap_or_default();
    let all: BTreeSet<_> = names(&one).chain(names(other)).collect();
    json!(all)
}

fn forget_default(schema: &mut Value) {
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("default");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the API server describes them.
    fn types() -> Types {
        let document = json!({"components": {"schemas": {
            "io.k8s.api.core.v1.Pod": {"type": "object", "description": "a pod", "properties": {
                "metadata": {"allOf": [{"$ref": "#/components/schemas/io.k8s.meta.v1.ObjectMeta"}], "default": {}, "description": "its name"},
                "spec": {"$ref": "#/components/schemas/io.k8s.api.core.v1.PodSpec"},
            }},
            "io.k8s.api.core.v1.PodSpec": {"type": "object", "required": ["image"], "properties": {
                "image": {"type": "string", "default": ""},
                "phase": {"type": "string", "default": "Up", "enum": ["Up", "Down"]},
                "ports": {"type": "array", "items": {"allOf": [{"$ref": "#/components/schemas/io.k8s.util.IntOrString"}], "default": {}},
                    "x-kubernetes-list-type": "atomic", "x-kubernetes-patch-strategy": "merge"},
                "limits": {"type": "object", "additionalProperties": {"type": "string", "default": ""}},
            }},
        }}});
        let mut types = Types::default();
        types.learn(&document);
        types
    }

    fn port() -> Value {
        json!({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true})
    }

    #[test]
    fn a_type_that_is_named_is_written_out() {
        let short = json!({"type": "object", "properties": {"pod": {"description": "io.k8s.api.core.v1.Pod"}}});
        let whole = json!({"type": "object", "properties": {"pod": {"type": "object", "description": "a pod", "properties": {
            "metadata": {"type": "object", "description": "its name"},
            "spec": {"type": "object", "required": ["image"], "properties": {
                "image": {"type": "string"},
                "phase": {"type": "string", "default": "Up"},
                "ports": {"type": "array", "items": port(), "x-kubernetes-list-type": "atomic"},
                "limits": {"type": "object", "additionalProperties": {"type": "string"}},
            }},
        }}}});
        assert_eq!(types().written_out(&short).unwrap(), whole);
    }

    #[test]
    fn what_is_said_beside_a_name_is_added_and_nothing_more_let_through() {
        let short = json!({
            "type": "object",
            "description": "io.k8s.api.core.v1.PodSpec",
            "required": ["kafka"],
            "properties": {"kafka": {"type": "boolean"}},
            "x-kubernetes-preserve-unknown-fields": true,
        });
        let whole = types().written_out(&short).unwrap();
        assert_eq!(whole["required"], json!(["image", "kafka"]));
        assert_eq!(whole["properties"].as_object().unwrap().len(), 5);
        assert_eq!(whole.get("description"), None);
        assert_eq!(whole.get("x-kubernetes-preserve-unknown-fields"), None);
    }

    #[test]
    fn a_type_that_nobody_knows_is_an_error() {
        let short = json!({"description": "io.k8s.api.core.v1.Pot"});
        let error = format!("{:#}", types().written_out(&short).unwrap_err());
        assert!(error.contains("io.k8s.api.core.v1.Pot"), "{error}");
    }

    #[test]
    fn there_is_one_for_each_kind_that_ours_replace() {
        let ours = skerry_dist::root().join("charts/skerry/files/crds");
        let mut names = BTreeSet::new();
        for definition in in_short().unwrap() {
            let plural = text(&definition, "/spec/names/plural").to_owned();
            assert_eq!(text(&definition, "/metadata/name"), format!("{plural}.sedna.io"));
            assert!(ours.join(format!("sedna.io_{plural}.yaml")).is_file(), "{plural}");
            names.insert(plural);
        }
        assert_eq!(names.len(), COUNT);
    }
}
