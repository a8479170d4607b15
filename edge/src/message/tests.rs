//! The wire stays as it is: the bytes of every frame, that each is read back as it was, and what is refused.

mod round_trips;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::{
    ContentHash, Object, ObjectKey, Report, ReportId, ReportPayload, ReportResult,
    digest::{chunk_hashes, chunk_of},
};

fn key() -> ObjectKey {
    ObjectKey::new("jointinferenceservice", "default", "helmet")
}

fn epoch() -> Epoch {
    Epoch {
        lease: "0a2f".to_owned(),
        transitions: 7,
        made: None,
    }
}

/// The same of a manager that says when its Lease was made.
fn dated(epoch: Epoch) -> Epoch {
    let made = Some(Timestamp::from_second(1_700_000_000).unwrap());
    Epoch { made, ..epoch }
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
    report_of(None, payload)
}

fn report_of(boot: Option<&str>, payload: ReportPayload) -> Upstream {
    let observed_at = Timestamp::from_second(1_700_000_000).unwrap();
    Upstream::Report {
        settled: 40,
        after: None,
        report: Report {
            seq: 41,
            id: boot.map(|boot| ReportId {
                boot: boot.to_owned(),
                number: 39,
            }),
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
            reports_per_second: None,
        },
        Downstream::Welcome {
            cluster: "c0ffee".to_owned(),
            epoch: dated(epoch()),
            start: Start::Digest {
                chunks: chunk_hashes(&[row()], 2),
            },
            reports_per_second: Some(500),
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
    let hello = |stored: Option<Position>| Hello {
        node: "edge-1".to_owned(),
        boot: "b7".to_owned(),
        protocol: 1,
        agent: "0.1.0".to_owned(),
        window: stored.is_some().then_some(1024),
        stored,
        holds: 5,
    };
    vec![
        Upstream::Hello(hello(None)),
        Upstream::Hello(hello(Some(Position {
            version: 9,
            ..Position::start("c0ffee", dated(epoch()))
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
        report_of(Some("b7"), ReportPayload::Event { message: message() }),
        report(ReportPayload::DatasetSamples { count: 1797 }),
        report(ReportPayload::DatasetFailed {
            reason: "no such file".to_owned(),
        }),
        Upstream::Gap { seq: 44, count: 3 },
        Upstream::Outbox(OutboxDepth {
            messages: 7,
            bytes: 2100,
        }),
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
