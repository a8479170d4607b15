//! Lines as Go's encoder writes them for both of Sedna's programs: field names, their order, nulls and escapes are the contract, so
//! that nothing is read here as only stand-ins of ours would write it.
//!
//! `lines/` was written by Go's `encoding/json` from structs that have the fields and tags of Sedna 0.7.0's: of
//! `pkg/localcontroller/gmclient/types.go` (message, header, status) and `pkg/globalmanager/messagelayer/model/model.go` for the
//! envelopes, of `pkg/apis/sedna/v1alpha1/*_types.go` and Kubernetes' own types for what they carry. Sedna itself wrote none of them.

use serde_json::{Value, json};

use super::content;
use crate::{
    Credential, Object, ObjectKey, Report, ReportPayload,
    sedna::{envelope::Envelope, told::Told},
};

const LOCAL_CONTROLLER: &str = include_str!("lines/local-controller.jsonl");
const MANAGER: &str = include_str!("lines/manager.jsonl");

fn key(kind: &str, name: &str) -> ObjectKey {
    ObjectKey::new(kind, "default", name)
}

fn message(kind: &str, name: &str, phase: &str, status: &str, info: &Value, results: &Value) -> Value {
    json!({
        "name": "", "namespace": "default", "ownerName": name, "ownerKind": kind,
        "kind": phase, "status": status, "ownerInfo": info, "results": results,
    })
}

/// What the lines of a local controller say, the greeting left out.
fn reported() -> [(ObjectKey, ReportPayload); 5] {
    let of_worker = |kind, name, phase, status, info, results| {
        let message = message(kind, name, phase, status, &info, &results);
        (key(kind, name), message)
    };
    let helmet = json!({
        "startTime": "2025-03-06 08:00:00", "updateTime": "2025-03-06 08:00:30",
        "inferenceNumber": 9, "hardExampleNumber": 2, "uploadCloudRatio": 22.22,
    });
    let round = json!({
        "currentRound": 4, "sampleCount": 240,
        "startTime": "2025-03-06 08:00:00", "updateTime": "2025-03-06 08:03:10",
    });
    let trained = json!([
        {"format": "pb", "url": "/output/<defect>&1.pb", "metrics": {"accuracy": [0.5, 0.93]}, "classes": null},
    ]);
    let (service, metrics) = of_worker("jointinferenceservice", "helmet", "inference", "", helmet, json!([]));
    let (job, running) = of_worker("federatedlearningjob", "defect", "train", "running", round, json!([]));
    let (_, completed) = of_worker(
        "federatedlearningjob",
        "defect",
        "train",
        "completed",
        json!({}),
        trained,
    );
    // What it asks for to be trained is in its input, which is nothing to a manager that decides so itself.
    let (learning, ready) = of_worker(
        "incrementallearningjob",
        "helmet-il",
        "Train",
        "Ready",
        json!({}),
        json!([]),
    );
    let event = |message: Value| ReportPayload::Event {
        message: message.into(),
    };
    [
        (key("dataset", "images"), ReportPayload::DatasetSamples { count: 1797 }),
        (
            service,
            ReportPayload::Metrics {
                message: metrics.into(),
            },
        ),
        (
            job.clone(),
            ReportPayload::Round {
                round: 4,
                message: running.into(),
            },
        ),
        (job, event(completed)),
        (learning, event(ready)),
    ]
}

#[test]
fn what_a_local_controller_of_sednas_writes_means_what_it_says() {
    let mut lines = LOCAL_CONTROLLER.lines();
    let greeting = Envelope::decode(lines.next().unwrap()).unwrap();
    assert_eq!(greeting.said().unwrap(), None);
    let said: Vec<_> = lines
        .map(|line| Envelope::decode(line).unwrap().said().unwrap().unwrap())
        .map(|said| (said.key, said.payload))
        .collect();
    assert_eq!(said, reported());
}

