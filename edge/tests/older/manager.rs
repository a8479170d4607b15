//! A manager: its session, and what it wants of one node.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use jiff::Timestamp;
use serde_json::json;
use skerry_edge::{
    Credential, Epoch, Item, ItemKey, Object, ObjectKey, Report, ReportResult, Upstream,
    cloud::{Input, Node, Output, Peer, Server, Session, Verdict},
    message::{Hello, Received},
};

use super::Side;

const NOW: Duration = Duration::from_secs(100);

pub(super) struct Manager {
    server: Server,
    node: Node,
    placed: BTreeMap<ItemKey, Item>,
    session: Option<Session>,
    sessions: u64,
    /// To be carried out.
    reports: VecDeque<(String, Report)>,
}

impl Default for Manager {
    fn default() -> Self {
        Self {
            server: server("lease", 3),
            node: Node::default(),
            placed: BTreeMap::new(),
            session: None,
            sessions: 0,
            reports: VecDeque::new(),
        }
    }
}

fn server(lease: &str, transitions: u64) -> Server {
    Server {
        cluster: "ours".to_owned(),
        epoch: Epoch {
            lease: lease.to_owned(),
            transitions,
            // Of one that is called otherwise, later.
            made: Timestamp::from_second(if lease == "lease" { 100 } else { 200 }).ok(),
        },
    }
}

fn peer() -> Peer {
    Peer {
        identity: None,
        confidential: true,
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("jointinferenceservice", "default", name)
}

fn object(name: &str, generation: i64) -> Item {
    let body = json!({"kind": "JointInferenceService", "spec": {"edit": generation, "at": [1.5, "ä\n\""]}});
    Item::Object(Object {
        key: key(name),
        uid: format!("uid-{name}"),
        generation,
        body: body.into(),
    })
}

fn credential(name: &str) -> Item {
    let fields = [("ACCESS_KEY_ID", "id"), ("SECRET_ACCESS_KEY", "key")];
    Item::Credential(Credential {
        owner: key(name),
        uid: format!("uid-{name}"),
        secret: "s3".to_owned(),
        fields: fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
    })
}

impl Manager {
    fn place(&mut self, item: Item) -> Vec<String> {
        self.node.objects.set(NOW, item.clone());
        self.placed.insert(item.key(), item);
        self.input(Input::Wake)
    }

    fn withdraw(&mut self, name: &str) -> Vec<String> {
        self.placed.retain(|placed, _| placed.object != key(name));
        self.node.objects.replace(NOW, &key(name), Vec::new());
        self.input(Input::Wake)
    }

    /// The first report that waits was carried out, or cannot be now.
    fn answer(&mut self, verdict: Verdict) -> Vec<String> {
        let (boot, report) = self.reports.pop_front().unwrap();
        self.node.finish_report(&boot, report.seq, verdict);
        self.input(Input::Wake)
    }

    /// Another manager, which wants the same.
    fn elect(&mut self, server: Server) {
        self.server = server;
        (self.node, self.session) = (Node::default(), None);
        for item in self.placed.values() {
            self.node.objects.set(NOW, item.clone());
        }
    }

    fn greet(&mut self, hello: Hello) -> Vec<String> {
        if let Err(refusal) = self.server.check(&peer(), &hello) {
            return vec![refusal.frame().encode().unwrap()];
        }
        self.sessions += 1;
        let (session, outputs) = Session::start(NOW, self.sessions, &self.server, &peer(), hello, &mut self.node);
        self.session = Some(session);
        self.say(outputs)
    }

    fn input(&mut self, input: Input) -> Vec<String> {
        let Some(session) = &mut self.session else {
            return Vec::new();
        };
        let outputs = session.handle(NOW, input, &mut self.node, &|_| true);
        self.say(outputs)
    }

    fn say(&mut self, outputs: Vec<Output>) -> Vec<String> {
        let mut said = Vec::new();
        for output in outputs {
            match output {
                Output::Send(frame) => said.push(frame.encode().unwrap()),
                Output::Close { .. } => self.session = None,
                Output::Report(report) => {
                    let boot = self.session.as_ref().unwrap().boot().to_owned();
                    self.reports.push_back((boot, report));
                }
                Output::Ping | Output::Denied(_) | Output::Acked { .. } | Output::Gap { .. } | Output::Strays(_) => {}
            }
        }
        said
    }
}

impl Side for Manager {
    fn happens(&mut self, what: &str) -> Vec<String> {
        match what.split(' ').collect::<Vec<_>>()[..] {
            ["place", name, generation] => return self.place(object(name, generation.parse().unwrap())),
            ["place-credential", name] => return self.place(credential(name)),
            ["withdraw", name] => return self.withdraw(name),
            ["carry-out"] => return self.answer(Verdict::Done(ReportResult::Accepted {})),
            ["put-off"] => {
                return self.answer(Verdict::Later {
                    retry_after: Duration::from_secs(3),
                });
            }
            ["drain"] => {
                return self.input(Input::Drain {
                    reconnect_after: Duration::from_secs(1),
                });
            }
            ["elect", lease, transitions] => self.elect(server(lease, transitions.parse().unwrap())),
            ["another-session"] => {
                let hello =
                    json!({"hello": {"node": "edge-1", "boot": "b9", "protocol": 1, "agent": "0.1.0", "holds": 0}});
                let before = self.session.take();
                self.hears(&hello.to_string());
                self.session = before;
                return self.input(Input::Wake);
            }
            ["cut"] => self.session = None,
            _ => {}
        }
        Vec::new()
    }

    fn hears(&mut self, frame: &str) -> Vec<String> {
        match (&self.session, Upstream::decode(frame)) {
            (None, Ok(Received::Message(Upstream::Hello(hello)))) => self.greet(hello),
            (_, frame) => self.input(Input::Frame(frame)),
        }
    }
}
