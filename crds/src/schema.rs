//! The structural schema of a type: small enough for `kubectl apply` and strict enough to refuse mistakes.
//!
//! `schemars` says what a type looks like; this makes of it what the API server takes in a definition. References are
//! inlined. An optional field is one that may be absent, not one that may be `null`: the API server drops a `null` where
//! none is allowed, and Sedna's clients rely on that when they send one. Embedded Kubernetes types lose their
//! descriptions (nine tenths of the size) and get what generation leaves out: quantities, keyed lists, atomic maps, and
//! what a pod cannot do without.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// What a quantity looks like as text; the pattern of Kubernetes' own CRDs.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

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

/// Definitions of Kubernetes' own types are called after their package.
const KUBERNETES: &str = "io.k8s.";

/// The structural schema of `K`.
pub(crate) fn structural<K: JsonSchema>() -> Map<String, Value> {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let root = generator.subschema_for::<K>().to_value();
    let definitions = generator.take_definitions(false);
    inline(&root, &definitions)
}

/// An entry of `x-kubernetes-validations`: a CEL rule, and what to tell the user who broke it.
pub(crate) fn rule(rule: &str, message: &str) -> Value {
    json!({"rule": rule, "message": message})
}

/// An object's schema without one of its properties.
pub(crate) fn without(mut schema: Map<String, Value>, property: &str) -> Map<String, Value> {
    properties(&mut schema).and_then(|properties| properties.shift_remove(property));
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| name != property);
    }
    schema
}

/// A schema with its references replaced by what they refer to. What is said beside a reference wins.
fn inline(schema: &Value, definitions: &Map<String, Value>) -> Map<String, Value> {
    let Some(schema) = schema.as_object() else {
        return Map::new();
    };
    let mut schema = present(schema);
    let Some(reference) = schema.shift_remove("$ref") else {
        return inside(&schema, definitions);
    };
    let name = reference
        .as_str()
        .and_then(|path| path.rsplit('/').next())
        .unwrap_or_default();
    let mut target = definition(name, definitions);
    target.extend(schema);
    target
}

/// The schema that is called `name`.
fn definition(name: &str, definitions: &Map<String, Value>) -> Map<String, Value> {
    if let Some(leaf) = leaf(name) {
        return leaf;
    }
    let schema = definitions.get(name).and_then(Value::as_object);
    let mut schema = schema.cloned().unwrap_or_default();
    if name.starts_with(KUBERNETES) {
        amend(name, &mut schema);
        without_descriptions(&mut schema);
    }
    inside(&present(&schema), definitions)
}

/// The schema of a value that is present: `schemars` writes an `Option` as its type or `null`.
fn present(schema: &Map<String, Value>) -> Map<String, Value> {
    let mut schema = schema.clone();
    if let Some(Value::Array(types)) = schema.get("type") {
        let type_ = types.iter().find(|type_| *type_ != "null").cloned();
        schema.insert("type".to_owned(), type_.unwrap_or_default());
    }
    if let Some(Value::Array(choices)) = schema.shift_remove("anyOf") {
        let choice = choices.iter().filter_map(Value::as_object);
        let choice = choice.filter(|choice| choice.get("type") != Some(&json!("null")));
        for (key, value) in choice.flatten() {
            schema.entry(key).or_insert_with(|| value.clone());
        }
    }
    // An enum whose variants have descriptions.
    if let Some(Value::Array(variants)) = schema.shift_remove("oneOf") {
        let names: Vec<_> = variants
            .iter()
            .filter_map(|variant| variant.get("const").cloned())
            .collect();
        schema.insert("type".to_owned(), json!("string"));
        schema.insert("enum".to_owned(), Value::Array(names));
    }
    schema
}

/// A schema of no reference, its subschemas inlined.
fn inside(schema: &Map<String, Value>, definitions: &Map<String, Value>) -> Map<String, Value> {
    let inlined = schema.iter().map(|(key, value)| {
        let value = match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                let properties = properties.iter();
                properties
                    .map(|(name, schema)| (name.clone(), Value::Object(inline(schema, definitions))))
                    .collect()
            }
            ("items" | "additionalProperties", schema) => Value::Object(inline(schema, definitions)),
            (_, value) => value.clone(),
        };
        (key.clone(), value)
    });
    inlined.collect()
}

/// Drops the descriptions of a schema and of its properties; those of what it refers to go where that is inlined.
fn without_descriptions(schema: &mut Map<String, Value>) {
    schema.shift_remove("description");
    for (key, value) in schema {
        match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                let schemas = properties.values_mut().filter_map(Value::as_object_mut);
                schemas.for_each(without_descriptions);
            }
            ("items" | "additionalProperties", Value::Object(schema)) => without_descriptions(schema),
            _ => {}
        }
    }
}

/// Types whose schema is ours rather than the generated one.
fn leaf(name: &str) -> Option<Map<String, Value>> {
    let schema = match name {
        "io.k8s.apimachinery.pkg.api.resource.Quantity" => {
            json!({"pattern": QUANTITY, "x-kubernetes-int-or-string": true})
        }
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString" => json!({"x-kubernetes-int-or-string": true}),
        // What a template's metadata may say. Go clients send `creationTimestamp: null`, and Sedna's definitions let any
        // metadata pass.
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

/// What the generated schema of a type lacks. Empty text is what a pod's default replaces.
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
            properties(schema).and_then(|properties| properties.shift_remove("ephemeralContainers"));
            for list in ["containers", "initContainers", "volumes"] {
                keyed(schema, list, "name");
            }
            set(schema, "containers", "minItems", json!(1));
            let policies = json!(["", "ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]);
            set(schema, "dnsPolicy", "enum", policies);
            set(
                schema,
                "restartPolicy",
                "enum",
                json!(["", "Always", "Never", "OnFailure"]),
            );
        }
        "io.k8s.api.core.v1.Container" => {
            schema.insert("required".to_owned(), json!(["image", "name"]));
            keyed(schema, "volumeMounts", "mountPath");
            keyed(schema, "volumeDevices", "devicePath");
            set(schema, "image", "minLength", json!(1));
            set(
                schema,
                "imagePullPolicy",
                "enum",
                json!(["", "Always", "IfNotPresent", "Never"]),
            );
            set(schema, "name", "minLength", json!(1));
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
    }
}
