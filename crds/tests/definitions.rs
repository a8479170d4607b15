//! The definitions as files: up to date, small, and of the shape that the API server takes.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests may fail as tests do"
)]

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::{Map, Value};
use skerry_crds::names::{child, label, limit, worker_type};

/// `kubectl apply` puts the whole object into an annotation of at most 256 KiB; a quarter is left for what grows.
const MOST: usize = 200 * 1024;

fn definitions() -> Vec<Value> {
    let definitions = skerry_crds::all();
    definitions
        .iter()
        .map(|crd| serde_json::to_value(crd).unwrap())
        .collect()
}

fn root(definition: &Value) -> &Value {
    &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
}

fn kind(definition: &Value) -> &str {
    definition["spec"]["names"]["kind"].as_str().unwrap()
}

/// Calls `check` with the path and the content of each schema below `schema`, itself included.
fn walk(path: &str, schema: &Value, check: &mut impl FnMut(&str, &Map<String, Value>)) {
    let schema = schema
        .as_object()
        .unwrap_or_else(|| panic!("{path} is no schema: {schema}"));
    check(path, schema);
    for (name, property) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        walk(&format!("{path}.{name}"), property, check);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(key) {
            walk(&format!("{path}[]"), inner, check);
        }
    }
}

#[test]
fn the_chart_holds_what_the_types_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/skerry/files/crds");
    let committed = fs::read_dir(&folder).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read_to_string(entry.path()).unwrap())
    });
    let committed: BTreeMap<_, _> = committed.collect();
    let definitions = skerry_crds::all();
    let generated = definitions
        .iter()
        .map(|crd| (skerry_crds::file_name(crd), skerry_crds::document(crd).unwrap()));
    let generated: BTreeMap<_, _> = generated.collect();
    let names = |files: &BTreeMap<String, String>| files.keys().cloned().collect::<Vec<_>>();
    let remedy = "run: cargo run -p skerry-crds --bin crdgen -- charts/skerry/files/crds";
    assert_eq!(names(&committed), names(&generated), "{remedy}");
    for (name, text) in &generated {
        assert!(committed[name] == *text, "{name} is out of date; {remedy}");
    }
}

#[test]
fn files_mean_what_the_types_say() {
    let definitions = skerry_crds::all();
    for (crd, expected) in definitions.iter().zip(self::definitions()) {
        let document = skerry_crds::document(crd).unwrap();
        let read: Value = serde_saphyr::from_str(&document).unwrap();
        assert_eq!(read, expected, "{}", kind(&expected));
    }
}

#[test]
fn definitions_fit_an_annotation() {
    for crd in skerry_crds::all() {
        let name = skerry_crds::file_name(crd);
        let json = serde_json::to_string(crd).unwrap().len();
        let yaml = skerry_crds::document(crd).unwrap().len();
        assert!(
            json < MOST && yaml < MOST,
            "{name}: {json} bytes of JSON, {yaml} of YAML"
        );
    }
}

#[test]
fn all_of_sedna_is_there() {
    let found: Vec<_> = definitions()
        .iter()
        .filter(|crd| crd["spec"]["group"] == "sedna.io")
        .map(|crd| {
            let names = &crd["spec"]["names"];
            let short = names["shortNames"][0].as_str().unwrap_or_default().to_owned();
            assert_eq!(crd["spec"]["scope"], "Namespaced");
            let version = &crd["spec"]["versions"][0];
            assert_eq!(version["name"], "v1alpha1");
            assert_eq!(version["subresources"], serde_json::json!({"status": {}}));
            assert_eq!(root(crd)["required"], serde_json::json!(["spec"]), "{}", kind(crd));
            (
                kind(crd).to_owned(),
                names["plural"].as_str().unwrap().to_owned(),
                short,
            )
        })
        .collect();
    let expected = [
        ("Dataset", "datasets", ""),
        ("FeatureExtractionService", "featureextractionservices", "fe"),
        ("FederatedLearningJob", "federatedlearningjobs", "fl"),
        ("IncrementalLearningJob", "incrementallearningjobs", "il"),
        ("JointInferenceService", "jointinferenceservices", "ji"),
        ("LifelongLearningJob", "lifelonglearningjobs", "ll"),
        ("Model", "models", ""),
        ("ObjectSearchService", "objectsearchservices", "objs"),
        ("ObjectTrackingService", "objecttrackingservices", "objt"),
        ("ReidJob", "reidjobs", "reid"),
        ("VideoAnalyticsJob", "videoanalyticsjobs", "va"),
    ];
    let expected = expected.map(|(kind, plural, short)| (kind.to_owned(), plural.to_owned(), short.to_owned()));
    assert_eq!(found, expected);
}

