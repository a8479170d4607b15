//! A node one version older with a manager of today, and the reverse.
//!
//! `conversation.txt` is what a node and a manager of the version before said to each other, written down while those two ran: the
//! version that knew neither `window` in a hello nor `reports_per_second` in a welcome, nor `made` in an epoch, nor the frame
//! `outbox`. Lines that begin
//! with `*` are what happened to the two. One side of today lives through the same and hears what the older other one said; it has
//! to say what the older one in its place said, but for what is new since and for sentences, which are for people.
//!
//! Whoever is older leaves out what is new: that version's decoders skip fields that they do not know (no type of it has
//! `deny_unknown_fields`), and its sessions count frames of names that they do not know and go on. It was tried, too: its two
//! sides, told all that ours say in this conversation, answered as here.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod manager;
mod node;

use std::{
    collections::{BTreeSet, VecDeque},
    fmt::Write,
};

use manager::Manager;
use node::Node;
use serde_json::Value;
use skerry_edge::{Downstream, Upstream, message::Received};

const CONVERSATION: &str = include_str!("conversation.txt");

/// A line of the conversation.
#[derive(Clone, Copy)]
enum Line<'a> {
    Happens(&'a str),
    Node(&'a str),
    Manager(&'a str),
}

fn lines(conversation: &str) -> impl Iterator<Item = Line<'_>> {
    conversation.lines().filter(|line| !line.is_empty()).map(|line| {
        let (who, what) = line.split_once(' ').unwrap();
        match who {
            "*" => Line::Happens(what),
            "node:" => Line::Node(what),
            "manager:" => Line::Manager(what),
            _ => panic!("{line}"),
        }
    })
}

/// One of the two.
trait Side {
    /// What this side says to what happened.
    fn happens(&mut self, what: &str) -> Vec<String>;
    /// What this side answers to a frame of the other.
    fn hears(&mut self, frame: &str) -> Vec<String>;
}

/// What the version before would have said in place of this; nothing where it would have been silent.
fn older(frame: &str) -> Option<Value> {
    let mut frame = read(frame);
    let (name, fields) = frame.as_object_mut().unwrap().iter_mut().next().unwrap();
    match name.as_str() {
        "hello" => {
            fields.as_object_mut().unwrap().remove("window");
            if let Some(epoch) = fields.pointer_mut("/stored/epoch") {
                epoch.as_object_mut().unwrap().remove("made");
            }
        }
        "welcome" => {
            fields.as_object_mut().unwrap().remove("reports_per_second");
            fields["epoch"].as_object_mut().unwrap().remove("made");
        }
        "report" => {
            fields.as_object_mut().unwrap().remove("after");
            fields["report"].as_object_mut().unwrap().remove("id");
        }
        "outbox" => return None,
        _ => {}
    }
    Some(frame)
}

/// The frame without its sentences, which only have to be some.
fn without_sentences(mut frame: Value) -> Value {
    for sentence in ["/refused/hint", "/report-result/result/refused/reason"] {
        if let Some(sentence) = frame.pointer_mut(sentence) {
            assert!(sentence.is_string(), "{sentence}");
            *sentence = Value::Null;
        }
    }
    frame
}

fn read(frame: &str) -> Value {
    serde_json::from_str(frame).unwrap()
}

/// Has one side live through its part of the conversation: what it says has to be what the older one said.
fn play(mut side: impl Side, is_ours: impl Fn(Line<'_>) -> bool) {
    let mut said = VecDeque::new();
    for line in lines(CONVERSATION) {
        match line {
            Line::Happens(what) => {
                assert!(said.is_empty(), "nobody said so before: {said:?}");
                said.extend(side.happens(what));
            }
            Line::Node(frame) | Line::Manager(frame) if is_ours(line) => {
                let now = said.pop_front();
                let now = now.as_deref().and_then(older);
                let now = now.unwrap_or_else(|| panic!("silence in place of {frame}"));
                assert_eq!(without_sentences(now), without_sentences(read(frame)));
            }
            Line::Node(frame) | Line::Manager(frame) => said.extend(side.hears(frame)),
        }
        while said.front().is_some_and(|frame| older(frame).is_none()) {
            said.pop_front();
        }
    }
    assert!(said.is_empty(), "nobody said so before: {said:?}");
}

/// What two sides say to each other while the same happens to them.
fn converse(mut node: impl Side, mut manager: impl Side) -> String {
    let mut text = String::new();
    for line in lines(CONVERSATION) {
        let Line::Happens(what) = line else { continue };
        writeln!(text, "* {what}").unwrap();
        let (mut down, mut up) = (VecDeque::new(), VecDeque::new());
        let (mut by_manager, mut by_node) = (manager.happens(what), node.happens(what));
        loop {
            for (who, said, way) in [("manager", &mut by_manager, &mut down), ("node", &mut by_node, &mut up)] {
                for frame in said.drain(..) {
                    writeln!(text, "{who}: {frame}").unwrap();
                    way.push_back(frame);
                }
            }
            if let Some(frame) = down.pop_front() {
                by_node = node.hears(&frame);
            } else if let Some(frame) = up.pop_front() {
                by_manager = manager.hears(&frame);
            } else {
                break;
            }
        }
    }
    text
}

#[test]
fn an_older_node_is_served_by_a_manager_of_today() {
    play(Manager::default(), |line| matches!(line, Line::Manager(_)));
}

#[test]
fn a_node_of_today_follows_an_older_manager() {
    play(Node::default(), |line| matches!(line, Line::Node(_)));
}

#[test]
fn both_of_today_say_what_the_older_ones_did_and_all_that_is_new_besides() {
    let text = converse(Node::default(), Manager::default());
    let mut new = BTreeSet::new();
    let mut said = Vec::new();
    for line in lines(&text) {
        let (Line::Node(frame) | Line::Manager(frame)) = line else {
            continue;
        };
        let older = older(frame);
        if older != Some(read(frame)) {
            new.insert(frame.split('"').nth(1).unwrap());
        }
        said.extend(older);
    }
    let before: Vec<_> = lines(CONVERSATION)
        .filter_map(|line| match line {
            Line::Happens(_) => None,
            Line::Node(frame) | Line::Manager(frame) => Some(read(frame)),
        })
        .collect();
    let plain = |said: Vec<Value>| said.into_iter().map(without_sentences).collect::<Vec<_>>();
    assert_eq!(plain(said), plain(before), "{text}");
    assert_eq!(
        new.into_iter().collect::<Vec<_>>(),
        ["hello", "outbox", "report", "welcome"]
    );
}

#[test]
fn the_conversation_has_every_frame_of_that_version_and_each_is_read() {
    let (mut of_node, mut of_manager) = (BTreeSet::new(), BTreeSet::new());
    for line in lines(CONVERSATION) {
        match line {
            Line::Happens(_) => {}
            Line::Node(frame) => match Upstream::decode(frame).unwrap() {
                Received::Message(message) => drop(of_node.insert(message.name())),
                Received::Unknown(name) => panic!("{name}"),
            },
            Line::Manager(frame) => match Downstream::decode(frame).unwrap() {
                Received::Message(message) => drop(of_manager.insert(message.name())),
                Received::Unknown(name) => panic!("{name}"),
            },
        }
    }
    assert_eq!(
        of_node.into_iter().collect::<Vec<_>>(),
        ["ack", "gap", "hello", "refused", "report", "rows"]
    );
    assert_eq!(
        of_manager.into_iter().collect::<Vec<_>>(),
        [
            "delete",
            "put",
            "put-credential",
            "refused",
            "replaced",
            "report-later",
            "report-result",
            "restarting",
            "synced",
            "welcome"
        ]
    );
}
