//! The manager's end in single steps, against a node that answers by hand.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::{
    Credential, Epoch, Item, ItemKey, Object, ObjectKey, Position, Report, ReportPayload, ReportResult, Row, Upstream,
    digest, limits,
    message::{Hello, Received, RefusedReason, Start},
};

const NOW: Duration = Duration::from_secs(100);

fn server() -> Server {
    Server {
        cluster: "ours".to_owned(),
        epoch: Epoch {
            lease: "lease".to_owned(),
            transitions: 3,
        },
    }
}

fn peer() -> Peer {
    Peer {
        identity: None,
        confidential: true,
    }
}

fn hello(stored: Option<Position>) -> Hello {
    Hello {
        node: "edge-1".to_owned(),
        boot: "boot".to_owned(),
        protocol: 1,
        agent: "0.1.0".to_owned(),
        stored,
        holds: 0,
    }
}

fn at(version: u64) -> Position {
    Position {
        version,
        ..Position::start("ours", server().epoch)
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("dataset", "default", name)
}

fn object(name: &str, edit: i64) -> Item {
    Item::Object(Object {
        key: key(name),
        uid: format!("uid-{name}"),
        generation: edit,
        body: json!({"edit": edit}).into(),
    })
}

fn set(node: &mut Node, items: &[Item]) {
    for item in items {
        node.objects.set(NOW, item.clone());
    }
}

fn fill(node: &mut Node, objects: usize) {
    set(
        node,
        &(0..objects).map(|i| object(&format!("d{i}"), 1)).collect::<Vec<_>>(),
    );
}

fn credential(name: &str) -> Item {
    let fields = [("k".to_owned(), "v".to_owned())].into();
    Item::Credential(Credential {
        owner: key(name),
        uid: format!("uid-{name}"),
        secret: "s3".to_owned(),
        fields,
    })
}

fn report(seq: u64, name: &str, uid: &str) -> Upstream {
    let payload = ReportPayload::DatasetSamples { count: 1 };
    let report = Report {
        seq,
        key: key(name),
        uid: uid.to_owned(),
        observed_at: Timestamp::UNIX_EPOCH,
        payload,
    };
    Upstream::Report { settled: seq, report }
}

fn sent(outputs: &[Output]) -> Vec<&Downstream> {
    outputs
        .iter()
        .filter_map(|output| {
            if let Output::Send(frame) = output {
                Some(frame)
            } else {
                None
            }
        })
        .collect()
}

fn names(outputs: &[Output]) -> Vec<&'static str> {
    sent(outputs).iter().map(|frame| frame.name()).collect()
}

/// A session that says what it is told, with a rule that lets everything be deleted.
struct Link {
    session: Session,
    first: Vec<Output>,
}

impl Link {
    fn start(node: &mut Node, number: u64, peer: &Peer, hello: Hello) -> Self {
        let (session, first) = Session::start(NOW, number, &server(), peer, hello, node);
        Self { session, first }
    }

    /// A session of a node that holds nothing, past its digest.
    fn live(node: &mut Node) -> Self {
        let mut link = Self::start(node, 0, &peer(), hello(None));
        let outputs = link.answer(node, &[]);
        assert_eq!(names(&outputs).first(), Some(&"synced"));
        link
    }

    fn at(&mut self, now: Duration, node: &mut Node, input: Input) -> Vec<Output> {
        self.session.handle(now, input, node, &|_| true)
    }

    fn frame(&mut self, node: &mut Node, frame: Upstream) -> Vec<Output> {
        self.at(NOW, node, Input::Frame(Ok(Received::Message(frame))))
    }

    fn wake(&mut self, node: &mut Node) -> Vec<Output> {
        self.at(NOW, node, Input::Wake)
    }

    /// The node answers the digest, holding these.
    fn answer(&mut self, node: &mut Node, rows: &[Row]) -> Vec<Output> {
        let Some(Downstream::Welcome {
            start: Start::Digest { chunks },
            ..
        }) = sent(&self.first).first().copied()
        else {
            panic!("no digest in {:?}", self.first)
        };
        let answer = digest::answer(chunks, rows);
        answer.into_iter().flat_map(|frame| self.frame(node, frame)).collect()
    }
}

