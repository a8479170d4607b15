//! Who may start a session, what it may carry, and how it ends.

use super::*;
use crate::{hash::ContentHash, identity::NodeCertificate};

#[test]
fn who_may_start_a_session() {
    let proven = |name: &str| Peer {
        identity: Some(NodeCertificate {
            node: name.to_owned(),
            issued: Timestamp::UNIX_EPOCH,
            expires: Timestamp::MAX,
            key: ContentHash::default(),
        }),
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
fn of_what_a_node_says_as_much_is_told_as_fits_a_line() {
    let mut node = Node::default();
    let mut link = Link::live(&mut node);
    let outputs = link.frame(
        &mut node,
        Upstream::Refused {
            reason: RefusedReason::Deposed,
            hint: "ä".repeat(60_000),
        },
    );
    let [Output::Close { end, cause }] = &outputs[..] else {
        panic!("{outputs:?}")
    };
    let said = format!("the node refused: {}", "ä".repeat(limits::HINT));
    assert_eq!((end, cause), (&End::RefusedByNode, &said));
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
fn whatever_an_old_session_says_after_the_newer_one_has_begun_changes_nothing() {
    let rows = Upstream::Rows {
        chunks: vec![],
        rows: vec![],
        more: false,
    };
    for (live, frame) in [
        (false, rows),
        (true, Upstream::Ack { version: 1 }),
        (true, report(1, "d", "uid-d")),
        (true, Upstream::Gap { seq: 1, count: 1 }),
        (true, Upstream::Outbox(OutboxDepth { messages: 1, bytes: 1 })),
    ] {
        let mut node = Node::default();
        node.objects.set(NOW, object("d", 1));
        let mut old = Link::start(&mut node, 0, &peer(), hello(None));
        if live {
            old.answer(&mut node, &[]);
        }
        let mut new = Link::start(&mut node, 1, &peer(), hello(None));
        if live {
            new.answer(&mut node, &[]);
        }
        let before = format!("{node:?}");
        // It has not been told yet that it is over.
        let outputs = old.frame(&mut node, frame.clone());
        assert_eq!(names(&outputs), ["replaced"], "{frame:?}");
        assert_eq!(format!("{node:?}"), before, "{frame:?}");
        if !live {
            assert_eq!(names(&new.answer(&mut node, &[])), ["synced", "put"]);
        }
    }
}

#[test]
fn a_hello_that_comes_after_that_of_a_newer_connection_replaces_nobody() {
    let mut node = Node::default();
    let mut new = Link::start(&mut node, 1, &peer(), hello(None));
    let late = Link::start(&mut node, 0, &peer(), hello(None));
    assert_eq!(names(&late.first), ["replaced"]);
    assert_eq!(late.session.wake_at(), None);
    assert_eq!(names(&new.answer(&mut node, &[])), ["synced"]);
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
}

#[test]
fn as_many_changes_are_in_flight_as_the_node_said_and_no_more_than_anybody_may() {
    for (said, taken) in [
        (None, limits::WINDOW_UNSAID),
        (Some(0), 1),
        (Some(7), 7),
        (Some(u32::MAX), limits::WINDOW_FRAMES),
    ] {
        let mut node = Node::default();
        let hello = Hello {
            window: said,
            ..hello(None)
        };
        let mut link = Link::start(&mut node, 0, &peer(), hello);
        link.answer(&mut node, &[]);
        fill(&mut node, limits::WINDOW_FRAMES as usize + 1);
        assert_eq!(link.wake(&mut node).len(), taken as usize, "{said:?}");
        assert!(link.wake(&mut node).is_empty());
    }
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
fn a_ping_tells_the_round_trip_and_the_node_its_outbox_each_session_anew() {
    let mut node = Node::default();
    let mut link = Link::live(&mut node);
    assert_eq!(
        node.link,
        crate::cloud::Link::default(),
        "a node of before says nothing of it"
    );
    let ping = NOW + limits::PING_AFTER;
    link.at(NOW + limits::PING_AFTER / 2, &mut node, Input::Heard);
    assert_eq!(link.session.wake_at(), Some(ping), "in any case");
    assert_eq!(link.at(ping, &mut node, Input::Wake), [Output::Ping]);
    let again = ping + limits::PING_AFTER;
    assert_eq!(link.at(again, &mut node, Input::Wake), [Output::Ping]);
    link.at(again + Duration::from_millis(20), &mut node, Input::Pong);
    let first = limits::PING_AFTER + Duration::from_millis(20);
    assert_eq!(node.link.round_trip, Some(first), "of the ping that was not answered");
    link.at(again + Duration::from_millis(30), &mut node, Input::Pong);
    assert_eq!(node.link.round_trip, Some(first), "nobody has asked");

    let depth = OutboxDepth {
        messages: 3,
        bytes: 900,
    };
    assert_eq!(link.frame(&mut node, Upstream::Outbox(depth)), []);
    assert_eq!(node.link.outbox, Some(depth));
    Link::live(&mut node);
    assert_eq!(node.link, crate::cloud::Link::default());
}

#[test]
fn a_node_that_is_heard_all_the_time_is_measured_all_the_same() {
    let mut node = Node::default();
    let mut link = Link::live(&mut node);
    let mut pinged = Vec::new();
    let until = NOW + 4 * limits::MEASURE_EVERY;
    let mut now = NOW;
    while now < until {
        now = link.session.wake_at().unwrap().min(now + Duration::from_secs(7));
        link.at(now, &mut node, Input::Heard);
        if link.at(now, &mut node, Input::Wake) == [Output::Ping] {
            pinged.push(now);
        }
    }
    let first = NOW + limits::PING_AFTER;
    let expected = [0, 1, 2, 3].map(|times| first + times * limits::MEASURE_EVERY);
    assert_eq!(pinged, expected);
}

#[test]
fn a_node_is_told_how_fast_it_may_report() {
    let mut node = Node::default();
    for number in 0..2 {
        let link = Link::start(&mut node, number, &peer(), hello(None));
        let [Downstream::Welcome { reports_per_second, .. }] = sent(&link.first)[..] else {
            panic!("{:?}", link.first)
        };
        assert_eq!(*reports_per_second, Some(limits::REPORTS_PER_SECOND));
    }
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

/// A hello as it comes over the wire.
fn heard(hello: &serde_json::Value) -> Hello {
    let text = json!({"hello": hello}).to_string();
    let Ok(Received::Message(Upstream::Hello(hello))) = Upstream::decode(&text) else {
        panic!("{text}")
    };
    hello
}

#[test]
fn a_node_one_version_ahead_has_its_session_and_what_is_not_understood_is_counted() {
    let newer = heard(&json!({
        "node": "edge-1", "boot": "boot", "protocol": limits::PROTOCOL + 1, "agent": "0.2.0", "holds": 0,
        "zone": {"name": "north"},
    }));
    assert_eq!(server().check(&peer(), &newer), Ok(()));
    let mut node = Node::default();
    let mut link = Link::start(&mut node, 0, &peer(), newer);
    link.answer(&mut node, &[]);
    for text in [
        r#"{"health":{"cpu":0.5}}"#,
        r#"{"health":null}"#,
        r#"{"outbox":{"messages":3,"bytes":900,"oldest":7}}"#,
    ] {
        let frame = Upstream::decode(text);
        assert_eq!(link.at(NOW, &mut node, Input::Frame(frame)), [], "{text}");
    }
    assert_eq!(link.session.unknown_frames(), 2);
    assert_eq!(node.link.outbox.map(|depth| depth.messages), Some(3));
    // A report of a kind that is not known is answered, so that it does not stand in the way of others.
    node.objects.set(NOW, object("d", 1));
    link.wake(&mut node);
    let report = json!({"report": {"settled": 1, "report": {
        "seq": 1, "key": {"kind": "dataset", "namespace": "default", "name": "d"}, "uid": "uid-d",
        "observed_at": "2026-01-01T00:00:00Z", "payload": {"latency": {"p99": 4}}, "trace": "t",
    }}});
    let outputs = link.at(NOW, &mut node, Input::Frame(Upstream::decode(&report.to_string())));
    assert!(
        matches!(
            sent(&outputs)[..],
            [Downstream::ReportResult {
                seq: 1,
                result: ReportResult::Refused { .. }
            }]
        ),
        "{outputs:?}"
    );
    assert!(link.session.wake_at().is_some(), "the session goes on");
}

#[test]
fn a_node_of_a_version_before_has_its_session() {
    // What the first release said: no position, and never of its outbox.
    let older = heard(&json!({"node": "edge-1", "boot": "boot", "protocol": 1, "agent": "0.0.1", "holds": 0}));
    assert_eq!(server().check(&peer(), &older), Ok(()));
    let mut node = Node::default();
    node.objects.set(NOW, object("d", 1));
    let mut link = Link::start(&mut node, 0, &peer(), older);
    assert_eq!(names(&link.answer(&mut node, &[])), ["synced", "put"]);
}

#[test]
fn a_drain_tells_when_to_come_back_also_where_nothing_is_known_of_the_node_any_more() {
    for knows in [true, false] {
        let mut node = Node::default();
        let mut link = Link::live(&mut node);
        if !knows {
            // As in the term that follows.
            node = Node::default();
        }
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
}
