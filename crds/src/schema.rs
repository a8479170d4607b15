//! The structural schema of a Kubernetes type, small enough to be embedded and strict enough to refuse mistakes.
//!
//! It starts from the schema that `k8s-openapi` generates and makes of it what the API server takes in a CRD: references
//! inlined, descriptions left out (they are nine tenths of the size), quantities, times and embedded metadata as the
//! API server knows them, lists keyed where the built-in types key them, and what a pod cannot do without required.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// What a quantity looks like as text; the pattern of Kubernetes' own CRDs.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// What a container's name looks like.
const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// Types that a server-side apply replaces whole: half of a selector means something else.
const ATOMIC: [&str; 9] = [
    "io.k8s.api.core.v1.ConfigMapKeySelector",
    "io.k8s.api.core.v1.LocalObjectReference",
    "io.k8s.api.core.v1.NodeSelector",
    "io.k8s.api.core.v1.NodeSelectorTerm",
    "io.k8s.api.core.v1.ObjectFieldSelector",
    "io.k8s.api.core.v1.ResourceFieldSelector",
    "io.k8s.api.core.v1.SecretKeySelector",
    "io.k8s.api.core.v1.TypedLocalObjectReference",
    "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
];

/// The structural schema of `K`.
pub(crate) fn structural<K: JsonSchema>() -> Map<String, Value> {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.meta_schema = None;
        settings.definitions_path = "/definitions".into();
    });
    let mut generator = settings.into_generator();
    let root = generator.subschema_for::<K>().to_value();
    let definitions = generator.take_definitions(false);
    inline(&root, &definitions)
}

/// A schema with its references replaced by what they refer to.
fn inline(schema: &Value, definitions: &Map<String, Value>) -> Map<String, Value> {
    let Some(schema) = schema.as_object() else {
        return Map::new();
    };
    let reference = schema.get("$ref").and_then(Value::as_str);
    let Some(name) = reference.and_then(|path| path.rsplit('/').next()) else {
        return inside(schema, definitions);
    };
    if let Some(leaf) = leaf(name) {
        return leaf;
    }
    let mut target = definitions
        .get(name)
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    amend(name, &mut target);
    inside(&target, definitions)
}

/// A schema of no reference, without descriptions, its subschemas inlined.
fn inside(schema: &Map<String, Value>, definitions: &Map<String, Value>) -> Map<String, Value> {
    let mut result = Map::new();
    for (key, value) in schema {
        let value = match (key.as_str(), value) {
            ("description" | "title", Value::String(_)) => continue,
            ("properties", Value::Object(properties)) => {
                let properties = properties.iter();
                properties
                    .map(|(name, schema)| (name.clone(), Value::Object(inline(schema, definitions))))
                    .collect()
            }
            ("items" | "additionalProperties", schema) => Value::Object(inline(schema, definitions)),
            (_, value) => value.clone(),
        };
        result.insert(key.clone(), value);
    }
    result
}

/// Types whose schema is ours rather than the generated one.
fn leaf(name: &str) -> Option<Map<String, Value>> {
    let schema = match name {
        "io.k8s.apimachinery.pkg.api.resource.Quantity" => {
            json!({"pattern": QUANTITY, "x-kubernetes-int-or-string": true})
        }
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString" => json!({"x-kubernetes-int-or-string": true}),
        // What a template's metadata may say. Go clients send `creationTimestamp: null`.
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta" => json!({
            "type": "object",
            "properties": {
                "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
                "creationTimestamp": {"type": "string", "format": "date-time", "nullable": true},
                "finalizers": {"type": "array", "items": {"type": "string"}},
                "generateName": {"type": "string"},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "name": {"type": "string"},
                "namespace": {"type": "string"},
            },
        }),
        _ => return None,
    };
    schema.as_object().cloned()
}

/// What the generated schema of a type lacks.
fn amend(name: &str, schema: &mut Map<String, Value>) {
    if ATOMIC.contains(&name) {
        schema.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
    }
    match name {
        "io.k8s.api.core.v1.PodTemplateSpec" => {
            schema.insert("required".to_owned(), json!(["spec"]));
        }
        "io.k8s.api.core.v1.PodSpec" => {
            // A pod cannot be created with them.
            properties(schema).and_then(|properties| properties.remove("ephemeralContainers"));
            for list in ["containers", "initContainers", "volumes"] {
                keyed(schema, list, "name");
            }
            set(schema, "containers", "minItems", json!(1));
        }
        "io.k8s.api.core.v1.Container" => {
            schema.insert("required".to_owned(), json!(["image", "name"]));
            keyed(schema, "volumeMounts", "mountPath");
            keyed(schema, "volumeDevices", "devicePath");
            set(schema, "image", "minLength", json!(1));
            set(schema, "name", "maxLength", json!(63));
            set(schema, "name", "pattern", json!(DNS_LABEL));
        }
        _ => {}
    }
}

/// Makes the list at `property` one with a key, as in the built-in type: the API server refuses duplicates, and a
/// server-side apply merges entry by entry.
fn keyed(schema: &mut Map<String, Value>, property: &str, key: &str) {
    set(schema, property, "x-kubernetes-list-type", json!("map"));
    set(schema, property, "x-kubernetes-list-map-keys", json!([key]));
}

/// Sets a keyword in the schema of `property`.
fn set(schema: &mut Map<String, Value>, property: &str, keyword: &str, value: Value) {
    let property = properties(schema).and_then(|properties| properties.get_mut(property)?.as_object_mut());
    if let Some(property) = property {
        property.insert(keyword.to_owned(), value);
    }
}

/// A schema's properties, to change.
fn properties(schema: &mut Map<String, Value>) -> Option<&mut Map<String, Value>> {
    schema.get_mut("properties")?.as_object_mut()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodTemplateSpec;

    use super::*;

    #[test]
    fn a_pod_template_is_structural_and_small() {
        let text = Value::Object(structural::<PodTemplateSpec>()).to_string();
        assert!(!text.contains("$ref") && !text.contains("\"description\":\""), "{text}");
        assert!(text.len() < 50_000, "{} bytes", text.len());
    }

    #[test]
    fn amendments_find_what_they_amend() {
        let schema = Value::Object(structural::<PodTemplateSpec>());
        let spec = "/properties/spec";
        assert_eq!(schema.pointer("/required"), Some(&json!(["spec"])));
        assert_eq!(schema.pointer(&format!("{spec}/properties/ephemeralContainers")), None);
        for list in ["containers", "initContainers"] {
            let list = schema.pointer(&format!("{spec}/properties/{list}")).unwrap();
            assert_eq!(list["x-kubernetes-list-map-keys"], json!(["name"]));
            assert_eq!(list["items"]["required"], json!(["image", "name"]));
            let resources = &list["items"]["properties"]["resources"]["properties"];
            assert_eq!(resources["limits"]["additionalProperties"]["pattern"], json!(QUANTITY));
            let mounts = &list["items"]["properties"]["volumeMounts"];
            assert_eq!(mounts["x-kubernetes-list-map-keys"], json!(["mountPath"]));
            let reference = &list["items"]["properties"]["env"]["items"]["properties"]["valueFrom"]["properties"];
            assert_eq!(reference["secretKeyRef"]["x-kubernetes-map-type"], json!("atomic"));
        }
        assert_eq!(
            schema.pointer("/properties/metadata/properties/creationTimestamp/nullable"),
            Some(&json!(true))
        );
    }
}