#[test]
fn a_node_that_missed_nothing_costs_two_messages_and_one_that_missed_some_gets_those() {
    let mut node = Node::default();
    fill(&mut node, 200);
    let mut link = Link::live(&mut node);
    assert_eq!(
        node.objects.counts(),
        Counts {
            assigned: 200,
            unacked: 200,
            ..Counts::default()
        }
    );
    let version = node.objects.version();
    link.frame(&mut node, Upstream::Ack { version });
    assert_eq!(node.objects.counts().unacked, 0);

    let link = Link::start(&mut node, 1, &peer(), hello(Some(at(version))));
    assert!(matches!(
        sent(&link.first)[..],
        [Downstream::Welcome {
            start: Start::Resume {},
            ..
        }]
    ));

    for i in [3, 5, 3] {
        node.objects.set(NOW, object(&format!("d{i}"), i + i));
    }
    node.objects.set(NOW, object("d3", 9));
    node.objects.remove(NOW, &key("d7").into());
    let link = Link::start(&mut node, 2, &peer(), hello(Some(at(version))));
    assert_eq!(
        names(&link.first),
        ["welcome", "put", "put", "delete"],
        "the newest of each, and no more"
    );
}

#[test]
fn a_digest_over_what_both_have_sends_nothing_and_over_m_differences_m_bodies() {
    let items: Vec<_> = (0..1000).map(|i| object(&format!("d{i}"), 1)).collect();
    let mut node = Node::default();
    set(&mut node, &items);
    let mut rows: Vec<_> = items.iter().map(Item::row).collect();

    let mut link = Link::start(&mut node, 0, &peer(), hello(None));
    let outputs = link.answer(&mut node, &rows);
    assert_eq!(names(&outputs), ["synced"]);
    assert_eq!(node.objects.counts().unacked, 0);

    rows[17].generation = 0;
    rows.remove(500);
    rows.push(object("stray", 1).row());
    let mut link = Link::start(&mut node, 1, &peer(), hello(None));
    let outputs = link.answer(&mut node, &rows);
    let mut sent = names(&outputs);
    sent.sort_unstable();
    assert_eq!(sent, ["delete", "put", "put", "synced"]);
}

#[test]
fn what_is_edited_or_deleted_while_the_node_answers_a_digest_is_not_lost() {
    let mut node = Node::default();
    let held: Vec<_> = ["kept", "edited", "deleted"].map(|name| object(name, 1)).into();
    set(&mut node, &held);
    let rows: Vec<_> = held.iter().map(Item::row).collect();
    let mut link = Link::start(&mut node, 0, &peer(), hello(None));
    node.objects.set(NOW, object("edited", 2));
    node.objects.remove(NOW, &key("deleted").into());
    node.objects.set(NOW, object("made", 1));
    assert!(sent(&link.wake(&mut node)).is_empty(), "not before the digest is done");
    assert_eq!(
        names(&link.answer(&mut node, &rows)),
        ["synced", "put", "delete", "put"]
    );
}

#[test]
fn what_may_not_be_deleted_yet_is_a_stray_and_costs_nothing_when_it_turns_out_to_be_wanted() {
    let mut node = Node::default();
    let rows: Vec<_> = ["wanted", "changed", "gone"].map(|name| object(name, 1).row()).into();
    let mut link = Link::start(&mut node, 0, &peer(), hello(None));
    let Some(Downstream::Welcome {
        start: Start::Digest { chunks },
        ..
    }) = sent(&link.first).first().copied()
    else {
        panic!("no digest")
    };
    let answer = digest::answer(chunks, &rows).remove(0);
    let outputs = link
        .session
        .handle(NOW, Input::Frame(Ok(Received::Message(answer))), &mut node, &|_| false);
    let strays: Vec<_> = ["changed", "gone", "wanted"]
        .map(|name| ItemKey::from(key(name)))
        .into();
    let Some(Output::Strays(mut found)) = outputs.first().cloned() else {
        panic!("no strays in {outputs:?}")
    };
    found.sort_unstable();
    assert_eq!(found, strays);
    assert!(
        node.objects.may_report(&key("gone"), "uid-gone"),
        "the node holds it still"
    );

    node.objects.replace(NOW, &key("wanted"), vec![object("wanted", 1)]);
    node.objects.replace(NOW, &key("changed"), vec![object("changed", 2)]);
    node.objects.replace(NOW, &key("gone"), vec![]);
    assert_eq!(names(&link.wake(&mut node)), ["put", "delete"]);
    assert_eq!(
        node.objects.counts(),
        Counts {
            assigned: 2,
            unacked: 2,
            deletions: 1,
            ..Counts::default()
        }
    );
}

