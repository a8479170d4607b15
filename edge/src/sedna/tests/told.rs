//! What Sedna's own manager tells, and how it is reported to.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{content, credential, key, object};
use crate::{
    Item, ObjectKey, Report, ReportPayload, limits,
    node::Change,
    sedna::{
        envelope::{Envelope, EnvelopeError, Header, Said},
        holdings::Holdings,
        receipts::Receipts,
        told::Told,
    },
};

fn envelope(operation: &str, kind: &str, content: &str) -> Envelope {
    let header = Header {
        namespace: "default".to_owned(),
        resource_kind: kind.to_owned(),
        resource_name: "d".to_owned(),
        operation: operation.to_owned(),
    };
    Envelope {
        header,
        content: STANDARD.encode(content),
    }
}

/// As Go writes it.
fn dataset(annotations: &Value) -> Value {
    json!({
        "kind": "Dataset",
        "metadata": {
            "name": "d", "namespace": "default", "uid": "uid-d", "resourceVersion": "17", "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": annotations,
            "managedFields": [{"manager": "kubectl", "operation": "Update"}],
        },
        "spec": {"url": "s3://bucket/d.csv", "format": "csv", "nodeName": "edge-1", "credentialName": "s3"},
        "status": {"numberOfSamples": 3},
    })
}

fn put(envelope: &Envelope) -> (crate::Object, Option<crate::Credential>) {
    match envelope.told().unwrap() {
        Told::Put { object, credential } => (object, credential),
        told @ Told::Delete(_) => panic!("{told:?}"),
    }
}

#[test]
fn what_sednas_manager_writes_is_read() {
    let fields = r#"{"s3-endpoint":"minio:9000","s3-usehttps":"0","ACCESS_KEY_ID":"id","SECRET_ACCESS_KEY":"hidden"}"#;
    let annotations = json!({"sedna.io/credential": fields, "other": "x"});
    for operation in ["insert", "update"] {
        let envelope = envelope(operation, "dataset", &dataset(&annotations).to_string());
        let (object, credential) = put(&Envelope::decode(&envelope.encode()).unwrap());
        assert_eq!(
            (object.key, object.uid.as_str(), object.generation),
            (key("d"), "uid-d", 2)
        );
        assert_eq!(
            object.body.value().unwrap(),
            json!({
                "apiVersion": "sedna.io/v1alpha1", "kind": "Dataset",
                "metadata": {"name": "d", "namespace": "default", "uid": "uid-d", "generation": 2},
                "spec": {"url": "s3://bucket/d.csv", "format": "csv", "nodeName": "edge-1", "credentialName": "s3"},
            })
        );
        let credential = credential.unwrap();
        assert_eq!((credential.secret.as_str(), credential.fields.len()), ("s3", 4));
        assert_eq!(credential.fields["SECRET_ACCESS_KEY"], "hidden");
    }
    let (_, credential) = put(&envelope("insert", "dataset", &dataset(&json!(null)).to_string()));
    assert_eq!(credential, None);
    let delete = envelope("delete", "dataset", &dataset(&annotations).to_string());
    assert_eq!(delete.told().unwrap(), Told::Delete(key("d")));
}

#[test]
fn what_our_manager_tells_old_agents_is_read_by_a_node_of_ours() {
    let (object, credential) = (object("d", 3), credential("d"));
    let mut body = object.body.value().unwrap();
    body["spec"]["credentialName"] = json!("s3");
    let object = crate::Object {
        body: body.into(),
        ..object
    };
    let (told, told_credential) = put(&Envelope::insert(&object, Some(&credential)));
    assert_eq!((told.key, told.uid, told.generation), (object.key, object.uid, 3));
    assert_eq!(told_credential, Some(credential));
    assert_eq!(Envelope::delete(&key("d")).told().unwrap(), Told::Delete(key("d")));
}

