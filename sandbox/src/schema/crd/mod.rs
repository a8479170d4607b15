//! `CustomResourceDefinition` objects themselves: what they are completed with and why one is refused, in the API
//! server's words.
//!
//! Whether names collide with those of another definition is not known here.

mod columns;
mod defaults;
mod names;
mod shape;
mod structural;

use serde_json::{Map, Value, json};

use super::Schema;
use crate::api::FieldError;

/// Completes a definition: names that follow from others, and no conversion unless one is asked for.
pub fn default_definition(definition: &mut Value) {
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut derive = |field: &str, value: String| {
            if !kind.is_empty() && names.get(field).and_then(Value::as_str).unwrap_or_default().is_empty() {
                names.insert(field.into(), value.into());
            }
        };
        derive("singular", kind.to_lowercase());
        derive("listKind", format!("{kind}List"));
    }
    if spec.get("conversion").is_none_or(Value::is_null) {
        spec.insert("conversion".into(), json!({"strategy": "None"}));
    }
    let columns = spec
        .get_mut("versions")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten();
    for version in columns {
        // Columns without a priority are shown always.
        for column in version
            .get_mut("additionalPrinterColumns")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            if let Some(column) = column.as_object_mut()
                && column.get("priority").and_then(Value::as_i64) == Some(0)
            {
                column.shift_remove("priority");
            }
        }
    }
}

/// Why a definition is refused; `old` is what it replaces.
pub fn validate_definition(definition: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let nothing = Map::new();
    let spec = definition.get("spec").and_then(Value::as_object).unwrap_or(&nothing);
    names::check(definition, spec, &mut errors);
    versions(spec, old.is_none(), &mut errors);
    conversion(spec, &mut errors);
    if let Some(old) = old {
        unchanged(definition, old, &mut errors);
    }
    errors
}

fn versions(spec: &Map<String, Value>, creating: bool, errors: &mut Vec<FieldError>) {
    let list = spec
        .get("versions")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let name = |version: &Value| {
        version
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let stored = |version: &&Value| version.get("storage") == Some(&Value::Bool(true));
    let all: Vec<_> = list.iter().map(name).collect();
    if all.iter().enumerate().any(|(i, n)| all.iter().take(i).any(|m| m == n)) {
        errors.push(FieldError::invalid(
            "spec.versions",
            all.clone(),
            "must contain unique version names",
        ));
    }
    let storage: Vec<_> = list.iter().filter(stored).map(name).collect();
    if storage.len() != 1 {
        let why = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid(
            "spec.versions",
            spec.get("versions")
                .filter(|versions| !versions.is_null())
                .map_or(Value::Null, |_| shown(list)),
            why,
        ));
    }
    if creating {
        stored_versions(&storage, errors);
    }
    for (path, schema) in placed(list, "schema") {
        match schema.get("openAPIV3Schema") {
            Some(schema) if schema.is_object() => self::schema(schema, &format!("{path}.openAPIV3Schema"), errors),
            _ => errors.push(FieldError::required(format!("{path}.openAPIV3Schema"), "")),
        }
    }
    columns::check(list, errors);
}

/// Versions as Kubernetes shows them, with the names of the server's own fields. Schemas are kept elsewhere.
fn shown(versions: &[Value]) -> Value {
    let one = |version: &Value| {
        let field = |name: &str| version.get(name).cloned().unwrap_or_default();
        let flag = |name: &str| version.get(name).and_then(Value::as_bool).unwrap_or_default();
        json!({"Name": field("name"), "Served": flag("served"), "Storage": flag("storage"),
            "Deprecated": flag("deprecated"), "DeprecationWarning": field("deprecationWarning"), "Schema": null,
            "Subresources": null, "AdditionalPrinterColumns": null, "SelectableFields": null})
    };
    versions.iter().map(one).collect()
}

