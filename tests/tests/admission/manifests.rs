//! What must be taken.

use std::{fs, path::Path, sync::LazyLock};

use serde_json::Value;

static MANIFESTS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds/tests/manifests");
    let mut paths: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let texts = paths.iter().map(|path| fs::read_to_string(path).unwrap());
    texts
        .flat_map(|text| serde_saphyr::from_multiple::<Value>(&text).unwrap())
        .collect()
});

/// Every manifest that must be taken.
pub(crate) fn manifests() -> Vec<Value> {
    MANIFESTS.clone()
}

/// One of them.
pub(crate) fn named(kind: &str, name: &str) -> Value {
    let found = MANIFESTS
        .iter()
        .find(|manifest| manifest["kind"] == kind && manifest["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}")).clone()
}

/// A manifest's kind and name.
pub(crate) fn title(manifest: &Value) -> String {
    format!("{} {}", manifest["kind"], manifest["metadata"]["name"])
}

/// What is in `said` and not in `stored`.
pub(crate) fn missing(said: &Value, stored: &Value) -> Vec<String> {
    match (said, stored) {
        (Value::Object(said), Value::Object(_)) => {
            let inner = said.iter().flat_map(|(key, value)| {
                let inner = stored
                    .get(key)
                    .map_or_else(|| vec![String::new()], |stored| missing(value, stored));
                inner.into_iter().map(move |rest| format!(".{key}{rest}"))
            });
            inner.collect()
        }
        (Value::Array(said), Value::Array(stored)) if said.len() == stored.len() => {
            let inner = said.iter().zip(stored).enumerate().flat_map(|(at, (said, stored))| {
                missing(said, stored)
                    .into_iter()
                    .map(move |rest| format!("[{at}]{rest}"))
            });
            inner.collect()
        }
        (Value::Number(said), Value::Number(stored)) if said.as_f64() == stored.as_f64() => Vec::new(),
        _ if said == stored => Vec::new(),
        _ => vec![format!(" is {stored} rather than {said}")],
    }
}

/// Drops what the API server drops: a `null` in the place of an object, a list or a number.
pub(crate) fn drop_null(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_null);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_null),
        _ => {}
    }
}

/// Those that have a status.
pub(crate) fn with_status() -> Vec<Value> {
    let manifests = MANIFESTS.iter();
    let manifests =
        manifests.filter(|manifest| manifest["status"].as_object().is_some_and(|status| !status.is_empty()));
    manifests.cloned().collect()
}
