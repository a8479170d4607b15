//! The wire stays as it is: the bytes of every frame, that each is read back as it was, and what is refused.

use std::collections::BTreeMap;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    ContentHash, Object, ObjectKey, Report, ReportPayload, ReportResult,
    digest::{chunk_hashes, chunk_of},
};

fn key() -> ObjectKey {
    ObjectKey::new("jointinferenceservice", "default", "helmet")
}

fn epoch() -> Epoch {
    Epoch {
        lease: "0a2f".to_owned(),
        transitions: 7,
    }
}

fn row() -> Row {
    Row {
        key: key().into(),
        uid: "5d1c".to_owned(),
        generation: 3,
        hash: ContentHash::of(b"{}"),
    }
}

fn report(payload: ReportPayload) -> Upstream {
    let observed_at = Timestamp::from_second(1_700_000_000).unwrap();
    Upstream::Report {
        settled: 40,
        report: Report {
            seq: 41,
            key: key(),
            uid: "5d1c".to_owned(),
            observed_at,
            payload,
        },
    }
}

/// One of every frame to a node, and of every form that it takes.
fn downstream() -> Vec<Downstream> {
    let secret = ItemKey {
        object: key(),
        secret: Some("s3".to_owned()),
    };
    let fields = [("ACCESS_KEY_ID", "id"), ("SECRET_ACCESS_KEY", "key")];
    vec![
        Downstream::Welcome {
            cluster: "c0ffee".to_owned(),
            epoch: epoch(),
            start: Start::Resume {},
        },
        Downstream::Welcome {
            cluster: "c0ffee".to_owned(),
            epoch: epoch(),
            start: Start::Digest {
                chunks: chunk_hashes(&[row()], 2),
            },
        },
        Downstream::Synced { version: 12 },
        Downstream::Put {
            version: 13,
            object: Object {
                key: key(),
                uid: "5d1c".to_owned(),
                generation: 3,
                body: json!({"spec": {"z": 1.5, "a": ["ä\n\""]}, "kind": "JointInferenceService"}).into(),
            },
        },
        Downstream::PutCredential {
            version: 14,
            credential: Credential {
                owner: key(),
                uid: "5d1c".to_owned(),
                secret: "s3".to_owned(),
                fields: fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            },
        },
        Downstream::Delete {
            version: 15,
            key: key().into(),
        },
        Downstream::Delete {
            version: 16,
            key: secret,
        },
        Downstream::ReportResult {
            seq: 41,
            result: ReportResult::Accepted {},
        },
        Downstream::ReportResult {
            seq: 42,
            result: ReportResult::Refused {
                reason: "gone".to_owned(),
            },
        },
        Downstream::ReportLater {
            seq: 43,
            retry_after_ms: 5000,
        },
        Downstream::Restarting {
            reconnect_after_ms: 1200,
        },
        Downstream::Replaced {},
        Downstream::Refused {
            reason: RefusedReason::OtherCluster,
            hint: "join anew".to_owned(),
        },
    ]
}

/// One of every frame to the manager, and of every form that it takes.
fn upstream() -> Vec<Upstream> {
    let message = || json!({"name": "w", "kind": "inference", "ownerInfo": {"inferenceNumber": 9}}).into();
    let hello = |stored| Hello {
        node: "edge-1".to_owned(),
        boot: "b7".to_owned(),
        protocol: 1,
        agent: "0.1.0".to_owned(),
        stored,
        holds: 5,
    };
    vec![
        Upstream::Hello(hello(None)),
        Upstream::Hello(hello(Some(Position {
            version: 9,
            ..Position::start("c0ffee", epoch())
        }))),
        Upstream::Rows {
            chunks: vec![0, 3],
            rows: vec![row()],
            more: true,
        },
        Upstream::Ack { version: 13 },
        report(ReportPayload::Metrics { message: message() }),
        report(ReportPayload::Round {
            round: 4,
            message: message(),
        }),
        report(ReportPayload::Event { message: message() }),
        report(ReportPayload::DatasetSamples { count: 1797 }),
        report(ReportPayload::DatasetFailed {
            reason: "no such file".to_owned(),
        }),
        Upstream::Gap { seq: 44, count: 3 },
        Upstream::Refused {
            reason: RefusedReason::Deposed,
            hint: "a newer manager was heard".to_owned(),
        },
    ]
}