#[test]
fn a_store_of_before_is_found_out() {
    let mut node = Node::default();
    node.objects.set(NOW, object("d", 1));
    let mut link = Link::live(&mut node);
    let before = node.objects.version();
    link.frame(&mut node, Upstream::Ack { version: before });
    node.objects.set(NOW, object("d", 2));
    link.wake(&mut node);
    link.frame(&mut node, Upstream::Ack { version: before + 1 });
    let digest = |node: &mut Node, number, version| {
        let link = Link::start(node, number, &peer(), hello(Some(at(version))));
        matches!(
            sent(&link.first)[..],
            [Downstream::Welcome {
                start: Start::Digest { .. },
                ..
            }]
        )
    };
    assert!(!digest(&mut node, 1, before + 1));
    assert!(digest(&mut node, 2, before), "behind what it acknowledged");
    assert!(
        digest(&mut node, 3, before + 1),
        "a digest was begun, and its store is not the one of before"
    );
    assert!(digest(&mut node, 4, before + 99), "ahead of what there is");
}

#[test]
fn a_set_that_is_dropped_and_made_anew_does_not_reuse_versions() {
    let mut node = Node::counting_from(50);
    node.objects.set(NOW, object("d", 1));
    let link = Link::live(&mut node);
    assert!(matches!(sent(&link.first)[..], [Downstream::Welcome { .. }]));
    assert!(node.objects.version() > 51);
}

#[test]
fn credentials_wait_for_a_connection_that_may_carry_them() {
    let plain = Peer::default();
    let mut node = Node::default();
    node.objects
        .replace(NOW, &key("d"), vec![credential("d"), object("d", 1)]);
    let mut link = Link::start(&mut node, 0, &plain, hello(None));
    assert_eq!(names(&link.answer(&mut node, &[])), ["synced", "put"]);
    node.objects
        .replace(NOW, &key("e"), vec![credential("e"), object("e", 1)]);
    assert_eq!(names(&link.wake(&mut node)), ["put"]);
    assert_eq!(node.objects.counts().withheld, 2);
    let version = node.objects.version();
    link.frame(&mut node, Upstream::Ack { version });
    assert_eq!(
        node.objects.counts(),
        Counts {
            assigned: 4,
            withheld: 2,
            ..Counts::default()
        }
    );

    let link = Link::start(&mut node, 1, &peer(), hello(Some(at(version))));
    assert_eq!(names(&link.first), ["welcome", "put-credential", "put-credential"]);
    assert_eq!(node.objects.counts().withheld, 0);

    node.objects.replace(NOW, &key("e"), vec![]);
    let link = Link::start(&mut node, 2, &plain, hello(Some(at(version))));
    assert_eq!(
        names(&link.first),
        ["welcome", "delete", "delete"],
        "a deletion gives nothing away"
    );
    assert_eq!(node.objects.counts().withheld, 1);
}

#[test]
fn the_newer_session_of_a_node_replaces_the_older_which_is_told() {
    let mut node = Node::default();
    let mut old = Link::live(&mut node);
    let new = Link::start(&mut node, 1, &peer(), hello(None));
    assert_eq!(names(&old.wake(&mut node)), ["replaced"]);
    assert_eq!(old.session.wake_at(), None);
    assert!(
        old.frame(&mut node, Upstream::Ack { version: 1 }).is_empty(),
        "it is over"
    );
    assert!(new.session.wake_at().is_some());
}

#[test]
fn the_window_bounds_what_is_in_flight_and_a_large_object_goes_alone() {
    let mut node = Node::default();
    let mut link = Link::live(&mut node);
    let large = |name: &str| {
        let body = json!("x".repeat(limits::WINDOW_BYTES)).into();
        Item::Object(Object {
            key: key(name),
            uid: "u".to_owned(),
            generation: 1,
            body,
        })
    };
    node.objects.set(NOW, object("small", 1));
    node.objects.set(NOW, large("large"));
    node.objects.set(NOW, object("last", 1));
    assert_eq!(names(&link.wake(&mut node)), ["put"]);
    let acked = |node: &Node| node.objects.version();
    let version = acked(&node) - 2;
    assert_eq!(names(&link.frame(&mut node, Upstream::Ack { version })), ["put"]);
    assert_eq!(
        names(&link.frame(&mut node, Upstream::Ack { version: version + 1 })),
        ["put"]
    );
    link.frame(&mut node, Upstream::Ack { version: version + 2 });

    fill(&mut node, 3000);
    assert_eq!(link.wake(&mut node).len(), limits::WINDOW_FRAMES);
    assert!(link.wake(&mut node).is_empty());
}