/// What a new definition's status will say is stored.
fn stored_versions(storage: &[String], errors: &mut Vec<FieldError>) {
    const FIELD: &str = "status.storedVersions";
    let Some((first, others)) = storage.split_first() else {
        errors.push(FieldError::invalid(
            FIELD,
            Value::Null,
            "must have at least one stored version",
        ));
        return;
    };
    for other in others {
        let why = format!("must have the storage version {other}");
        errors.push(FieldError::invalid(FIELD, vec![first.clone()], why));
    }
}

/// What versions say of one thing and where errors place it: at the top where all of them say the same, else at each.
fn placed<'v>(versions: &'v [Value], key: &str) -> Vec<(String, &'v Value)> {
    let of = |version: &'v Value| version.get(key).filter(|value| !value.is_null());
    let top = match key {
        "schema" => "validation",
        other => other,
    };
    let first = versions.first().and_then(of);
    if let Some(first) = first.filter(|first| versions.iter().all(|v| of(v) == Some(first))) {
        return vec![(format!("spec.{top}"), first)];
    }
    let each = |(index, version): (usize, &'v Value)| {
        let missing = if key == "schema" { Some(&Value::Null) } else { None };
        of(version)
            .or(missing)
            .map(|value| (format!("spec.versions[{index}].{key}"), value))
    };
    versions.iter().enumerate().filter_map(each).collect()
}

/// Each step relies on the one before.
fn schema(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut found = Vec::new();
    shape::check(schema, path, &mut found);
    if schema.get("nullable") == Some(&Value::Bool(true)) {
        found.push(FieldError::forbidden(
            format!("{path}.nullable"),
            "nullable cannot be true at the root",
        ));
    }
    if found.is_empty() {
        structural::check(schema, path, &mut found);
    }
    if found.is_empty() {
        defaults::check(schema, path, &mut found);
    }
    errors.append(&mut found);
}

fn conversion(spec: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    if spec.get("preserveUnknownFields") == Some(&Value::Bool(true)) {
        let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                   spec.versions[*].schema instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", true, why));
    }
    let Some(conversion) = spec.get("conversion") else {
        return;
    };
    match conversion.get("strategy").and_then(Value::as_str).unwrap_or_default() {
        "None" => {}
        "Webhook" => {
            let webhook = conversion.get("webhook").unwrap_or(&Value::Null);
            if webhook.get("clientConfig").is_none() {
                let why = "required when strategy is set to Webhook";
                errors.push(FieldError::required("spec.conversion.webhookClientConfig", why));
            }
            let versions = webhook.get("conversionReviewVersions").and_then(Value::as_array);
            if versions.is_none_or(Vec::is_empty) {
                errors.push(FieldError::required("spec.conversion.conversionReviewVersions", ""));
            }
        }
        "" => errors.push(FieldError::required("spec.conversion.strategy", "")),
        other => {
            let supported = ["None", "Webhook"];
            errors.push(FieldError::not_supported("spec.conversion.strategy", other, &supported));
        }
    }
}

/// What objects are stored under cannot change.
fn unchanged(definition: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    for field in ["group", "scope", "names/plural", "names/kind"] {
        let of = |definition: &Value| {
            definition
                .pointer(&format!("/spec/{field}"))
                .cloned()
                .unwrap_or_default()
        };
        let new = of(definition);
        if new != of(old) {
            let field = format!("spec.{}", field.replace('/', "."));
            errors.push(FieldError::invalid(field, new, "field is immutable"));
        }
    }
    let kept: Vec<_> = definition
        .pointer("/spec/versions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|v| v.get("name"))
        .collect();
    let stored = old.pointer("/status/storedVersions").and_then(Value::as_array);
    for (index, version) in stored.into_iter().flatten().enumerate() {
        if !kept.contains(&version) {
            let name = version.as_str().unwrap_or_default();
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {name} and removes {name} from \
                 status.storedVersions"
            );
            errors.push(FieldError::invalid(
                format!("status.storedVersions[{index}]"),
                name,
                why,
            ));
        }
    }
}

/// The schema of a part of a resource, for checking values within the schema.
fn parsed(schema: &Value) -> Schema {
    super::parse::parse(schema, &|_| None)
}
