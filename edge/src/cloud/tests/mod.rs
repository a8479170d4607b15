//! The manager's end in single steps, against a node that answers by hand.

mod digesting;
mod reports;
mod sessions;

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::{
    Credential, Epoch, Item, ItemKey, Object, ObjectKey, Position, Report, ReportId, ReportPayload, ReportResult, Row,
    Upstream, digest, limits,
    message::{Hello, Received, RefusedReason, Start},
};

const NOW: Duration = Duration::from_secs(100);

fn server() -> Server {
    Server {
        cluster: "ours".to_owned(),
        epoch: Epoch {
            lease: "lease".to_owned(),
            transitions: 3,
            made: None,
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
        window: Some(limits::WINDOW_FRAMES),
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
        id: None,
        key: key(name),
        uid: uid.to_owned(),
        observed_at: Timestamp::UNIX_EPOCH,
        payload,
    };
    Upstream::Report {
        settled: seq,
        after: None,
        report,
    }
}

fn said(frame: Upstream) -> Report {
    let Upstream::Report { report, .. } = frame else {
        panic!("{frame:?} is no report")
    };
    report
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
