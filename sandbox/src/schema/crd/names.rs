//! A definition's names, group and scope.

use serde_json::{Map, Value};

use crate::{
    api::FieldError,
    schema::names::{label_1035, subdomain},
};

/// Groups that are Kubernetes' own need this annotation.
const APPROVED: &str = "api-approved.kubernetes.io";

pub(super) fn check(definition: &Value, spec: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let text = |key: &str| spec.get(key).and_then(Value::as_str).unwrap_or_default();
    let nothing = Map::new();
    let names = spec.get("names").and_then(Value::as_object).unwrap_or(&nothing);
    let (group, plural) = (
        text("group"),
        names.get("plural").and_then(Value::as_str).unwrap_or_default(),
    );
    let name = definition
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if name != format!("{plural}.{group}") {
        errors.push(FieldError::invalid(
            "metadata.name",
            name,
            r#"must be spec.names.plural+"."+spec.group"#,
        ));
    }
    check_group(group, errors);
    match text("scope") {
        "Cluster" | "Namespaced" => {}
        "" => errors.push(FieldError::required("spec.scope", "")),
        other => errors.push(FieldError::not_supported(
            "spec.scope",
            other,
            &["Cluster", "Namespaced"],
        )),
    }
    check_names(names, errors);
    check_versions(spec, errors);
    let annotated = definition
        .pointer("/metadata/annotations")
        .and_then(|a| a.get(APPROVED))
        .is_some();
    let protected = ["k8s.io", "kubernetes.io"];
    if protected
        .iter()
        .any(|p| group == *p || group.ends_with(&format!(".{p}")))
        && !annotated
    {
        let why = format!(
            "protected groups must have approval annotation {APPROVED:?}, see \
             https://github.com/kubernetes/enhancements/pull/1111"
        );
        errors.push(FieldError::required(format!("metadata.annotations[{APPROVED}]"), why));
    }
}

fn check_group(group: &str, errors: &mut Vec<FieldError>) {
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
        return;
    }
    let wrong = subdomain(group);
    if !wrong.is_empty() {
        errors.push(FieldError::invalid("spec.group", group, wrong.join(",")));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid(
            "spec.group",
            group,
            "should be a domain with at least one dot",
        ));
    }
}

fn check_names(names: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let text = |key: &str| names.get(key).and_then(Value::as_str).unwrap_or_default();
    for field in ["plural", "singular", "kind", "listKind"] {
        let (name, path) = (text(field), format!("spec.names.{field}"));
        if name.is_empty() {
            errors.push(FieldError::required(path, ""));
            continue;
        }
        let is_kind = field.ends_with("ind");
        let wrong = label_1035(&if is_kind { name.to_lowercase() } else { name.to_owned() });
        if !wrong.is_empty() {
            let mixed = if is_kind {
                "may have mixed case, but should otherwise match: "
            } else {
                ""
            };
            errors.push(FieldError::invalid(path, name, format!("{mixed}{}", wrong.join(","))));
        }
    }
    for field in ["shortNames", "categories"] {
        let list = names.get(field).and_then(Value::as_array);
        for (index, name) in list.into_iter().flatten().filter_map(Value::as_str).enumerate() {
            let wrong = label_1035(name);
            if !wrong.is_empty() {
                let path = format!("spec.names.{field}[{index}]");
                errors.push(FieldError::invalid(path, name, wrong.join(",")));
            }
        }
    }
    let kind = text("kind");
    if !kind.is_empty() && kind == text("listKind") {
        errors.push(FieldError::invalid(
            "spec.names.listKind",
            kind,
            "kind and listKind may not be the same",
        ));
    }
}

fn check_versions(spec: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let versions = spec.get("versions").and_then(Value::as_array);
    for (index, version) in versions.into_iter().flatten().enumerate() {
        let name = version.get("name").and_then(Value::as_str).unwrap_or_default();
        let wrong = label_1035(name);
        if !wrong.is_empty() {
            let why = wrong.join(",");
            errors.push(FieldError::invalid(
                format!("spec.versions[{index}].name"),
                name,
                why.as_str(),
            ));
            // The first version is also named by an older field.
            if index == 0 {
                errors.push(FieldError::invalid("spec.version", name, why));
            }
        }
    }
}