#[test]
fn a_node_of_ours_writes_what_a_local_controller_of_sednas_would() {
    // Of its input a node of ours says nothing yet.
    let lines: Vec<_> = LOCAL_CONTROLLER.lines().skip(1).take(4).collect();
    for (line, (key, payload)) in lines.iter().zip(reported()) {
        let report = Report {
            seq: 1,
            id: None,
            key,
            uid: "u".to_owned(),
            observed_at: super::NOW,
            payload,
        };
        let (ours, theirs) = (Envelope::status(&report).unwrap(), Envelope::decode(line).unwrap());
        let lower = |envelope: &Envelope| envelope.header.resource_kind.to_lowercase();
        assert_eq!(lower(&ours), lower(&theirs));
        assert_eq!(
            (
                &ours.header.namespace,
                &ours.header.resource_name,
                &ours.header.operation
            ),
            (
                &theirs.header.namespace,
                &theirs.header.resource_name,
                &theirs.header.operation
            )
        );
        assert_eq!(empty_as_null(content(&ours)), empty_as_null(content(&theirs)), "{line}");
    }
}

/// To Go a list or map that is null is an empty one.
fn empty_as_null(value: Value) -> Value {
    match value {
        Value::Array(items) if items.is_empty() => Value::Null,
        Value::Object(fields) if fields.is_empty() => Value::Null,
        Value::Array(items) => items.into_iter().map(empty_as_null).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, field)| (name, empty_as_null(field)))
            .collect(),
        scalar => scalar,
    }
}

/// What the lines of a manager tell, in their order.
fn told() -> Vec<(Object, Option<Credential>)> {
    let lines = MANAGER
        .lines()
        .map(|line| Envelope::decode(line).unwrap().told().unwrap());
    let puts = lines.filter_map(|told| match told {
        Told::Put { object, credential } => Some((object, credential)),
        Told::Delete(_) => None,
    });
    puts.collect()
}

#[test]
fn what_a_manager_of_sednas_writes_means_what_it_says() {
    let told = told();
    let keys: Vec<_> = told
        .iter()
        .map(|(object, _)| (object.key.clone(), object.generation))
        .collect();
    let helmet = key("jointinferenceservice", "helmet");
    assert_eq!(
        keys,
        [
            (key("dataset", "images"), 2),
            (helmet.clone(), 1),
            (helmet, 2),
            (key("federatedlearningjob", "defect"), 1)
        ]
    );
    let (dataset, credential) = &told[0];
    assert_eq!(dataset.uid, "5d1c64a4-5a3c-4c8e-9d0e-2f1f3a1b6c7d");
    assert_eq!(
        dataset.body.value().unwrap()["spec"],
        json!({"url": "s3://bucket/images/a&b.txt", "format": "txt", "nodeName": "edge-1", "credentialName": "s3"})
    );
    let credential = credential.as_ref().unwrap();
    let fields = [
        ("ACCESS_KEY_ID", "id"),
        ("SECRET_ACCESS_KEY", "hidden"),
        ("s3-endpoint", "minio:9000"),
        ("s3-usehttps", "0"),
    ];
    assert_eq!(
        (credential.secret.as_str(), &credential.fields),
        (
            "s3",
            &fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
        )
    );
    assert!(!dataset.body.json().contains("hidden"));
    let last = Envelope::decode(MANAGER.lines().last().unwrap()).unwrap();
    assert_eq!(last.told().unwrap(), Told::Delete(key("dataset", "images")));
}

#[test]
fn a_manager_of_ours_writes_nothing_that_one_of_sednas_would_not() {
    let inserts = MANAGER.lines().filter(|line| line.contains(r#""operation":"insert""#));
    let told = told();
    for line in inserts {
        let theirs = Envelope::decode(line).unwrap();
        let (object, credential) = told
            .iter()
            .find(|(object, _)| object.key.name == theirs.header.resource_name)
            .unwrap();
        let ours = Envelope::insert(object, credential.as_ref());
        assert_eq!(ours.header, theirs.header);
        is_within(&content(&ours), &content(&theirs));
    }
    let theirs = Envelope::decode(MANAGER.lines().last().unwrap()).unwrap();
    let ours = Envelope::delete(&key("dataset", "images"));
    assert_eq!(ours.header, theirs.header);
}

/// Each field of `ours` is one of `theirs`, with that value.
fn is_within(ours: &Value, theirs: &Value) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            for (name, field) in ours {
                let theirs = theirs.get(name);
                is_within(field, theirs.unwrap_or_else(|| panic!("{name} is none of theirs")));
            }
        }
        _ => assert_eq!(ours, theirs),
    }
}
