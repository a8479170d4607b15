//! What every object's `metadata` has to keep to, in the API server's words. Never looks at the rest of an object.

use serde_json::{Map, Value};

use super::names::{self, NameRule};
use crate::api::FieldError;

/// All of an object's annotations, keys and values, in bytes.
const ANNOTATIONS: usize = 256 * 1024;

/// Why the `metadata` of an object that is to be created is refused. `path` is where it is, such as `metadata`.
pub fn validate_metadata(meta: &Value, namespaced: bool, names: NameRule, path: &str) -> Vec<FieldError> {
    let text = |key: &str| meta.get(key).and_then(Value::as_str).unwrap_or_default();
    let mut errors = Vec::new();
    let mut names_of = |field: &str, value: &str, wrong: Vec<String>| {
        errors.extend(
            wrong
                .into_iter()
                .map(|why| FieldError::invalid(format!("{path}.{field}"), value, why)),
        );
    };
    let generate = text("generateName");
    if !generate.is_empty() {
        names_of("generateName", generate, names.check(generate, true));
    }
    let (name, namespace) = (text("name"), text("namespace"));
    if !name.is_empty() {
        names_of("name", name, names.check(name, false));
    }
    if namespaced && !namespace.is_empty() {
        names_of("namespace", namespace, names::label(namespace));
    }
    if name.is_empty() {
        errors.push(FieldError::required(
            format!("{path}.name"),
            "name or generateName is required",
        ));
    }
    if namespaced && namespace.is_empty() {
        errors.push(FieldError::required(format!("{path}.namespace"), ""));
    }
    if !namespaced && !namespace.is_empty() {
        errors.push(FieldError::forbidden(
            format!("{path}.namespace"),
            "not allowed on this type",
        ));
    }
    if let Some(generation) = meta.get("generation").and_then(Value::as_i64).filter(|g| *g < 0) {
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(format!("{path}.generation"), generation, why));
    }
    common(meta, path, &mut errors);
    finalizers(meta, path, &mut errors);
    errors
}

/// Why the `metadata` of an object that is to be changed is refused.
pub fn validate_metadata_update(new: &Value, old: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old.get("deletionTimestamp").is_some_and(|t| !t.is_null()) {
        let old = strings(old, "finalizers");
        let mut added: Vec<_> = strings(new, "finalizers")
            .into_iter()
            .filter(|f| !old.contains(f))
            .collect();
        added.sort_unstable();
        if !added.is_empty() {
            let shown: Vec<_> = added.iter().map(|f| format!("{f:?}")).collect();
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                shown.join(", ")
            );
            errors.push(FieldError::forbidden(format!("{path}.finalizers"), why));
        }
    }
    let generation = |meta: &Value| meta.get("generation").and_then(Value::as_i64).unwrap_or_default();
    if generation(new) < generation(old) {
        let why = "must not be decremented";
        errors.push(FieldError::invalid(format!("{path}.generation"), generation(new), why));
    }
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let (new, old) = (new.get(field), old.get(field));
        if new != old {
            let shown = new.cloned().unwrap_or_default();
            errors.push(FieldError::invalid(
                format!("{path}.{field}"),
                shown,
                "field is immutable",
            ));
        }
    }
    common(new, path, &mut errors);
    errors
}

fn common(meta: &Value, path: &str, errors: &mut Vec<FieldError>) {
    validate_labels(meta.get("labels"), &format!("{path}.labels"), errors);
    annotations(meta, path, errors);
    owner_references(meta, &format!("{path}.ownerReferences"), errors);
}

/// Keys and values of a set of labels.
pub(crate) fn validate_labels(labels: Option<&Value>, path: &str, errors: &mut Vec<FieldError>) {
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        errors.extend(
            names::qualified(key)
                .into_iter()
                .map(|why| FieldError::invalid(path, key.as_str(), why)),
        );
        let value = value.as_str().unwrap_or_default();
        errors.extend(
            names::label_value(value)
                .into_iter()
                .map(|why| FieldError::invalid(path, value, why)),
        );
    }
}