#[test]
fn a_node_that_does_not_follow_is_given_up() {
    let mut node = Node::default();
    let mut link = Link::live(&mut node);
    node.objects.set(NOW, object("d", 1));
    link.wake(&mut node);
    let late = NOW + limits::ACK_TIMEOUT;
    link.at(NOW + limits::ACK_TIMEOUT * 3 / 4, &mut node, Input::Heard);
    assert!(link.session.wake_at().unwrap() <= late);
    let outputs = link.at(late, &mut node, Input::Wake);
    assert!(matches!(
        sent(&outputs)[..],
        [Downstream::Refused {
            reason: RefusedReason::Behind,
            ..
        }]
    ));

    let mut node = Node::default();
    let mut link = Link::live(&mut node);
    fill(&mut node, limits::MAX_TOMBSTONES + 1);
    for i in 0..=limits::MAX_TOMBSTONES {
        node.objects.remove(NOW, &key(&format!("d{i}")).into());
    }
    assert_eq!(names(&link.wake(&mut node)), ["refused"]);
    assert!(node.objects.is_empty(), "what nobody waits for is not kept");
}

#[test]
fn silence_is_answered_with_a_ping_then_with_an_end() {
    let mut node = Node::default();
    let mut link = Link::live(&mut node);
    let ping = NOW + limits::PING_AFTER;
    assert_eq!(link.session.wake_at(), Some(ping));
    assert_eq!(link.at(ping, &mut node, Input::Wake), [Output::Ping]);
    link.at(ping, &mut node, Input::Heard);
    let idle = ping + limits::IDLE;
    let outputs = link.at(idle, &mut node, Input::Wake);
    assert!(matches!(outputs[..], [Output::Close { .. }]), "{outputs:?}");
}

#[test]
fn a_node_reports_on_what_is_placed_on_it_until_it_has_acknowledged_the_deletion() {
    let mut node = Node::default();
    node.objects.set(NOW, object("d", 1));
    let mut link = Link::live(&mut node);
    assert!(matches!(
        link.frame(&mut node, report(1, "d", "uid-d"))[..],
        [Output::Report(_)]
    ));
    let refused = |outputs: &[Output]| {
        matches!(
            sent(outputs)[..],
            [Downstream::ReportResult {
                result: ReportResult::Refused { .. },
                ..
            }]
        )
    };
    assert!(refused(&link.frame(&mut node, report(2, "d", "another"))));
    assert!(refused(&link.frame(&mut node, report(3, "e", "uid-d"))));

    let version = node.objects.version();
    link.frame(&mut node, Upstream::Ack { version });
    node.objects.remove(NOW, &key("d").into());
    link.wake(&mut node);
    assert!(matches!(
        link.frame(&mut node, report(4, "d", "uid-d"))[..],
        [Output::Report(_)]
    ));
    link.frame(&mut node, Upstream::Ack { version: version + 1 });
    assert!(refused(&link.frame(&mut node, report(5, "d", "uid-d"))));
}

#[test]
fn a_report_that_comes_again_is_answered_again_and_carried_out_once() {
    let mut node = Node::default();
    node.objects.set(NOW, object("d", 1));
    let mut link = Link::live(&mut node);
    assert_eq!(link.frame(&mut node, report(1, "d", "uid-d")).len(), 1);
    node.finish_report("boot", 1, Verdict::Done(ReportResult::Accepted {}));
    assert_eq!(names(&link.wake(&mut node)), ["report-result"]);
    let mut link = Link::live(&mut node);
    assert_eq!(
        names(&link.frame(&mut node, report(1, "d", "uid-d"))),
        ["report-result"]
    );
    assert_eq!(
        link.frame(&mut node, Upstream::Gap { seq: 2, count: 7 }).first(),
        Some(&Output::Gap { count: 7 })
    );
    assert_eq!(
        names(&link.frame(&mut node, Upstream::Gap { seq: 2, count: 7 })),
        ["report-result"]
    );
}

#[test]
fn an_answer_to_another_start_of_the_node_is_not_given_to_this_one() {
    let mut node = Node::default();
    node.objects.set(NOW, object("d", 1));
    let mut link = Link::live(&mut node);
    link.frame(&mut node, report(1, "d", "uid-d"));
    link.frame(&mut node, report(2, "d", "uid-d"));
    node.finish_report("boot", 1, Verdict::Done(ReportResult::Accepted {}));
    let mut link = Link::start(
        &mut node,
        1,
        &peer(),
        Hello {
            boot: "another".to_owned(),
            ..hello(None)
        },
    );
    node.finish_report("boot", 2, Verdict::Done(ReportResult::Accepted {}));
    assert!(!names(&link.answer(&mut node, &[])).contains(&"report-result"));
    assert!(
        matches!(link.frame(&mut node, report(1, "d", "uid-d"))[..], [Output::Report(_)]),
        "another report"
    );
}