#[test]
fn the_bytes_of_frames_to_a_node() {
    let lines: Vec<_> = downstream().iter().map(|frame| frame.encode().unwrap()).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn the_bytes_of_frames_to_the_manager() {
    let lines: Vec<_> = upstream().iter().map(|frame| frame.encode().unwrap()).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn every_frame_is_known_by_the_name_it_is_written_under() {
    let tag = |text: String| {
        let frame: BTreeMap<String, Value> = serde_json::from_str(&text).unwrap();
        frame.into_keys().next().unwrap()
    };
    let mut seen: Vec<_> = downstream()
        .iter()
        .map(|frame| (frame.name(), tag(frame.encode().unwrap())))
        .collect();
    seen.dedup();
    let names: Vec<_> = seen.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, Downstream::NAMES);
    assert!(seen.iter().all(|(name, tag)| name == tag));

    let mut seen: Vec<_> = upstream()
        .iter()
        .map(|frame| (frame.name(), tag(frame.encode().unwrap())))
        .collect();
    seen.dedup();
    let names: Vec<_> = seen.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, Upstream::NAMES);
    assert!(seen.iter().all(|(name, tag)| name == tag));
}

#[test]
fn a_credential_prints_nothing_of_its_values() {
    let printed = format!("{:?}", downstream());
    assert!(
        printed.contains("[redacted]") && !printed.contains("\"key\""),
        "{printed}"
    );
}

#[test]
fn what_a_newer_peer_adds_is_told_apart_from_what_is_malformed() {
    let decode = |text| Downstream::decode(text).unwrap();
    assert_eq!(
        decode(r#"{"teleport":{"to":[1,{"a":2}]}}"#),
        Received::Unknown("teleport".to_owned())
    );
    assert_eq!(
        decode(r#"{"synced":{"version":1,"mood":"good"}}"#),
        Received::Message(Downstream::Synced { version: 1 }),
        "an unknown field"
    );
    assert_eq!(
        decode(r#"{"refused":{"reason":"bored","hint":"h"}}"#),
        Received::Message(Downstream::Refused {
            reason: RefusedReason::Unknown,
            hint: "h".to_owned()
        })
    );
    let report = r#"{"report":{"settled":0,"report":{"seq":1,"key":{"kind":"dataset","namespace":"n","name":"d"},
        "uid":"u","observed_at":"2026-01-01T00:00:00Z","payload":{"smell":{"of":"smoke"}}}}}"#;
    let Received::Message(Upstream::Report { report, .. }) = Upstream::decode(report).unwrap() else {
        panic!("a report with an unknown payload is a report")
    };
    assert_eq!(
        report.payload,
        ReportPayload::Unknown {
            variant: "smell".to_owned()
        }
    );
}