#[test]
fn what_is_no_message_of_sednas_manager_is_refused_in_words() {
    let good = dataset(&json!({}));
    let with = |path: &str, value: Value| {
        let mut content = good.clone();
        *content.pointer_mut(path).unwrap() = value;
        content.to_string()
    };
    let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    let deep = format!(r#"{{"kind":"Dataset","metadata":{{}},"spec":{{"a":{deep}}}}}"#);
    let long = |length| Value::from("x".repeat(length));
    let secret = json!({"sedna.io/credential": r#"{"SECRET_ACCESS_KEY": 12345678}"#});
    let refused = [
        (envelope("status", "dataset", &good.to_string()), "may be", "form"),
        (envelope("", "dataset", &good.to_string()), "may be", "form"),
        (
            envelope("insert", "pod", &good.to_string()),
            "no kind of Sedna's",
            "kind",
        ),
        (envelope("delete", "pod", ""), "no kind of Sedna's", "kind"),
        (envelope("insert", "../etc", &good.to_string()), "kind", "no_name"),
        (envelope("insert", "dataset", ""), "content is no resource", "form"),
        (envelope("insert", "dataset", "null"), "content is no resource", "form"),
        (envelope("insert", "dataset", "[]"), "content is no resource", "form"),
        (envelope("insert", "dataset", "{"), "content is no resource", "form"),
        (envelope("insert", "dataset", "{}"), "content is no resource", "form"),
        (
            envelope("insert", "dataset", &with("/spec", json!(null))),
            "content is no resource",
            "form",
        ),
        (
            envelope("insert", "dataset", &with("/metadata/generation", json!("2"))),
            "content is no resource",
            "form",
        ),
        (
            envelope("insert", "dataset", &with("/metadata/uid", long(4096))),
            "uid takes",
            "form",
        ),
        (
            envelope("insert", "dataset", &with("/spec/url", long(limits::MAX_BODY))),
            "resource takes",
            "form",
        ),
        (envelope("insert", "dataset", &deep), "deeper than", "form"),
        (
            envelope("insert", "dataset", &with("/metadata/annotations", secret)),
            "sedna.io/credential",
            "form",
        ),
    ];
    for (envelope, words, word) in refused {
        let error = envelope.told().unwrap_err();
        let sentence = error.to_string();
        assert!(sentence.contains(words) && !sentence.contains("1234"), "{sentence}");
        assert_eq!(error.word(), word, "{sentence}");
        assert!(sentence.len() < 300, "{sentence}");
    }
    let mut not_base64 = envelope("insert", "dataset", "");
    "%".clone_into(&mut not_base64.content);
    assert!(matches!(not_base64.told(), Err(EnvelopeError::NotBase64(_))));
    for text in [
        "",
        "null",
        "[]",
        r#"{"header":null}"#,
        r#"{"header":{"operation":null}}"#,
    ] {
        assert!(Envelope::decode(text).is_err(), "{text}");
    }
}

#[test]
fn a_status_that_a_report_could_not_carry_is_refused() {
    let deep = format!("{}1{}", "[".repeat(50), "]".repeat(50));
    let mut envelope = envelope("status", "reidjob", "");
    envelope.content = STANDARD.encode(format!(r#"{{"output":{{"ownerInfo":{{"a":{deep}}}}}}}"#));
    assert!(matches!(envelope.said(), Err(EnvelopeError::TooDeep(_))));
}

fn report(kind: &str, payload: ReportPayload) -> Report {
    Report {
        seq: 1,
        id: None,
        key: ObjectKey::new(kind, "default", "job"),
        uid: "u".to_owned(),
        observed_at: Timestamp::UNIX_EPOCH,
        payload,
    }
}

#[test]
fn a_report_is_the_status_that_sednas_local_controller_would_write() {
    let message = |kind: &str| {
        json!({
            "name": "w", "namespace": "default", "ownerName": "job", "ownerKind": kind,
            "kind": "train", "status": "completed", "ownerInfo": {"currentRound": 4},
            "results": [{"format": "pb", "url": "/m"}],
        })
    };
    let status = |kind: &str| {
        let payload = ReportPayload::of_worker(kind, &message(kind));
        let envelope = Envelope::status(&report(kind, payload)).unwrap();
        assert_eq!(
            (envelope.header.operation.as_str(), &*envelope.header.resource_kind),
            ("status", kind)
        );
        // The manager of ours that stands in for Sedna's reads the same.
        let Said { key, payload } = envelope.said().unwrap().unwrap();
        assert_eq!(key, ObjectKey::new(kind, "default", "job"));
        assert_eq!(
            payload.coalesces(),
            ReportPayload::of_worker(kind, &message(kind)).coalesces()
        );
        content(&envelope)
    };
    let info = json!({"currentRound": 4});
    assert_eq!(
        status("federatedlearningjob"),
        json!({"phase": "train", "status": "completed", "output": {"models": [{"format": "pb", "url": "/m"}], "ownerInfo": info}})
    );
    assert_eq!(
        status("jointinferenceservice"),
        json!({"phase": "train", "status": "completed", "output": {"models": null, "ownerInfo": info}})
    );
    let samples = report("dataset", ReportPayload::DatasetSamples { count: 3 });
    assert_eq!(
        Envelope::status(&samples).unwrap().content,
        "eyJudW1iZXJPZlNhbXBsZXMiOjN9"
    );
    let failed = ReportPayload::DatasetFailed {
        reason: "no such file".to_owned(),
    };
    assert_eq!(Envelope::status(&report("dataset", failed)), None);
}

#[test]
fn what_is_told_again_changes_nothing_and_a_credential_goes_with_its_object() {
    let mut holdings = Holdings::new(vec![Item::Object(object("e", 1)).row()]);
    let mut tell = |told: Told| {
        let changes = holdings.changes(told).unwrap();
        holdings.stored(&changes);
        changes
    };
    let put = |edit, credential| Told::Put {
        object: object("d", edit),
        credential,
    };
    let first = tell(put(1, Some(credential("d"))));
    assert_eq!(
        first,
        [Change::Put(object("d", 1)), Change::PutCredential(credential("d"))]
    );
    assert_eq!(tell(put(1, Some(credential("d")))), []);
    assert_eq!(tell(put(2, Some(credential("d")))), [Change::Put(object("d", 2))]);
    let gone = Change::Delete(credential("d").key());
    assert_eq!(tell(put(2, None)), std::slice::from_ref(&gone));
    tell(put(2, Some(credential("d"))));
    let deleted = tell(Told::Delete(key("d")));
    assert_eq!(deleted, [Change::Delete(key("d").into()), gone]);
    assert_eq!(tell(Told::Delete(key("d"))), []);
    assert_eq!(holdings.uid(&key("d")), None);
    assert_eq!(holdings.uid(&key("e")), Some("uid-e"), "nobody has deleted it");
}

#[test]
fn a_node_holds_so_much_and_no_more() {
    let name = |number| format!("d{number}");
    let rows = (0..limits::MAX_ITEMS).map(|number| Item::Object(object(&name(number), 1)).row());
    let holdings = Holdings::new(rows.collect());
    let put = |name: &str| Told::Put {
        object: object(name, 2),
        credential: None,
    };
    assert!(holdings.changes(put("new")).is_err());
    assert_eq!(
        holdings.changes(put("d7")).unwrap().len(),
        1,
        "what it holds may change"
    );
    assert_eq!(holdings.changes(Told::Delete(key("d7"))).unwrap().len(), 1);
}

#[test]
fn what_was_read_is_done_with_and_the_rest_goes_again() {
    let mut receipts = Receipts::default();
    assert_eq!(receipts.want(), None, "there is no connection");
    receipts.connected();
    assert_eq!(receipts.want(), Some((0, limits::REPORT_WINDOW)));
    for seq in [3, 4, 7] {
        receipts.passed(seq, true);
    }
    receipts.passed(8, false);
    let mark = receipts.mark();
    assert_eq!(receipts.want(), Some((8, limits::REPORT_WINDOW - 3)));
    receipts.exhausted();
    assert_eq!(receipts.want(), None);
    receipts.grew();
    receipts.passed(9, true);
    assert_eq!(receipts.answered(mark + 100).len(), 0, "of a ping that was never sent");
    assert_eq!(receipts.answered(mark).into_iter().collect::<Vec<_>>(), [3, 4, 7]);
    assert!(receipts.waits());
    assert_eq!(receipts.answered(mark).len(), 0, "once");
    receipts.connected();
    assert!(!receipts.waits());
    assert_eq!(receipts.want(), Some((0, limits::REPORT_WINDOW)), "from the start");
}

#[test]
fn a_manager_that_does_not_answer_is_sent_a_window_and_no_more() {
    let mut receipts = Receipts::default();
    receipts.connected();
    for seq in 1..=limits::REPORT_WINDOW as u64 {
        receipts.passed(seq, true);
    }
    assert_eq!(receipts.want(), None);
    receipts.answered(1);
    assert_eq!(receipts.want(), Some((limits::REPORT_WINDOW as u64, 1)));
}