#[test]
fn what_breaks_the_protocol_ends_the_session_with_a_reason() {
    let full = limits::REPORT_WINDOW as u64;
    for (why, frame) in [
        ("a hello frame is out of place", Upstream::Hello(hello(None))),
        (
            "a rows frame is out of place",
            Upstream::Rows {
                chunks: vec![],
                rows: vec![],
                more: false,
            },
        ),
        ("acknowledged and never sent", Upstream::Ack { version: 1_000 }),
        ("more reports than the window", report(full + 1, "d", "uid-d")),
        (
            "more reports than the window",
            Upstream::Gap {
                seq: full + 1,
                count: 1,
            },
        ),
    ] {
        let mut node = Node::default();
        node.objects.set(NOW, object("d", 1));
        let mut link = Link::live(&mut node);
        for seq in 1..=full {
            link.frame(&mut node, report(seq, "d", "uid-d"));
        }
        let outputs = link.frame(&mut node, frame);
        let [Downstream::Refused { hint, .. }] = sent(&outputs)[..] else {
            panic!("{outputs:?}")
        };
        assert!(hint.contains(why), "{hint}");
        assert_eq!(link.session.wake_at(), None);
    }
}

#[test]
fn a_digest_s_answer_is_checked() {
    for (why, chunks, rows) in [
        ("chunk 7 is not in the digest", vec![7], vec![]),
        ("in none of the chunks that differ", vec![], vec![object("d", 1).row()]),
    ] {
        let mut node = Node::default();
        let mut link = Link::start(&mut node, 0, &peer(), hello(None));
        let outputs = link.frame(
            &mut node,
            Upstream::Rows {
                chunks,
                rows,
                more: false,
            },
        );
        let [
            Downstream::Refused {
                reason: RefusedReason::Violation,
                hint,
            },
        ] = sent(&outputs)[..]
        else {
            panic!("{outputs:?}")
        };
        assert!(hint.contains(why), "{hint}");
    }
}

#[test]
fn who_may_start_a_session() {
    let proven = |name: &str| Peer {
        identity: Some(name.to_owned()),
        confidential: true,
    };
    let check = |peer: Peer, hello: Hello| server().check(&peer, &hello).map_err(|refusal| refusal.to_string());
    assert_eq!(check(peer(), hello(None)), Ok(()));
    assert_eq!(check(proven("edge-1"), hello(Some(at(7)))), Ok(()));
    let older = Epoch {
        transitions: 4,
        ..server().epoch
    };
    for (hello, peer, why) in [
        (
            hello(None),
            proven("edge-2"),
            "the certificate is that of node edge-2, the hello says edge-1",
        ),
        (
            Hello {
                node: "../edge".to_owned(),
                ..hello(None)
            },
            peer(),
            "\"../edge\" is not a node name",
        ),
        (
            Hello {
                node: String::new(),
                ..hello(None)
            },
            peer(),
            "is not a node name",
        ),
        (
            Hello {
                boot: "b".repeat(300),
                ..hello(None)
            },
            peer(),
            "boot is longer than 253 bytes",
        ),
        (
            Hello {
                agent: "a".repeat(300),
                ..hello(None)
            },
            peer(),
            "agent is longer than 253 bytes",
        ),
        (
            Hello {
                protocol: 0,
                ..hello(None)
            },
            peer(),
            "protocol 0 is unknown",
        ),
        (
            hello(Some(Position::start("theirs", server().epoch))),
            peer(),
            "this node belongs to cluster theirs",
        ),
        (
            hello(Some(Position::start("ours", older))),
            peer(),
            "this manager is deposed",
        ),
    ] {
        let refusal = check(peer, hello).unwrap_err();
        assert!(refusal.contains(why), "{refusal}");
    }
}

#[test]
fn a_drain_tells_when_to_come_back() {
    let mut node = Node::default();
    let mut link = Link::live(&mut node);
    let outputs = link.at(
        NOW,
        &mut node,
        Input::Drain {
            reconnect_after: Duration::from_millis(1500),
        },
    );
    assert_eq!(
        sent(&outputs),
        [&Downstream::Restarting {
            reconnect_after_ms: 1500
        }]
    );
}
