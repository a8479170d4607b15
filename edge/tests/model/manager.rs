//! A manager of the model: the session state machine under test, with the knowledge that an engine would give it.

use std::{collections::BTreeMap, time::Duration};

use skerry_edge::{
    Downstream, Item, Object, ObjectKey, Report, ReportResult, Upstream,
    cloud::{Input, Node, Output, Peer, Server, Session, Verdict},
    message::Received,
};

pub(crate) struct Manager {
    pub(crate) server: Server,
    node: Node,
    /// Sessions that have begun, by number; the manager may not have noticed that one has ended.
    sessions: BTreeMap<u64, Session>,
    /// The newest of all that have begun.
    newest: Option<u64>,
    /// Known owners, and whether they were planned.
    owners: BTreeMap<ObjectKey, bool>,
    listed: bool,
    /// Reports to be carried out.
    pub(crate) reports: Vec<(String, Report)>,
    /// Of each start and each resource, the last that was.
    carried_out: BTreeMap<(String, ObjectKey), u64>,
    /// The last version that the node acknowledged.
    pub(crate) acked: u64,
}

/// What a manager does to a connection.
pub(crate) enum Effect {
    Send(Downstream),
    Close,
}

impl Manager {
    pub(crate) fn new(server: Server) -> Self {
        Self {
            server,
            node: Node::default(),
            sessions: BTreeMap::new(),
            newest: None,
            owners: BTreeMap::new(),
            listed: false,
            reports: Vec::new(),
            carried_out: BTreeMap::new(),
            acked: 0,
        }
    }

    /// Plans one resource as it is declared now, if the manager may know that.
    pub(crate) fn plan(&mut self, now: Duration, key: &ObjectKey, declared: Option<&Object>) {
        let items: Vec<_> = declared.into_iter().flat_map(super::world::items).collect();
        if declared.is_some() {
            self.owners.insert(key.clone(), true);
        } else if self.owners.remove(key).is_none() && !self.listed {
            return;
        }
        self.node.objects.replace(now, key, items);
    }

    pub(crate) fn list(&mut self, now: Duration, declared: &BTreeMap<ObjectKey, Object>, all: &[ObjectKey]) {
        self.listed = true;
        for key in all {
            if declared.contains_key(key) {
                self.owners.entry(key.clone()).or_insert(false);
            } else {
                self.owners.remove(key);
                self.node.objects.replace(now, key, Vec::<Item>::new());
            }
        }
    }

    /// A frame has come over connection `number`.
    pub(crate) fn frame(&mut self, now: Duration, number: u64, text: &str) -> Vec<Effect> {
        let frame = Upstream::decode(text);
        let peer = Peer {
            identity: None,
            confidential: true,
        };
        let outputs = match (self.sessions.get_mut(&number), frame) {
            (None, Ok(Received::Message(Upstream::Hello(hello)))) => match self.server.check(&peer, &hello) {
                Ok(()) => {
                    let (session, outputs) = Session::start(now, number, &self.server, &peer, hello, &mut self.node);
                    self.sessions.insert(number, session);
                    self.newest = self.newest.max(Some(number));
                    outputs
                }
                Err(refusal) => return vec![Effect::Send(refusal.frame()), Effect::Close],
            },
            (None, frame) => panic!("a session began with {frame:?}"),
            (Some(_), frame) => self.handle(now, number, Input::Frame(frame)),
        };
        self.effects(number, outputs)
    }

    /// A frame has come over a connection that the node has given up; false where the manager has, too. Once a newer
    /// session has begun, it changes nothing.
    pub(crate) fn late(&mut self, now: Duration, number: u64, text: &str) -> bool {
        let frame = Upstream::decode(text);
        let begins = matches!(frame, Ok(Received::Message(Upstream::Hello(_))));
        if !begins && !self.sessions.contains_key(&number) {
            return false;
        }
        let replaced = self.newest > Some(number);
        let known = |manager: &Self| format!("{:?} {:?} {}", manager.node, manager.reports, manager.acked);
        let before = replaced.then(|| known(self));
        self.frame(now, number, text);
        if let Some(before) = before {
            assert_eq!(known(self), before, "an old session said {text}");
        } else if let Ok(Received::Message(Upstream::Ack { version })) = frame {
            self.acked = version;
        }
        true
    }

    /// Something that is not a frame has happened to every session; what it does to connection `number`.
    pub(crate) fn wake(&mut self, now: Duration, number: Option<u64>) -> Vec<Effect> {
        let numbers: Vec<_> = self.sessions.keys().copied().collect();
        let mut effects = Vec::new();
        for other in numbers {
            let outputs = self.handle(now, other, Input::Wake);
            let done = self.effects(other, outputs);
            if Some(other) == number {
                effects = done;
            }
        }
        effects
    }

    /// Carries out the first report, or puts it off, with all that wait behind it of its resource.
    pub(crate) fn take(&mut self, later: bool) -> Option<Report> {
        let (boot, report) = (!self.reports.is_empty()).then(|| self.reports.remove(0))?;
        if later {
            let behind = |(of, other): &mut (String, Report)| *of == boot && other.key == report.key;
            let behind: Vec<_> = self.reports.extract_if(.., behind).collect();
            for (boot, put_off) in std::iter::once((boot, report)).chain(behind) {
                let retry_after = Duration::from_secs(3);
                self.node
                    .finish_report(&boot, put_off.seq, Verdict::Later { retry_after });
            }
            return None;
        }
        let seq = report.seq;
        self.node
            .finish_report(&boot, seq, Verdict::Done(ReportResult::Accepted {}));
        let before = self.carried_out.insert((boot, report.key.clone()), seq);
        assert!(
            before < Some(seq),
            "report {seq} on a resource takes effect after {before:?} of the same start"
        );
        Some(report)
    }

    pub(crate) fn ended(&mut self, number: u64) {
        self.sessions.remove(&number);
    }

    pub(crate) fn wake_at(&self, number: u64) -> Option<Duration> {
        self.sessions.get(&number)?.wake_at()
    }

    /// Whether nothing is owed to the node.
    pub(crate) fn is_quiet(&self) -> bool {
        self.node.objects.counts().unacked == 0 && self.reports.is_empty()
    }

    pub(crate) fn strays(&self) -> usize {
        self.node.objects.counts().strays
    }

    fn handle(&mut self, now: Duration, number: u64, input: Input) -> Vec<Output> {
        let Self {
            sessions,
            node,
            owners,
            listed,
            ..
        } = self;
        let may_delete = |key: &ObjectKey| owners.get(key).copied().unwrap_or(*listed);
        sessions
            .get_mut(&number)
            .map_or_else(Vec::new, |session| session.handle(now, input, node, &may_delete))
    }

    fn effects(&mut self, number: u64, outputs: Vec<Output>) -> Vec<Effect> {
        let mut effects = Vec::new();
        for output in outputs {
            match output {
                Output::Send(frame) => effects.push(Effect::Send(frame)),
                Output::Close { .. } => {
                    self.sessions.remove(&number);
                    effects.push(Effect::Close);
                }
                Output::Report(report) => {
                    let boot = self.sessions[&number].boot().to_owned();
                    self.reports.push((boot, report));
                }
                Output::Ping | Output::Denied(_) | Output::Acked { .. } | Output::Gap { .. } | Output::Strays(_) => {}
            }
        }
        effects
    }
}
