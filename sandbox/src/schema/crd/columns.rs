//! A definition's printer columns, subresources and selectable fields.

use serde_json::Value;

use super::placed;
use crate::api::FieldError;

const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const FORMATS: [&str; 8] = [
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];

pub(super) fn check(versions: &[Value], errors: &mut Vec<FieldError>) {
    for (path, columns) in placed(versions, "additionalPrinterColumns") {
        for (index, column) in columns.as_array().into_iter().flatten().enumerate() {
            self::column(column, &format!("{path}[{index}]"), errors);
        }
    }
    for (path, subresources) in placed(versions, "subresources") {
        if let Some(scale) = subresources.get("scale").filter(|scale| !scale.is_null()) {
            self::scale(scale, &format!("{path}.scale"), errors);
        }
    }
    for (path, fields) in placed(versions, "selectableFields") {
        let schema = versions
            .iter()
            .find_map(|v| v.pointer("/schema/openAPIV3Schema"))
            .unwrap_or(&Value::Null);
        for (index, field) in fields.as_array().into_iter().flatten().enumerate() {
            selectable(field, schema, &format!("{path}[{index}].jsonPath"), errors);
        }
    }
}

fn column(column: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let text = |key: &str| column.get(key).and_then(Value::as_str).unwrap_or_default();
    if text("name").is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    let one_of = |words: &[&str]| format!("must be one of {}", words.join(","));
    match text("type") {
        "" => errors.push(FieldError::required(format!("{path}.type"), one_of(&TYPES))),
        kind if TYPES.contains(&kind) => {}
        kind => errors.push(FieldError::invalid(format!("{path}.type"), kind, one_of(&TYPES))),
    }
    let format = text("format");
    if !format.is_empty() && !FORMATS.contains(&format) {
        errors.push(FieldError::invalid(format!("{path}.format"), format, one_of(&FORMATS)));
    }
    match text("jsonPath") {
        "" => errors.push(FieldError::required(format!("{path}.JSONPath"), "")),
        json => simple_path(json, &format!("{path}.JSONPath"), errors),
    }
}

fn simple_path(json: &str, path: &str, errors: &mut Vec<FieldError>) {
    if !json.starts_with('.') {
        errors.push(FieldError::invalid(
            path,
            json,
            "must be a simple json path starting with .",
        ));
    } else if json == "." || json.contains("..") {
        errors.push(FieldError::invalid(
            path,
            json,
            "must be a json path in the dot notation",
        ));
    }
}

fn scale(scale: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let places: [(&str, &[&str], &str); 3] = [
        ("specReplicasPath", &[".spec."], "under .spec"),
        ("statusReplicasPath", &[".status."], "under .status"),
        (
            "labelSelectorPath",
            &[".spec.", ".status."],
            "under either .spec or .status",
        ),
    ];
    for (field, roots, told) in places {
        let json = scale.get(field).and_then(Value::as_str).unwrap_or_default();
        let path = format!("{path}.{field}");
        if json.is_empty() {
            if field != "labelSelectorPath" {
                errors.push(FieldError::required(path, ""));
            }
            continue;
        }
        let before = errors.len();
        simple_path(json, &path, errors);
        if errors.len() == before && !roots.iter().any(|root| json.starts_with(root)) {
            errors.push(FieldError::invalid(path, json, format!("should be a json path {told}")));
        }
    }
}

fn selectable(field: &Value, schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let json = field.get("jsonPath").and_then(Value::as_str).unwrap_or_default();
    if json.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let mut names = json.split('.').skip(1);
    let target = names.try_fold(schema, |node, name| node.get("properties")?.get(name));
    let Some(target) = target else {
        errors.push(FieldError::invalid(
            path,
            json,
            "is an invalid path: does not refer to a valid field",
        ));
        return;
    };
    if !matches!(
        target.get("type").and_then(Value::as_str),
        Some("string" | "boolean" | "integer")
    ) {
        let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                   formats are allowed.";
        errors.push(FieldError::invalid(path, json, why));
    }
}