fn annotations(meta: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(annotations) = meta.get("annotations").and_then(Value::as_object) else {
        return;
    };
    let path = format!("{path}.annotations");
    for key in annotations.keys() {
        let wrong = names::qualified(&key.to_lowercase());
        errors.extend(
            wrong
                .into_iter()
                .map(|why| FieldError::invalid(path.as_str(), key.as_str(), why)),
        );
    }
    let size = |(key, value): (&String, &Value)| key.len() + value.as_str().unwrap_or_default().len();
    if annotations.iter().map(size).sum::<usize>() > ANNOTATIONS {
        errors.push(FieldError::too_long(path, ANNOTATIONS));
    }
}

fn owner_references(meta: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let owners = meta.get("ownerReferences").and_then(Value::as_array);
    let mut controller: Option<String> = None;
    for owner in owners.into_iter().flatten().filter_map(Value::as_object) {
        let text = |key: &str| owner.get(key).and_then(Value::as_str).unwrap_or_default();
        owner_reference(owner, path, errors);
        if owner.get("controller").and_then(Value::as_bool).unwrap_or_default() {
            let this = format!("{}/{}", text("kind"), text("name"));
            if let Some(first) = &controller {
                let why = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and \
                     {this}"
                );
                errors.push(FieldError::invalid(path, owners.cloned().unwrap_or_default(), why));
            } else {
                controller = Some(this);
            }
        }
    }
}

fn owner_reference(owner: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    let text = |key: &str| owner.get(key).and_then(Value::as_str).unwrap_or_default();
    let version = text("apiVersion");
    if version.is_empty() || version.ends_with('/') || version.matches('/').count() > 1 {
        errors.push(FieldError::invalid(
            format!("{path}.apiVersion"),
            version,
            "version must not be empty",
        ));
    }
    for field in ["kind", "name", "uid"] {
        if text(field).is_empty() {
            errors.push(FieldError::invalid(format!("{path}.{field}"), "", "must not be empty"));
        }
    }
    if version == "v1" && text("kind") == "Event" {
        let why = "/v1, Kind=Event is disallowed from being an owner";
        errors.push(FieldError::invalid(path, Value::Object(owner.clone()), why));
    }
}

fn finalizers(meta: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let path = format!("{path}.finalizers");
    let finalizers = strings(meta, "finalizers");
    for finalizer in &finalizers {
        let wrong = names::qualified(finalizer).into_iter();
        errors.extend(wrong.map(|why| FieldError::invalid(path.as_str(), *finalizer, why)));
    }
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        let why = "finalizer foregroundDeletion and orphan cannot be both set";
        errors.push(FieldError::invalid(path, finalizers, why));
    }
}

fn strings<'v>(meta: &'v Value, key: &str) -> Vec<&'v str> {
    meta.get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_and_labels_are_held_to_their_shape() {
        let meta = json!({"name": "A", "labels": {"a b": "c d"}});
        let told = told(&validate_metadata(&meta, true, NameRule::Subdomain, "metadata"));
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(told[0].starts_with(r#"metadata.name: Invalid value: "A": a lowercase RFC 1123 subdomain"#));
        assert_eq!(told[1], "metadata.namespace: Required value");
        assert!(told[2].starts_with(r#"metadata.labels: Invalid value: "a b": name part must consist"#));
    }

    #[test]
    fn an_object_has_one_controller_and_keeps_its_identity() {
        let owner = |n: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": n, "uid": n, "controller": true});
        let meta = json!({"name": "a", "ownerReferences": [owner("a"), owner("b")]});
        let errors = validate_metadata(&meta, false, NameRule::Subdomain, "metadata");
        assert!(told(&errors)[0].contains(r#"Found "true" in references for Pod/a and Pod/b"#));

        let old = json!({"name": "a", "uid": "1", "deletionTimestamp": "t", "finalizers": ["x/y"]});
        let new = json!({"name": "a", "uid": "2", "deletionTimestamp": "t", "finalizers": ["x/y", "x/z"]});
        assert_eq!(
            told(&validate_metadata_update(&new, &old, "metadata")),
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found \
                 new finalizers []string{\"x/z\"}",
                r#"metadata.uid: Invalid value: "2": field is immutable"#,
            ]
        );
    }
}