/// The API server's rules for a structural schema, as far as ours could break them.
#[test]
fn schemas_are_structural() {
    for definition in definitions() {
        walk(kind(&definition), root(&definition), &mut |path, schema| {
            for forbidden in ["$ref", "definitions", "allOf", "anyOf", "oneOf", "not", "uniqueItems"] {
                assert!(!schema.contains_key(forbidden), "{path} has {forbidden}");
            }
            let nullable = path.ends_with(".metadata.creationTimestamp");
            assert_eq!(
                schema.contains_key("nullable"),
                nullable,
                "{path}: a field is absent, not null"
            );
            let int_or_string = schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true));
            assert_ne!(
                schema.contains_key("type"),
                int_or_string,
                "{path}: a type, or an integer or text"
            );
            assert!(
                !(schema.contains_key("properties") && schema.contains_key("additionalProperties")),
                "{path} is both an object and a map"
            );
            assert_eq!(
                schema.get("type").and_then(Value::as_str) == Some("array"),
                schema.contains_key("items"),
                "{path}: a list says what it holds, and nothing else does"
            );
            for required in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
                let required = required.as_str().unwrap();
                assert!(
                    schema["properties"].get(required).is_some(),
                    "{path} requires {required}, which is not there"
                );
            }
            for key in schema
                .get("x-kubernetes-list-map-keys")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                let required = &schema["items"]["required"];
                assert!(
                    required.as_array().unwrap().contains(key),
                    "{path} is keyed by {key}, which may be absent"
                );
            }
        });
    }
}

/// Sedna's types have this one default; another would change what users wrote.
#[test]
fn nothing_is_defaulted_but_the_poll_period() {
    let mut defaults = Vec::new();
    for definition in definitions() {
        walk(kind(&definition), root(&definition), &mut |path, schema| {
            defaults.extend(schema.get("default").map(|default| format!("{path}={default}")));
        });
    }
    assert_eq!(
        defaults,
        ["IncrementalLearningJob.spec.deploySpec.model.pollPeriodSeconds=60"]
    );
}

/// Each writer applies its own part of a status, so no part of it may be required beside another.
#[test]
fn no_field_of_a_status_is_required() {
    for definition in definitions() {
        let status = &root(&definition)["properties"]["status"];
        assert_eq!(status.get("required"), None, "{}", kind(&definition));
        if let Some(conditions) = status["properties"].get("conditions") {
            assert_eq!(conditions["x-kubernetes-list-type"], "atomic", "{}", kind(&definition));
        }
    }
}

#[test]
fn what_our_own_fields_mean_is_explained() {
    for definition in definitions() {
        for part in ["spec", "status"] {
            let schema = &root(&definition)["properties"][part];
            assert!(schema["description"].is_string(), "{} {part}", kind(&definition));
        }
    }
}

#[test]
fn the_longest_names_leave_room_for_their_children() {
    let fits = |most: usize, derive: &dyn Fn(&str) -> Vec<String>| {
        let longest = |length: usize| derive(&"x".repeat(length)).iter().map(String::len).max().unwrap();
        assert!(longest(most) <= 63, "{most} is too many");
        assert!(longest(most + 1) > 63, "{most} is too few");
    };
    fits(limit::LABEL, &|name| vec![name.to_owned()]);
    fits(limit::JOINT_INFERENCE_SERVICE, &|name| {
        let types = [worker_type::EDGE, worker_type::CLOUD];
        let mut derived: Vec<_> = types.iter().map(|type_| label::app_value(name, type_)).collect();
        derived.push(child::service(name, worker_type::CLOUD));
        derived
    });
    fits(limit::FEDERATED_LEARNING_JOB, &|name| {
        vec![child::service(name, worker_type::AGGREGATION)]
    });
    fits(limit::OBJECT_SERVICE, &|name| {
        let types = [worker_type::USER, worker_type::REID];
        let derived = types.map(|type_| [label::app_value(name, type_), child::service(name, type_)]);
        derived.concat()
    });
    fits(limit::FEATURE_EXTRACTION_SERVICE, &|name| {
        let type_ = worker_type::FEATURE_EXTRACTION;
        vec![label::app_value(name, type_), child::service(name, type_)]
    });
    fits(limit::VIDEO_ANALYTICS_JOB, &|name| {
        vec![child::service(name, worker_type::VIDEO_ANALYTICS)]
    });
}
