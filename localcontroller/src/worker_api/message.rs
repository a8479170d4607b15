//! A worker's message, as Sedna's worker library sends it, and what kind of report it makes.
//!
//! Decides what is refused before it is stored: whatever the manager would take for a breach of the protocol must
//! never get into the outbox, since it would end every session in which it is sent. What a message means for a status
//! is the manager's to decide.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use skerry_edge::{Body, ObjectKey, ReportPayload, limits};
use thiserror::Error;

use crate::store::NewReport;

/// The kinds whose workers report, as Sedna's worker library writes them.
const OWNER_KINDS: [&str; 7] = [
    "featureextractionservice",
    "federatedlearningjob",
    "incrementallearningjob",
    "jointinferenceservice",
    "lifelonglearningjob",
    "reidjob",
    "videoanalyticsjob",
];

/// Levels of nesting in a message: what is left of [`limits::MAX_DEPTH`] without the frames that it travels in.
const MAX_DEPTH: usize = limits::MAX_DEPTH / 2;

/// The body of `POST /sedna/workers/{name}/info`. Sedna takes `null` for nothing, so do we.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WorkerMessage {
    #[serde(deserialize_with = "null_as_default")]
    name: String,
    #[serde(deserialize_with = "null_as_default")]
    namespace: String,
    #[serde(deserialize_with = "null_as_default")]
    owner_name: String,
    #[serde(deserialize_with = "null_as_default")]
    owner_kind: String,
    #[serde(deserialize_with = "null_as_default")]
    kind: String,
    #[serde(deserialize_with = "null_as_default")]
    status: String,
    #[serde(deserialize_with = "null_as_default")]
    owner_info: Map<String, Value>,
    #[serde(deserialize_with = "null_as_default")]
    results: Vec<Map<String, Value>>,
}

fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Why a message is refused.
#[derive(Debug, Error)]
pub enum MessageError {
    /// Not JSON, or a field of another type.
    #[error("the body is not a worker's message: {0}")]
    Malformed(#[from] serde_json::Error),
    /// The path and the body contradict each other.
    #[error("the path names worker {path:?} and the body {body:?}: both have to be the worker's name")]
    Name {
        /// The name in the path.
        path: String,
        /// `name` in the body.
        body: String,
    },
    /// Deeper than can be sent on.
    #[error("the body nests deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// Longer than can be sent on.
    #[error("the body takes {bytes} bytes, it may take {}", limits::MAX_REPORT)]
    TooLong {
        /// How long it is, written out.
        bytes: usize,
    },
}

/// What a message is.
#[derive(Debug)]
pub enum Meant {
    /// Something to report.
    Report(Box<NewReport>),
    /// Nothing that anybody could take: Sedna answers that all is well and drops it. Why.
    Nothing(String),
}

/// Reads the message that `worker` has sent.
pub fn read(worker: &str, body: &[u8]) -> Result<Meant, MessageError> {
    // By way of a map: a struct would be read from an array, too.
    let fields: Map<String, Value> = serde_json::from_slice(body)?;
    let message: WorkerMessage = serde_json::from_value(Value::Object(fields))?;
    if message.name != worker {
        return Err(MessageError::Name {
            path: worker.to_owned(),
            body: message.name,
        });
    }
    if !OWNER_KINDS.contains(&message.owner_kind.as_str()) {
        return Ok(Meant::Nothing(format!(
            "ownerKind {:?} has no workers",
            message.owner_kind
        )));
    }
    let key = ObjectKey::new(&message.owner_kind, &message.namespace, &message.owner_name);
    if let Err(error) = key.check() {
        return Ok(Meant::Nothing(error.to_string()));
    }
    let payload = payload(&message)?;
    Ok(Meant::Report(Box::new(NewReport {
        key,
        worker: Some(message.name),
        payload,
    })))
}

fn payload(message: &WorkerMessage) -> Result<ReportPayload, MessageError> {
    let value = serde_json::to_value(message)?;
    if depth(&value) > MAX_DEPTH {
        return Err(MessageError::TooDeep);
    }
    let bytes = Body::from(&value).json().len();
    if bytes > limits::MAX_REPORT {
        return Err(MessageError::TooLong { bytes });
    }
    Ok(ReportPayload::of_worker(&message.owner_kind, &value))
}

fn depth(value: &Value) -> usize {
    let below: usize = match value {
        Value::Array(items) => items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(fields) => fields.values().map(depth).max().unwrap_or_default(),
        _ => return 0,
    };
    below + 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use skerry_edge::{ReportId, Upstream};

    use super::*;

    fn message(owner_kind: &str, more: &Value) -> Vec<u8> {
        let mut message = json!({
            "name": "w", "namespace": "default", "ownerName": "o", "ownerKind": owner_kind,
        });
        for (field, value) in more.as_object().unwrap() {
            message[field] = value.clone();
        }
        message.to_string().into_bytes()
    }

    fn report(owner_kind: &str, more: &Value) -> NewReport {
        match read("w", &message(owner_kind, more)) {
            Ok(Meant::Report(report)) => *report,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn joint_inference_counts_are_metrics() {
        let info = json!({"inferenceNumber": 10, "hardExampleNumber": 2, "uploadCloudRatio": 0.2});
        let more = json!({"kind": "inference", "ownerInfo": info, "results": [], "unknown": 1});
        let report = report("jointinferenceservice", &more);
        assert_eq!(report.key, ObjectKey::new("jointinferenceservice", "default", "o"));
        assert_eq!(report.worker.as_deref(), Some("w"));
        let ReportPayload::Metrics { message } = report.payload else {
            panic!()
        };
        assert_eq!(message.value().unwrap()["ownerInfo"], info);
    }

    #[test]
    fn a_round_of_a_trainer_is_a_round_whatever_its_status() {
        for status in ["running", "completed"] {
            let more = json!({"kind": "train", "status": status, "ownerInfo": {"currentRound": 3}});
            let report = report("federatedlearningjob", &more);
            assert!(
                matches!(report.payload, ReportPayload::Round { round: 3, .. }),
                "{report:?}"
            );
        }
    }

    #[test]
    fn phases_are_events() {
        for (kind, more) in [
            (
                "incrementallearningjob",
                json!({"kind": "train", "status": "completed", "results": [{"url": "/m"}]}),
            ),
            (
                "federatedlearningjob",
                json!({"kind": "train", "status": "failed", "ownerInfo": null}),
            ),
            (
                "jointinferenceservice",
                json!({"kind": "inference", "status": "failed"}),
            ),
        ] {
            let report = report(kind, &more);
            assert!(matches!(report.payload, ReportPayload::Event { .. }), "{report:?}");
        }
    }

    #[test]
    fn what_nobody_could_take_is_dropped() {
        for body in [
            message("deployment", &json!({})),
            message("jointinferenceservice", &json!({"ownerName": "../../etc"})),
            message("jointinferenceservice", &json!({"namespace": ""})),
        ] {
            assert!(matches!(read("w", &body), Ok(Meant::Nothing(_))));
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        assert!(matches!(
            read("v", &message("reidjob", &json!({}))),
            Err(MessageError::Name { .. })
        ));
        for body in [
            "",
            "null",
            "[]",
            "{",
            r#"{"name":"w","results":{}}"#,
            r#"{"name":"w","ownerInfo":[]}"#,
        ] {
            assert!(
                matches!(read("w", body.as_bytes()), Err(MessageError::Malformed(_))),
                "{body}"
            );
        }
        let deep = (0..60).fold(json!(1), |value, _| json!([value]));
        let body = message("reidjob", &json!({"ownerInfo": {"deep": deep}}));
        assert!(matches!(read("w", &body), Err(MessageError::TooDeep)));
        // Small as it was sent, long as it is written out.
        let long = format!("[{}]", vec!["1e15"; 20_000].join(","));
        let body = format!(
            r#"{{"name":"w","namespace":"n","ownerName":"o","ownerKind":"reidjob","ownerInfo":{{"a":{long}}}}}"#
        );
        assert!(body.len() < limits::MAX_REPORT);
        assert!(matches!(read("w", body.as_bytes()), Err(MessageError::TooLong { .. })));
    }

    /// The frame in which a report goes to the manager.
    fn frame(report: NewReport) -> String {
        let frame = Upstream::Report {
            settled: 1,
            after: None,
            report: skerry_edge::Report {
                seq: 1,
                id: Some(ReportId {
                    boot: "b".repeat(36),
                    number: u64::MAX,
                }),
                key: report.key,
                uid: "u".to_owned(),
                observed_at: jiff::Timestamp::UNIX_EPOCH,
                payload: report.payload,
            },
        };
        frame.encode().unwrap()
    }

    #[test]
    fn the_deepest_message_that_is_taken_can_be_sent() {
        let deep = (0..MAX_DEPTH - 2).fold(json!(1), |value, _| json!([value]));
        let report = report("reidjob", &json!({"ownerInfo": {"deep": deep}}));
        Upstream::decode(&frame(report)).unwrap();
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 64, 6, |value| {
            prop_oneof![
                prop::collection::vec(value.clone(), 0..6).prop_map(Value::from),
                prop::collection::hash_map("[a-zA-Z]{0,8}", value, 0..6).prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_dropped(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(!matches!(read("w", &bytes), Ok(Meant::Report(_))));
        }

        #[test]
        fn whatever_is_taken_can_be_sent(
            owner_kind in prop_oneof![prop::sample::select(&OWNER_KINDS[..]), Just("Reid Job"), Just("")],
            owner in prop_oneof![Just("o"), Just("O_"), Just("..")],
            field in prop::sample::select(&["ownerInfo", "results", "kind", "status", "more"][..]),
            value in value(),
        ) {
            let body = message(owner_kind, &json!({"ownerName": owner, field: value}));
            if let Ok(Meant::Report(report)) = read("w", &body) {
                prop_assert!(Upstream::decode(&frame(*report)).is_ok());
            }
        }
    }
}
