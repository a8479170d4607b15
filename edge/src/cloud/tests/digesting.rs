//! What is sent to a node that comes with a store: what differs, and no more.

use std::collections::VecDeque;

use super::*;

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
fn a_manager_that_has_just_taken_over_and_a_node_that_misses_nothing_say_two_frames_each() {
    use crate::node;
    let items: Vec<_> = (0..1000).map(|i| object(&format!("d{i}"), 1)).collect();
    let rows: Vec<_> = items.iter().map(Item::row).collect();
    let mut node = Node::default();
    set(&mut node, &items);
    let before = Epoch {
        transitions: server().epoch.transitions - 1,
        ..server().epoch
    };
    let stored = Position {
        version: 4711,
        ..Position::start("ours", before)
    };
    let identity = node::Identity {
        node: "edge-1".to_owned(),
        boot: "boot".to_owned(),
        agent: "0.1.0".to_owned(),
    };
    let mut there = node::Session::new(identity, Some(stored), rows.len() as u64);
    let mut here: Option<Link> = None;
    let mut said = Vec::new();
    let mut inputs = VecDeque::from([node::Input::Tick, node::Input::Connected]);
    while let Some(input) = inputs.pop_front() {
        for output in there.handle(NOW, input) {
            let frame = match output {
                node::Output::Send(frame) => frame,
                node::Output::ReadRows => {
                    inputs.push_back(node::Input::Rows(rows.clone()));
                    continue;
                }
                node::Output::Store(batch) => {
                    assert_eq!(batch.changes, [], "only where it stands");
                    continue;
                }
                _ => continue,
            };
            said.push(format!("node: {}", frame.name()));
            let outputs = match (&mut here, frame) {
                (None, Upstream::Hello(hello)) => {
                    let link = Link::start(&mut node, 0, &peer(), hello);
                    here.insert(link).first.clone()
                }
                (Some(link), frame) => link.frame(&mut node, frame),
                (None, frame) => panic!("{frame:?}"),
            };
            for frame in sent(&outputs) {
                said.push(format!("manager: {}", frame.name()));
                inputs.push_back(node::Input::Frame(Ok(Received::Message(frame.clone()))));
            }
        }
    }
    assert_eq!(
        said,
        ["node: hello", "manager: welcome", "node: rows", "manager: synced"]
    );
    assert_eq!(there.state(), node::State::Live);
    assert_eq!(node.objects.counts().unacked, 0);
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
    assert_eq!(
        node.objects.may_report(&key("gone"), "uid-gone"),
        Ok(()),
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
