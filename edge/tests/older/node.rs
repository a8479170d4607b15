//! A node: its session, and a store that does at once what it is asked for.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use jiff::Timestamp;
use serde_json::json;
use skerry_edge::{
    Downstream, Item, ItemKey, ObjectKey, Report, ReportId, ReportPayload,
    message::OutboxDepth,
    node::{Batch, Change, Identity, Input, Outgoing, Output, Session},
};

use super::Side;

pub(super) struct Node {
    session: Session,
    boots: u64,
    now: Duration,
    items: BTreeMap<ItemKey, Item>,
    outbox: BTreeMap<u64, Outgoing>,
    last_seq: u64,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            session: Session::new(identity(1), None, 0),
            boots: 1,
            now: Duration::from_secs(100),
            items: BTreeMap::new(),
            outbox: BTreeMap::new(),
            last_seq: 0,
        }
    }
}

fn identity(boots: u64) -> Identity {
    Identity {
        node: "edge-1".to_owned(),
        boot: format!("b{boots}"),
        agent: "0.1.0".to_owned(),
    }
}

impl Node {
    fn report(&mut self, name: &str, payload: ReportPayload) -> Vec<String> {
        let boot = identity(self.boots).boot;
        let report = |seq| {
            Outgoing::Report(Report {
                seq,
                id: Some(ReportId { boot, number: seq }),
                key: ObjectKey::new("jointinferenceservice", "default", name),
                uid: format!("uid-{name}"),
                observed_at: Timestamp::UNIX_EPOCH,
                payload,
            })
        };
        self.owe(report)
    }

    fn owe(&mut self, outgoing: impl FnOnce(u64) -> Outgoing) -> Vec<String> {
        self.last_seq += 1;
        self.outbox.insert(self.last_seq, outgoing(self.last_seq));
        self.input(Input::OutboxGrew)
    }

    fn input(&mut self, input: Input) -> Vec<String> {
        let mut said = Vec::new();
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            for output in self.session.handle(self.now, input) {
                match output {
                    Output::Dial => inputs.push_back(Input::Connected),
                    Output::Send(frame) => said.push(frame.encode().unwrap()),
                    Output::Close => inputs.push_back(disconnected()),
                    Output::Store(batch) => {
                        self.store(batch);
                        let holds = self.items.len() as u64;
                        inputs.push_back(Input::Stored { holds });
                    }
                    Output::ReadRows => inputs.push_back(Input::Rows(self.items.values().map(Item::row).collect())),
                    Output::Fetch(wanted) => {
                        inputs.push_back(Input::Fetched(wanted.pick(self.outbox.values().cloned())));
                    }
                    Output::Weigh => {
                        let messages = self.outbox.len() as u64;
                        inputs.push_back(Input::Weighed(Some(OutboxDepth { messages, bytes: 1 })));
                    }
                    Output::Settle { seq, .. } => drop(self.outbox.remove(&seq)),
                    Output::Ping => {}
                }
            }
        }
        said
    }

    fn store(&mut self, batch: Batch) {
        for change in batch.changes {
            match change {
                Change::Put(object) => drop(self.items.insert(object.key.clone().into(), Item::Object(object))),
                Change::PutCredential(credential) => {
                    drop(self.items.insert(credential.key(), Item::Credential(credential)));
                }
                Change::Delete(key) => drop(self.items.remove(&key)),
            }
        }
    }

    fn pass(&mut self, seconds: u64) -> Vec<String> {
        self.now += Duration::from_secs(seconds);
        // The manager goes on to be heard.
        let mut said = self.input(Input::Heard);
        said.extend(self.input(Input::Tick));
        said
    }
}

fn disconnected() -> Input {
    Input::Disconnected {
        jitter: 0.5,
        cause: "cut".to_owned(),
    }
}

impl Side for Node {
    fn happens(&mut self, what: &str) -> Vec<String> {
        let message = || json!({"kind": "inference", "name": "w", "ownerInfo": {"inferenceNumber": 9}}).into();
        match what.split(' ').collect::<Vec<_>>()[..] {
            ["connect"] => {
                self.now = self.session.wake_at().unwrap().max(self.now);
                self.input(Input::Tick)
            }
            ["cut"] | ["elect", ..] => self.input(disconnected()),
            ["boot"] => {
                self.boots += 1;
                let (position, holds) = (self.session.position().cloned(), self.items.len() as u64);
                self.session = Session::new(identity(self.boots), position, holds);
                Vec::new()
            }
            ["pass", seconds] => self.pass(seconds.parse().unwrap()),
            ["metrics", name] => self.report(name, ReportPayload::Metrics { message: message() }),
            ["event", name] => self.report(name, ReportPayload::Event { message: message() }),
            ["round", name, round] => {
                let (round, message) = (round.parse().unwrap(), message());
                self.report(name, ReportPayload::Round { round, message })
            }
            ["samples", name, count] => {
                let count = count.parse().unwrap();
                self.report(name, ReportPayload::DatasetSamples { count })
            }
            ["failed", name] => {
                let reason = "no such file".to_owned();
                self.report(name, ReportPayload::DatasetFailed { reason })
            }
            ["gap", count] => {
                let count = count.parse().unwrap();
                self.owe(|seq| Outgoing::Gap { seq, count })
            }
            _ => Vec::new(),
        }
    }

    fn hears(&mut self, frame: &str) -> Vec<String> {
        self.input(Input::Frame(Downstream::decode(frame)))
    }
}
