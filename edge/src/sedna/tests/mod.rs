//! The words of the old protocol, and what an agent is told.

mod lines;
mod room;
mod told;

use std::{collections::BTreeMap, time::Duration};

use axum::serve::Listener as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    agent::{Agent, HOMELESS, OWED, PATIENCE, Room, SHARE},
    envelope::{Envelope, Said},
    pipe::pipes,
};
use crate::{
    Body, ContentHash, Credential, Epoch, Object, ObjectKey, Position, ReportPayload, limits,
    node::{Batch, Change, Outgoing, Wanted},
    transport::client::Dialer as _,
};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("dataset", "default", name)
}

fn object(name: &str, edit: i64) -> Object {
    let body = json!({
        "apiVersion": "sedna.io/v1alpha1", "kind": "Dataset", "metadata": {"name": name},
        "spec": {"url": edit.to_string()}, "workers": ["w"],
    });
    Object {
        key: key(name),
        uid: format!("uid-{name}"),
        generation: edit,
        body: body.into(),
    }
}

fn credential(name: &str) -> Credential {
    Credential {
        owner: key(name),
        uid: format!("uid-{name}"),
        secret: "s3".to_owned(),
        fields: [("ACCESS_KEY_ID".to_owned(), "id".to_owned())].into(),
    }
}

fn batch(changes: Vec<Change>) -> Batch {
    let epoch = Epoch {
        lease: "l".to_owned(),
        transitions: 0,
        made: None,
    };
    Batch {
        changes,
        position: Position::start("c", epoch),
    }
}

fn told(agent: &mut Agent, changes: Vec<Change>) -> Vec<String> {
    let told = agent.apply(NOW, batch(changes));
    let line = |envelope: &Envelope| format!("{} {}", envelope.header.operation, envelope.header.resource_name);
    told.iter().map(line).collect()
}

fn content(envelope: &Envelope) -> Value {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    serde_json::from_slice(&STANDARD.decode(&envelope.content).unwrap()).unwrap()
}

fn samples(name: &str, count: u64) -> Said {
    Said {
        key: key(name),
        payload: ReportPayload::DatasetSamples { count },
    }
}

fn event(name: &str, text: &str) -> Said {
    Said {
        key: key(name),
        payload: ReportPayload::Event {
            message: json!(text).into(),
        },
    }
}

fn owed(agent: &Agent) -> Vec<(u64, String)> {
    let report = |outgoing| match outgoing {
        Outgoing::Report(report) => (report.seq, report.uid),
        Outgoing::Gap { .. } => panic!("nothing is given up"),
    };
    let wanted = Wanted {
        of: None,
        after: 0,
        limit: usize::MAX,
    };
    agent.fetch(&wanted).into_iter().map(report).collect()
}

