//! Custom resource definitions: the resources that they add, and the status that tells so.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{
    apply::{FieldSet, Owner, Typed},
    clock::seconds,
    object::{array, child, map, meta},
    resource::{Generation, Resource, ScalePaths},
    state::State,
    store::{Key, TableName},
};
use crate::{
    schema::{self, Schema},
    surface,
};

/// The table of definitions.
pub(super) const TABLE: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Keeps a definition until its objects are gone.
pub(super) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Where the objects of a definition are stored.
pub(super) fn table(definition: &Value) -> TableName {
    let spec = definition.get("spec").unwrap_or(&Value::Null);
    let names = spec.get("names").unwrap_or(&Value::Null);
    format!("{}.{}", text(names, "plural"), text(spec, "group")).into()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition
        .get("spec")
        .and_then(|spec| spec.get("versions"))
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn flag(version: &Value, field: &str) -> bool {
    version.get(field).and_then(Value::as_bool).unwrap_or(false)
}

/// The resources that a definition adds: one per served version.
pub(super) fn resources(definition: &Value) -> Vec<Resource> {
    let stored = versions(definition)
        .find(|version| flag(version, "storage"))
        .map_or("", |v| text(v, "name"));
    let served = versions(definition).filter(|version| flag(version, "served"));
    let described = surface::Resource::of_crd(definition);
    described
        .into_iter()
        .zip(served)
        .map(|(names, version)| Resource {
            generation: if names.has_subresource("status") {
                Generation::Content
            } else {
                Generation::All
            },
            scale: version
                .pointer("/subresources/scale")
                .and_then(Value::as_object)
                .map(scale),
            create_on_update: false,
            unconditional_update: false,
            returns_deleted: false,
            custom: true,
            definition: Some(Arc::new(version.clone())),
            table: table(definition),
            storage_version: surface::api_version(&names.group, stored),
            schema: version
                .pointer("/schema/openAPIV3Schema")
                .map(|schema| Arc::new(Schema::of_resource(schema))),
            names,
        })
        .collect()
}

fn scale(paths: &Map<String, Value>) -> ScalePaths {
    let path = |field: &str| paths.get(field).and_then(Value::as_str).map(str::to_owned);
    ScalePaths {
        spec: path("specReplicasPath").unwrap_or_default(),
        status: path("statusReplicasPath").unwrap_or_default(),
        selector: path("labelSelectorPath"),
    }
}

/// Sets a condition, keeping the time of its last transition if its status stays.
pub(super) fn set_condition(object: &mut Value, kind: &str, status: &str, why: (&str, &str), now: Value) {
    let conditions = array(child(map(object), "status"), "conditions");
    let found = conditions.iter_mut().find(|condition| text(condition, "type") == kind);
    let since = match &found {
        Some(condition) if text(condition, "status") == status => condition.get("lastTransitionTime").cloned(),
        _ => None,
    };
    let condition = json!({"lastTransitionTime": since.unwrap_or(now), "message": why.1, "reason": why.0,
        "status": status, "type": kind});
    match found {
        Some(found) => *found = condition,
        None => conditions.push(condition),
    }
}

impl State {
    /// Serves what a definition that was just written defines, and says so in its status.
    pub(super) fn establish(&mut self, name: &str) {
        let key = Key::new("", name);
        let Some(stored) = self.store.get(TABLE, &key).cloned() else {
            return;
        };
        if !meta(&stored.value, "deletionTimestamp").is_empty() {
            return;
        }
        let resources = resources(&stored.value);
        let table = table(&stored.value);
        let spec = stored.value.get("spec").unwrap_or(&Value::Null);
        let group = text(spec, "group").to_owned();
        let plural = spec.get("names").map_or("", |names| text(names, "plural")).to_owned();
        self.registry.remove(&group, &plural);
        for resource in resources {
            self.registry.add(resource);
        }
        self.store.ensure(&table);

        let mut definition = stored.value.clone();
        let now = seconds(self.clock.now());
        let names = definition.get("spec").and_then(|spec| spec.get("names")).cloned();
        let current = versions(&stored.value)
            .find(|v| flag(v, "storage"))
            .map_or("", |v| text(v, "name"));
        let status = child(map(&mut definition), "status");
        status.insert("acceptedNames".into(), names.unwrap_or_else(|| json!({})));
        let mut stored_versions: Vec<Value> = status
            .get("storedVersions")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        if !stored_versions.iter().any(|version| version == current) {
            stored_versions.push(current.into());
        }
        status.insert("storedVersions".into(), stored_versions.into());
        set_condition(
            &mut definition,
            "NamesAccepted",
            "True",
            ("NoConflicts", "no conflicts found"),
            now.clone(),
        );
        let why = ("InitialNamesAccepted", "the initial names have been accepted");
        set_condition(&mut definition, "Established", "True", why, now);
        if definition != stored.value {
            let owner = Owner::new("kube-apiserver", false, "status", "apiextensions.k8s.io/v1");
            let typed = Typed {
                schema: schema::builtin("apiextensions.k8s.io", "v1", "CustomResourceDefinition").map(AsRef::as_ref),
                api_version: "apiextensions.k8s.io/v1".into(),
                empty: json!({}),
                reset: FieldSet::of(&[&["spec"], &["metadata"]]),
            };
            typed.update(&stored.value, &mut definition, &owner, self.clock.now());
            self.store.put(&TABLE.into(), key, definition);
        }
    }
}