#[test]
fn what_is_refused() {
    let deep = format!(
        r#"{{"put":{{"version":1,"object":{}}}}}"#,
        "[".repeat(70) + &"]".repeat(70)
    );
    let long = format!(r#"{{"teleport":"{}"}}"#, "x".repeat(limits::MAX_UPSTREAM));
    for (text, why) in [
        ("", "EOF while parsing"),
        ("null", "not a message"),
        ("[]", "not a message"),
        (r#"{"synced":{"version":1},"replaced":{}}"#, "not a message"),
        (r#"{"synced":{"version":1,"version":2}}"#, "duplicate field"),
        (r#"{"synced":{"version":-1}}"#, "invalid value"),
        (r#"{"synced":{}}"#, "missing field `version`"),
        (
            r#"{"delete":{"version":1,"key":{"object":{"kind":"dataset","namespace":"n","name":"../d"}}}}"#,
            "\"../d\"",
        ),
        (
            r#"{"delete":{"version":1,"key":{"object":{"kind":"Dataset","namespace":"n","name":"d"}}}}"#,
            "kind",
        ),
        (
            r#"{"delete":{"version":1,"key":{"object":{"kind":"dataset","namespace":"n","name":"d"},"secret":"a/b"}}}"#,
            "secret",
        ),
        (&deep, "nests deeper than 64"),
    ] {
        let error = Downstream::decode(text).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
    let error = Upstream::decode(&long).unwrap_err().to_string();
    assert!(error.contains("above the limit of 262144"), "{error}");
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((".*", inner), 0..6).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn any_key() -> impl Strategy<Value = ObjectKey> {
    (
        "[a-z]{1,20}",
        "[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?",
        "[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?(\\.[a-z]{1,3})?",
    )
        .prop_map(|(kind, namespace, name)| ObjectKey { kind, namespace, name })
}

fn any_item_key() -> impl Strategy<Value = ItemKey> {
    (any_key(), prop::option::of("[a-z]{1,9}")).prop_map(|(object, secret)| ItemKey { object, secret })
}

fn any_row() -> impl Strategy<Value = Row> {
    (any_item_key(), ".*", any::<i64>(), any::<[u8; 32]>()).prop_map(|(key, uid, generation, hash)| Row {
        key,
        uid,
        generation,
        hash: hash.into(),
    })
}

fn any_epoch() -> impl Strategy<Value = Epoch> {
    (".*", any::<u64>()).prop_map(|(lease, transitions)| Epoch { lease, transitions })
}

fn any_downstream() -> impl Strategy<Value = Downstream> {
    let start = prop_oneof![
        Just(Start::Resume {}),
        prop::collection::vec(any_row(), 0..20).prop_map(|rows| Start::Digest {
            chunks: chunk_hashes(&rows, 8)
        }),
    ];
    let object = (any_key(), ".*", any::<i64>(), any_json()).prop_map(|(key, uid, generation, body)| Object {
        key,
        uid,
        generation,
        body: body.into(),
    });
    let credential = (
        any_key(),
        ".*",
        "[a-z]{1,9}",
        prop::collection::btree_map(".*", ".*", 0..4),
    )
        .prop_map(|(owner, uid, secret, fields)| Credential {
            owner,
            uid,
            secret,
            fields,
        });
    let result = prop_oneof![
        Just(ReportResult::Accepted {}),
        ".*".prop_map(|reason| ReportResult::Refused { reason }),
    ];
    prop_oneof![
        (".*", any_epoch(), start).prop_map(|(cluster, epoch, start)| Downstream::Welcome { cluster, epoch, start }),
        any::<u64>().prop_map(|version| Downstream::Synced { version }),
        (any::<u64>(), object).prop_map(|(version, object)| Downstream::Put { version, object }),
        (any::<u64>(), credential).prop_map(|(version, credential)| Downstream::PutCredential { version, credential }),
        (any::<u64>(), any_item_key()).prop_map(|(version, key)| Downstream::Delete { version, key }),
        (any::<u64>(), result).prop_map(|(seq, result)| Downstream::ReportResult { seq, result }),
        any::<(u64, u64)>().prop_map(|(seq, retry_after_ms)| Downstream::ReportLater { seq, retry_after_ms }),
        any::<u64>().prop_map(|reconnect_after_ms| Downstream::Restarting { reconnect_after_ms }),
        ".*".prop_map(|hint| Downstream::Refused {
            reason: RefusedReason::Behind,
            hint
        }),
    ]
}

fn any_upstream() -> impl Strategy<Value = Upstream> {
    let stored = prop::option::of((".*", any_epoch(), any::<u64>())).prop_map(|stored| {
        stored.map(|(cluster, epoch, version)| Position {
            cluster,
            epoch,
            version,
        })
    });
    let hello = (".*", ".*", any::<u32>(), ".*", stored, any::<u64>()).prop_map(
        |(node, boot, protocol, agent, stored, holds)| Hello {
            node,
            boot,
            protocol,
            agent,
            stored,
            holds,
        },
    );
    let payload = prop_oneof![
        any_json().prop_map(|message| ReportPayload::Metrics {
            message: message.into()
        }),
        (any::<u64>(), any_json()).prop_map(|(round, message)| ReportPayload::Round {
            round,
            message: message.into()
        }),
        any_json().prop_map(|message| ReportPayload::Event {
            message: message.into()
        }),
        any::<u64>().prop_map(|count| ReportPayload::DatasetSamples { count }),
        ".*".prop_map(|reason| ReportPayload::DatasetFailed { reason }),
    ];
    let report = (
        any::<u64>(),
        any_key(),
        ".*",
        -10_000_000_000_i64..10_000_000_000,
        payload,
    )
        .prop_map(|(seq, key, uid, second, payload)| {
            let observed_at = Timestamp::from_second(second).unwrap();
            Report {
                seq,
                key,
                uid,
                observed_at,
                payload,
            }
        });
    prop_oneof![
        hello.prop_map(Upstream::Hello),
        (
            prop::collection::vec(any::<u32>(), 0..5),
            prop::collection::vec(any_row(), 0..5),
            any::<bool>()
        )
            .prop_map(|(chunks, rows, more)| Upstream::Rows { chunks, rows, more }),
        any::<u64>().prop_map(|version| Upstream::Ack { version }),
        (any::<u64>(), report).prop_map(|(settled, report)| Upstream::Report { settled, report }),
        any::<(u64, u64)>().prop_map(|(seq, count)| Upstream::Gap { seq, count }),
        ".*".prop_map(|hint| Upstream::Refused {
            reason: RefusedReason::Deposed,
            hint
        }),
    ]
}

proptest! {
    #[test]
    fn frames_to_a_node_are_read_as_they_were_written(frame in any_downstream()) {
        let text = frame.encode().unwrap();
        prop_assert_eq!(Downstream::decode(&text).unwrap(), Received::Message(frame));
    }

    #[test]
    fn frames_to_the_manager_are_read_as_they_were_written(frame in any_upstream()) {
        let text = frame.encode().unwrap();
        prop_assert_eq!(Upstream::decode(&text).unwrap(), Received::Message(frame));
    }

    #[test]
    fn nothing_that_comes_makes_a_decoder_fail_otherwise_than_by_its_error(
        text in ".*",
        frame in any_downstream(),
        cut in any::<prop::sample::Index>(),
    ) {
        let _ = (Downstream::decode(&text), Upstream::decode(&text));
        let mut half = frame.encode().unwrap();
        half.truncate((0..=cut.index(half.len())).rev().find(|at| half.is_char_boundary(*at)).unwrap_or(0));
        prop_assert!(Downstream::decode(&half).is_err());
    }

    #[test]
    fn equal_values_have_equal_hashes_whatever_the_order_of_their_keys(value in any_json()) {
        fn turned(value: &Value) -> Value {
            match value {
                Value::Object(fields) => {
                    Value::Object(fields.iter().rev().map(|(name, field)| (name.clone(), turned(field))).collect())
                }
                Value::Array(items) => Value::Array(items.iter().map(turned).collect()),
                scalar => scalar.clone(),
            }
        }
        prop_assert_eq!(crate::Body::from(&value).hash(), crate::Body::from(turned(&value)).hash());
    }

    #[test]
    fn a_chunk_s_hash_tells_whether_it_holds_the_same_rows(
        rows in prop::collection::btree_map(any_item_key(), any_row(), 1..40),
        changed in any::<prop::sample::Index>(),
    ) {
        let rows: Vec<Row> = rows.into_iter().map(|(key, row)| Row { key, ..row }).collect();
        let mut other: Vec<Row> = rows.iter().rev().cloned().collect();
        prop_assert_eq!(chunk_hashes(&rows, 8), chunk_hashes(&other, 8), "order does not count");
        let at = changed.index(other.len());
        other[at].generation = other[at].generation.wrapping_add(1);
        let chunk = chunk_of(&other[at].key, 8);
        let differs = |at: &usize| chunk_hashes(&rows, 8)[*at] != chunk_hashes(&other, 8)[*at];
        prop_assert_eq!((0..8).filter(differs).collect::<Vec<_>>(), vec![chunk]);
    }
}