#[test]
fn what_an_agent_of_sedna_writes_is_read() {
    // As it was seen on the wire.
    let seen = r#"{"header":{"namespace":"default","resourceKind":"Dataset","resourceName":"ds1","operation":"status"},"content":"eyJudW1iZXJPZlNhbXBsZXMiOjN9"}"#;
    let envelope = Envelope::decode(seen).unwrap();
    assert_eq!(envelope.said().unwrap(), Some(samples("ds1", 3)));
    let hello = r#"{"namespace":"","resourceKind":"","resourceName":"","operation":""}"#;
    assert_eq!(Envelope::decode(hello).unwrap().said().unwrap(), None);
    assert_eq!(
        Envelope::decode(r#"{"header":{},"content":null}"#)
            .unwrap()
            .said()
            .unwrap(),
        None
    );
}

#[test]
fn a_status_is_the_workers_message_that_it_was_made_of() {
    let status =
        json!({"phase": "inference", "status": "", "output": {"models": null, "ownerInfo": {"inferenceNumber": 9}}});
    let mut envelope = Envelope::delete(&ObjectKey::new("jointinferenceservice", "default", "helmet"));
    envelope.header.operation = "status".to_owned();
    let with = |envelope: &mut Envelope, status: &Value| {
        use base64::{Engine as _, engine::general_purpose::STANDARD};
        envelope.content = STANDARD.encode(status.to_string());
    };
    with(&mut envelope, &status);
    let message = json!({
        "name": "", "namespace": "default", "ownerName": "helmet", "ownerKind": "jointinferenceservice",
        "kind": "inference", "status": "", "ownerInfo": {"inferenceNumber": 9}, "results": [],
    });
    assert_eq!(
        envelope.said().unwrap().unwrap().payload,
        ReportPayload::Metrics {
            message: Body::from(message)
        }
    );
    envelope.header.resource_kind = "FederatedLearningJob".to_owned();
    let info = json!({"currentRound": 4});
    with(
        &mut envelope,
        &json!({"phase": "train", "status": "running", "output": {"ownerInfo": info}}),
    );
    let said = envelope.said().unwrap().unwrap();
    assert!(
        matches!(said.payload, ReportPayload::Round { round: 4, .. }),
        "{said:?}"
    );
    with(
        &mut envelope,
        &json!({"phase": "train", "status": "failed", "output": null}),
    );
    assert!(matches!(
        envelope.said().unwrap().unwrap().payload,
        ReportPayload::Event { .. }
    ));
    let long = "x".repeat(limits::MAX_REPORT);
    with(&mut envelope, &json!({"output": {"ownerInfo": {"long": long}}}));
    assert!(envelope.said().unwrap_err().to_string().contains("it may take"));
}

#[test]
fn an_insert_is_as_sednas_manager_writes_it() {
    let envelope = Envelope::insert(&object("d", 1), Some(&credential("d")));
    let text = envelope.encode();
    assert!(
        text.starts_with(r#"{"header":{"namespace":"default","resourceKind":"dataset","resourceName":"d","operation":"insert"},"content":""#)
            && text.ends_with("\"}\n"),
        "{text}"
    );
    assert_eq!(Envelope::decode(&text).unwrap(), envelope);
    assert_eq!(
        content(&envelope),
        json!({
            "kind": "Dataset",
            "metadata": {
                "name": "d", "namespace": "default", "uid": "uid-d", "generation": 1,
                "annotations": {"sedna.io/credential": r#"{"ACCESS_KEY_ID":"id"}"#},
            },
            "spec": {"url": "1"},
            "status": {},
        })
    );
}

#[test]
fn of_several_changes_of_an_object_the_agent_is_told_the_last() {
    let mut agent = Agent::new("b".to_owned());
    let put = |name, edit| Change::Put(object(name, edit));
    let changes = vec![put("a", 1), put("b", 1), put("a", 2), Change::Delete(key("b").into())];
    assert_eq!(told(&mut agent, changes), ["delete a", "insert a", "delete b"]);
    assert_eq!(agent.holds(), 1);
    // A credential goes with its object, whichever comes first.
    let credential = || Change::PutCredential(credential("c"));
    assert_eq!(told(&mut agent, vec![credential()]), Vec::<String>::new());
    let with = agent.apply(NOW, batch(vec![put("c", 1)]));
    assert!(content(&with[1])["metadata"].get("annotations").is_some());
    let another = told(&mut agent, vec![credential()]);
    assert_eq!(another, ["delete c", "insert c"], "it may be another");
    let without = agent.apply(NOW, batch(vec![Change::Delete(self::credential("c").key())]));
    assert!(content(&without[1])["metadata"].get("annotations").is_none());
}

#[test]
fn an_agent_that_comes_again_may_hold_what_it_was_told_before() {
    let mut agent = Agent::new("b".to_owned());
    let put = |name| Change::Put(object(name, 1));
    told(&mut agent, vec![put("a"), put("b")]);
    assert!(agent.disconnected(), "that is to be kept in mind");
    agent.connected();
    let rows = agent.rows();
    let known: Vec<_> = rows.iter().map(|row| row.key.object.name.as_str()).collect();
    assert_eq!((known, agent.holds()), (vec!["a", "b"], 2));
    assert!(
        rows.iter().all(|row| row.hash == ContentHash::default()),
        "and be told anew"
    );
    assert_eq!(
        told(&mut agent, vec![put("a"), Change::Delete(key("b").into())]),
        ["delete a", "insert a", "delete b"]
    );
    assert_eq!(agent.rows().len(), 1);
    told(&mut agent, vec![Change::Delete(key("a").into())]);
    agent.connected();
    assert!(!agent.disconnected(), "nothing is left of it");
}

/// As Sedna's agent keeps Datasets: what it counts is settled when it first hears of one, and it reports a count that differs
/// from its last.
#[derive(Default)]
struct Counting(BTreeMap<String, (String, u64)>);

impl Counting {
    /// The counts that it reports.
    fn hear(&mut self, told: Vec<Envelope>) -> Vec<(String, u64)> {
        let mut reported = Vec::new();
        for envelope in told {
            let name = envelope.header.resource_name.clone();
            if envelope.header.operation == "delete" {
                self.0.remove(&name);
                continue;
            }
            let url = content(&envelope)["spec"]["url"].as_str().unwrap().to_owned();
            let (url, last) = self.0.entry(name.clone()).or_insert((url, 0));
            // There are as many samples as the URL says.
            let count = url.parse().unwrap();
            if *last != count {
                *last = count;
                reported.push((name, count));
            }
        }
        reported
    }
}

#[test]
fn a_dataset_is_counted_anew_whatever_the_agent_counted_before() {
    let (mut agent, mut counting) = (Agent::new("b".to_owned()), Counting::default());
    let mut told = |agent: &mut Agent, object| counting.hear(agent.apply(NOW, batch(vec![Change::Put(object)])));
    let counted = |count| [("d".to_owned(), count)];
    assert_eq!(told(&mut agent, object("d", 1)), counted(1));
    assert_eq!(told(&mut agent, object("d", 2)), counted(2), "its URL is another");
    let again = Object {
        uid: "another".to_owned(),
        ..object("d", 2)
    };
    assert_eq!(told(&mut agent, again.clone()), counted(2), "it was made again");
    agent.connected();
    assert_eq!(
        told(&mut agent, again.clone()),
        counted(2),
        "its report may have been lost"
    );
    // Another manager, which knows nothing of this agent.
    agent = Agent::new("c".to_owned());
    assert_eq!(told(&mut agent, again), counted(2));
}

#[test]
fn reports_are_kept_until_they_are_answered_over_connections_too() {
    let mut agent = Agent::new("b".to_owned());
    told(&mut agent, vec![Change::Put(object("d", 1))]);
    for said in [samples("d", 1), event("d", "x"), samples("d", 2)] {
        agent.report(NOW, said);
    }
    let uid = || "uid-d".to_owned();
    assert_eq!(owed(&agent), [(2, uid()), (3, uid())], "of counts the last");
    agent.settle(2);
    agent.connected();
    assert_eq!(owed(&agent), [(3, uid())]);
    agent.report(NOW, event("d", "y"));
    assert_eq!(owed(&agent).len(), 1, "it waits until the object is told anew");
    told(&mut agent, vec![Change::Put(object("d", 1))]);
    assert_eq!(owed(&agent), [(3, uid()), (4, uid())]);
}

#[test]
fn what_somebody_can_have_kept_who_says_a_name_is_bounded() {
    let mut agent = Agent::new("b".to_owned());
    for number in 0..1_000 {
        agent.report(NOW, event(&format!("d{number}"), &"x".repeat(1_000)));
    }
    let puts = (0..1_000)
        .map(|number| Change::Put(object(&format!("d{number}"), 1)))
        .collect();
    told(&mut agent, puts);
    let kept = owed(&agent).len();
    assert!(kept > 0 && kept * 1_000 < HOMELESS, "{kept}");
    let (full_until, given_up) = (None, 0);
    assert_eq!(agent.make_room(Instant::now()), Room { full_until, given_up });
    assert!(!agent.disconnected() || agent.holds() > 0);
}

#[test]
fn no_figure_takes_the_place_of_an_event_that_waits_for_its_object() {
    let mut agent = Agent::new("b".to_owned());
    agent.report(NOW, event("d0", "x"));
    for number in 0..1_000 {
        agent.report(NOW, samples(&format!("d{number}"), 1));
        agent.report(NOW, samples("d1", number));
    }
    agent.report(NOW, event("d1", "y"));
    let puts = (0..1_000)
        .map(|number| Change::Put(object(&format!("d{number}"), 1)))
        .collect();
    told(&mut agent, puts);
    let wanted = Wanted {
        of: None,
        after: 0,
        limit: 1_000,
    };
    let owed = agent.fetch(&wanted);
    let events = owed
        .iter()
        .filter(|owed| matches!(owed, Outgoing::Report(report) if !report.payload.coalesces()));
    assert_eq!(events.count(), 2);
    assert!(owed.len() > 2, "there is room for figures, too");
}

#[tokio::test]
async fn whoever_was_admitted_has_one_session() {
    let (dialer, mut taken) = pipes(false);
    let once = dialer.once();
    let (near, _) = tokio::join!(once.dial(), taken.accept());
    assert!(near.is_ok());
    assert!(once.dial().await.is_err());
    let next = dialer.once();
    let (another, _) = tokio::join!(next.dial(), taken.accept());
    assert!(another.is_ok(), "the next connection has its own");
}
