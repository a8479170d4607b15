//! Objects for tests.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{Live, Lookup, ObjectKind, Reference, References};

/// The documents of a file in `fixtures/`.
pub(crate) fn fixture(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The resource of this kind among documents, with a uid and a generation, and all that it may refer to.
pub(crate) fn resource<K: crate::Kind>(documents: &[Value]) -> (K, References) {
    let (resource, others): (Vec<_>, Vec<_>) = documents
        .iter()
        .cloned()
        .partition(|document| document["kind"] == K::KIND.kind);
    let mut resource = resource.into_iter().next().expect("the resource is in the file");
    resource["metadata"]["uid"] = json!("11111111-2222-3333-4444-555555555555");
    resource["metadata"]["namespace"] = json!("default");
    resource["metadata"]["generation"] = json!(1);
    (parse(resource), found(others))
}

/// A typed resource.
pub(crate) fn parse<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// A Model.
pub(crate) fn model(name: &str, url: &str, secret: &str) -> Value {
    json!({"kind": "Model", "metadata": {"name": name}, "spec": {"url": url, "format": "pb", "credentialName": secret}})
}

/// A Dataset on `edge-1`.
pub(crate) fn dataset(name: &str, url: &str, secret: &str) -> Value {
    let spec = json!({"url": url, "format": "txt", "nodeName": "edge-1", "credentialName": secret});
    json!({"kind": "Dataset", "metadata": {"name": name}, "spec": spec})
}

/// A good Secret.
pub(crate) fn secret(name: &str) -> Value {
    json!({
        "kind": "Secret",
        "metadata": {"name": name, "annotations": {"s3-endpoint": "s3.example"}},
        "data": {"ACCESS_KEY_ID": "aWQ=", "SECRET_ACCESS_KEY": "a2V5"},
    })
}

/// The objects as found behind references.
pub(crate) fn found(objects: impl IntoIterator<Item = Value>) -> References {
    let kind = |object: &Value| match object["kind"].as_str() {
        Some("Model") => ObjectKind::MODEL,
        Some("Dataset") => ObjectKind::DATASET,
        Some("Secret") => ObjectKind::SECRET,
        other => panic!("no such kind: {other:?}"),
    };
    let entry = |object: Value| {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        (Reference::new(kind(&object), name), Lookup::Found(object))
    };
    References(objects.into_iter().map(entry).collect())
}

/// A live pod.
pub(crate) fn pod(name: &str, node: Option<&str>, status: &Value) -> Live {
    let object = json!({"metadata": {"name": name, "uid": format!("uid-of-{name}")}, "spec": {"nodeName": node}, "status": status});
    Live {
        kind: ObjectKind::POD,
        object,
    }
}
