//! Manifests of every kind, in the manner of Sedna's own: the types read all of them and lose nothing.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests may fail as tests do"
)]

use std::{collections::BTreeSet, fs, path::Path};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use skerry_crds::{sedna::v1alpha1 as sedna, skerry::v1alpha1 as skerry};

/// Each document in each file, after the name of the file and its own.
fn manifests() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/manifests");
    let mut paths: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let documents = paths.iter().flat_map(|path| {
        let text = fs::read_to_string(path).unwrap();
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        documents
            .into_iter()
            .map(move |document| (format!("{file}: {}", document["metadata"]["name"]), document))
    });
    documents.collect()
}

/// What the type makes of a value and gives back.
fn there_and_back<K: DeserializeOwned + Serialize>(value: &Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(serde_json::from_value::<K>(value.clone())?)
}

fn typed(kind: &str, value: &Value) -> Result<Value, serde_json::Error> {
    match kind {
        "Dataset" => there_and_back::<sedna::Dataset>(value),
        "EdgeNode" => there_and_back::<skerry::EdgeNode>(value),
        "FeatureExtractionService" => there_and_back::<sedna::FeatureExtractionService>(value),
        "FederatedLearningJob" => there_and_back::<sedna::FederatedLearningJob>(value),
        "IncrementalLearningJob" => there_and_back::<sedna::IncrementalLearningJob>(value),
        "JointInferenceService" => there_and_back::<sedna::JointInferenceService>(value),
        "LifelongLearningJob" => there_and_back::<sedna::LifelongLearningJob>(value),
        "Model" => there_and_back::<sedna::Model>(value),
        "ObjectSearchService" => there_and_back::<sedna::ObjectSearchService>(value),
        "ObjectTrackingService" => there_and_back::<sedna::ObjectTrackingService>(value),
        "ReidJob" => there_and_back::<sedna::ReidJob>(value),
        "VideoAnalyticsJob" => there_and_back::<sedna::VideoAnalyticsJob>(value),
        other => panic!("no such kind: {other}"),
    }
}

/// Drops what the API server drops before anyone sees it: a `null`.
fn as_stored(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(as_stored);
        }
        Value::Array(list) => list.iter_mut().for_each(as_stored),
        _ => {}
    }
}

/// Numbers as the API server compares them: 1 is 1.0.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(key, left)| right.get(key).is_some_and(|right| same(left, right)))
        }
        _ => left == right,
    }
}

#[test]
fn types_lose_nothing() {
    for (name, mut manifest) in manifests() {
        as_stored(&mut manifest);
        let kind = manifest["kind"].as_str().unwrap();
        let back = typed(kind, &manifest).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(same(&manifest, &back), "{name}\nsaid {manifest}\nread {back}");
    }
}

/// The manifests stand for all that users and managers write, so they must say all that there is to say.
#[test]
fn manifests_use_every_field() {
    let mut unused = BTreeSet::new();
    for crd in skerry_crds::all() {
        let crd = serde_json::to_value(crd).unwrap();
        let kind = crd["spec"]["names"]["kind"].as_str().unwrap();
        let root = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let manifests: Vec<_> = manifests().into_iter().map(|(_, manifest)| manifest).collect();
        let of_kind: Vec<_> = manifests.iter().filter(|manifest| manifest["kind"] == kind).collect();
        collect_unused(kind, root, &of_kind, &mut unused);
    }
    // The fields of the one type of conditions are each used by some kinds only, and the kinds that are not decided
    // about yet have no other fields of ours.
    unused.retain(|path| !path.contains(".conditions[].") && !path.ends_with(".status.observedGeneration"));
    assert_eq!(unused, BTreeSet::new());
}

/// The paths in `schema` that none of `values` has, but for the inside of Kubernetes' own types.
fn collect_unused(path: &str, schema: &Value, values: &[&Value], unused: &mut BTreeSet<String>) {
    if values.is_empty() {
        unused.insert(path.to_owned());
        return;
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if property.get("description").is_some() {
            let values: Vec<_> = values.iter().filter_map(|value| value.get(name)).collect();
            collect_unused(&format!("{path}.{name}"), property, &values, unused);
        }
    }
    if let Some(items) = schema.get("items").filter(|items| items.get("description").is_some()) {
        let values: Vec<_> = values.iter().filter_map(|value| value.as_array()).flatten().collect();
        collect_unused(&format!("{path}[]"), items, &values, unused);
    }
}
