//! The world of the model: a user, a node with its disk, managers of all times, and one connection.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use jiff::Timestamp;
use serde_json::json;
use skerry_edge::{
    Credential, Downstream, Epoch, Item, ItemKey, Object, ObjectKey, Position, Report, ReportPayload, ReportResult,
    Upstream,
    cloud::Server,
    limits,
    node::{Asked, Batch, Change, Identity, Input, Outgoing, Output, Session, State},
};

use super::{
    KEYS, Step, Who,
    manager::{Effect, Manager},
};

/// What outlives the local controller.
#[derive(Clone, Default)]
struct Disk {
    items: BTreeMap<ItemKey, Item>,
    position: Option<Position>,
    outbox: BTreeMap<u64, Report>,
    last_seq: u64,
}

enum Order {
    Store(Batch),
    Rows,
    Fetch { after: u64, limit: usize },
    Settle { seq: u64, result: ReportResult },
}

struct Connection {
    manager: usize,
    number: u64,
    down: VecDeque<String>,
    up: VecDeque<String>,
    last_down: Option<String>,
    /// The manager has closed it: when all has arrived, the node notices.
    closed: bool,
}

pub(crate) struct World {
    now: Duration,
    declared: BTreeMap<ObjectKey, Object>,
    /// What a user has ever deleted: nothing else may be deleted on the node.
    deleted: BTreeSet<ObjectKey>,
    edits: i64,
    /// The managers of all times, in order; the last is the present one. The first speaks for another cluster.
    managers: Vec<Manager>,
    connections: u64,
    connection: Option<Connection>,
    dialling: bool,
    disk: Disk,
    backup: Option<Disk>,
    /// What a disk that was put back may not know: neither of acknowledgements nor of newer managers.
    trusts_position: bool,
    session: Session,
    boots: u64,
    /// Until when a Lease that was superseded is not to be heard again. Of one that it has not heard of, nor lately,
    /// the node cannot tell that it is the older.
    left: BTreeMap<String, Duration>,
    orders: VecDeque<Order>,
    reports: u64,
    executed: BTreeSet<u64>,
    /// Reports that were given to a disk which was replaced by an older one since.
    lost_with_disk: BTreeSet<u64>,
    settled: BTreeSet<u64>,
}

fn key(number: u8) -> ObjectKey {
    ObjectKey::new("dataset", "default", format!("d{number}"))
}

/// What a node is to hold of a resource: the object, and of some a credential.
pub(crate) fn items(object: &Object) -> Vec<Item> {
    let credential = Credential {
        owner: object.key.clone(),
        uid: object.uid.clone(),
        secret: "s3".to_owned(),
        fields: [("ACCESS_KEY_ID".to_owned(), (object.generation / 3).to_string())].into(),
    };
    let needed = object.generation % 2 == 0;
    needed
        .then_some(Item::Credential(credential))
        .into_iter()
        .chain([Item::Object(object.clone())])
        .collect()
}

fn server(cluster: &str, lease: u64, transitions: u64) -> Server {
    Server {
        cluster: cluster.to_owned(),
        epoch: Epoch {
            lease: format!("lease-{lease}"),
            transitions,
        },
    }
}

fn identity(boots: u64) -> Identity {
    Identity {
        node: "edge-1".to_owned(),
        boot: format!("boot-{boots}"),
        agent: "0.1.0".to_owned(),
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let mut other = Manager::new(server("other", 999, 0));
        let theirs = Object {
            key: key(0),
            uid: "theirs".to_owned(),
            generation: 1,
            body: json!({}).into(),
        };
        other.plan(Duration::ZERO, &key(0), Some(&theirs));
        other.list(
            Duration::ZERO,
            &[(key(0), theirs)].into(),
            &(0..KEYS).map(key).collect::<Vec<_>>(),
        );
        Self {
            now: Duration::ZERO,
            declared: BTreeMap::new(),
            deleted: BTreeSet::new(),
            edits: 0,
            managers: vec![other, Manager::new(server("ours", 0, 0))],
            connections: 0,
            connection: None,
            dialling: false,
            disk: Disk::default(),
            backup: None,
            trusts_position: true,
            session: Session::new(identity(0), None, 0),
            boots: 0,
            left: BTreeMap::new(),
            orders: VecDeque::new(),
            reports: 0,
            executed: BTreeSet::new(),
            lost_with_disk: BTreeSet::new(),
            settled: BTreeSet::new(),
        }
    }

    pub(crate) fn step(&mut self, step: Step) {
        match step {
            Step::Edit { key: number, anew } => self.edit(number, anew),
            Step::Delete { key: number } => {
                self.declared.remove(&key(number));
                self.deleted.insert(key(number));
            }
            Step::Plan { key: number } => self.plan(number),
            Step::List => self.list(),
            Step::Connect { who } => self.dial(who),
            Step::Flow { rounds } => (0..rounds).for_each(|_| self.flow()),
            Step::Down { frames } => (0..frames).for_each(|_| self.deliver_down()),
            Step::Up { frames } => (0..frames).for_each(|_| self.deliver_up()),
            Step::Work { orders } => (0..orders).for_each(|_| self.work()),
            Step::Fail => self.fail(),
            Step::Cut { noticed } => self.cut(noticed),
            Step::Replay => self.replay(),
            Step::NodeCrash { stored } => self.node_crash(stored),
            Step::ManagerCrash { new_lease } => self.manager_crash(new_lease),
            Step::Backup => self.backup = Some(self.disk.clone()),
            Step::Restore => self.restore(),
            Step::Report { key: number } => self.report(&key(number)),
            Step::Take { later } => self.take(later),
            Step::Wait { seconds } => self.wait(Duration::from_secs(seconds.into())),
        }
    }

    fn edit(&mut self, number: u8, anew: bool) {
        self.edits += 1;
        let key = key(number);
        let uid = match self.declared.get(&key) {
            Some(before) if !anew => before.uid.clone(),
            _ => format!("uid-{}", self.edits),
        };
        let body = json!({"edit": self.edits}).into();
        self.declared.insert(
            key.clone(),
            Object {
                key,
                uid,
                generation: self.edits,
                body,
            },
        );
    }

    fn present(&mut self) -> &mut Manager {
        self.managers.last_mut().expect("there always is one")
    }

    fn plan(&mut self, number: u8) {
        let (now, key) = (self.now, key(number));
        let declared = self.declared.get(&key).cloned();
        self.present().plan(now, &key, declared.as_ref());
        self.wake_managers();
    }

    fn list(&mut self) {
        let (now, declared) = (self.now, self.declared.clone());
        let all: Vec<_> = (0..KEYS).map(key).collect();
        self.present().list(now, &declared, &all);
        self.wake_managers();
    }

    /// Every manager's sessions see what has changed.
    fn wake_managers(&mut self) {
        for at in 0..self.managers.len() {
            let number = self
                .connection
                .as_ref()
                .filter(|connection| connection.manager == at)
                .map(|c| c.number);
            let effects = self.managers[at].wake(self.now, number);
            self.effects(effects);
        }
    }

    fn effects(&mut self, effects: Vec<Effect>) {
        let Some(connection) = &mut self.connection else { return };
        for effect in effects {
            match effect {
                Effect::Send(frame) => connection.down.push_back(frame.encode().unwrap()),
                Effect::Close => connection.closed = true,
            }
        }
    }

    /// The node dials, in its time.
    fn dial(&mut self, who: Who) {
        if let (State::Waiting { .. }, Some(at)) = (self.session.state(), self.session.wake_at()) {
            self.wait(at.saturating_sub(self.now));
        }
        self.connect(who);
    }

    fn flow(&mut self) {
        self.dial(Who::Present);
        (0..50).for_each(|_| self.deliver_up());
        (0..50).for_each(|_| self.deliver_down());
        (0..50).for_each(|_| self.work());
    }

    fn connect(&mut self, who: Who) {
        if !std::mem::take(&mut self.dialling) {
            return;
        }
        let ours = self.managers.len() - 1;
        let manager = match who {
            // A node that belongs nowhere yet would join them, as it should.
            Who::OtherCluster if self.disk.position.is_some() => 0,
            Who::Deposed(which) => {
                let deposed = 1 + usize::from(which) % ours;
                if self.would_know(deposed) { deposed } else { ours }
            }
            Who::Present | Who::OtherCluster => ours,
        };
        let number = self.connections;
        self.connections += 1;
        let (down, up) = (VecDeque::new(), VecDeque::new());
        self.connection = Some(Connection {
            manager,
            number,
            down,
            up,
            last_down: None,
            closed: false,
        });
        self.node(Input::Connected);
    }

    /// Whether the node can tell that a manager is deposed: by the terms of a Lease that it knows. A Lease that was made
    /// anew before the node ever met its holder looks like a new one; its holder is given up by itself within seconds.
    fn would_know(&self, manager: usize) -> bool {
        let Some(position) = &self.disk.position else {
            return true;
        };
        let known = |lease: &String| {
            *lease == position.epoch.lease || self.left.get(lease).is_some_and(|until| self.now < *until)
        };
        self.managers
            .get(manager)
            .is_some_and(|manager| known(&manager.server.epoch.lease))
    }

    fn deliver_down(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        if let Some(text) = connection.down.pop_front() {
            connection.last_down = Some(text.clone());
            self.node(Input::Frame(Downstream::decode(&text)));
        } else if connection.closed {
            self.cut(true);
        }
    }

    fn deliver_up(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        let (at, number) = (connection.manager, connection.number);
        let Some(text) = connection.up.pop_front().filter(|_| !connection.closed) else {
            return;
        };
        if let Ok(skerry_edge::message::Received::Message(Upstream::Ack { version })) = Upstream::decode(&text) {
            self.managers[at].acked = version;
        }
        let effects = self.managers[at].frame(self.now, number, &text);
        self.effects(effects);
        self.wake_managers();
    }

    /// The store does the first thing that it was asked for.
    fn work(&mut self) {
        match self.orders.pop_front() {
            None => {}
            Some(Order::Store(batch)) => {
                self.apply(batch);
                let holds = self.disk.items.len() as u64;
                self.node(Input::Stored { holds });
            }
            Some(Order::Rows) => {
                let rows = self.disk.items.values().map(Item::row).collect();
                self.node(Input::Rows(rows));
            }
            Some(Order::Fetch { after, limit }) => {
                let entries = self.disk.outbox.range(after + 1..).take(limit);
                let outgoing = entries.map(|(_, report)| Outgoing::Report(report.clone())).collect();
                self.node(Input::Fetched(outgoing));
            }
            Some(Order::Settle { seq, result }) => {
                if let Some(report) = self.disk.outbox.remove(&seq) {
                    self.settle_report(&report, &result);
                }
            }
        }
    }

    fn apply(&mut self, Batch { changes, position }: Batch) {
        let manager = self
            .managers
            .iter()
            .find(|manager| manager.server.epoch == position.epoch);
        let manager = manager.expect("every epoch is a manager's");
        assert_eq!(manager.server.cluster, "ours", "nothing of another cluster is stored");
        if let Some(before) = self.disk.position.as_ref().filter(|_| self.trusts_position) {
            let rank = |epoch: &Epoch| self.managers.iter().position(|manager| manager.server.epoch == *epoch);
            let lease = &position.epoch.lease;
            let told = *lease == before.epoch.lease || self.left.get(lease).is_some_and(|until| self.now < *until);
            let older = rank(&position.epoch) < rank(&before.epoch);
            assert!(!(older && told), "nothing of a deposed manager is stored");
            if *lease != before.epoch.lease {
                self.left.insert(before.epoch.lease.clone(), self.now + limits::RETIRED);
                self.left.remove(lease);
            }
            if !changes.is_empty() {
                assert!(
                    position.version > manager.acked,
                    "nothing that was acknowledged is stored again"
                );
            }
        }
        for change in changes {
            match change {
                Change::Put(object) => drop(self.disk.items.insert(object.key.clone().into(), Item::Object(object))),
                Change::PutCredential(credential) => {
                    drop(self.disk.items.insert(credential.key(), Item::Credential(credential)));
                }
                Change::Delete(key) => {
                    let allowed = key.is_credential() || self.deleted.contains(&key.object);
                    assert!(allowed, "{key} was deleted on the node, and by no user");
                    self.disk.items.remove(&key);
                }
            }
        }
        self.disk.position = Some(position);
        self.trusts_position = true;
    }

    fn settle_report(&mut self, report: &Report, result: &ReportResult) {
        let id = id(report);
        self.settled.insert(id);
        if let ReportResult::Refused { reason } = result {
            assert!(reason.contains("not placed"), "{reason}");
        } else {
            assert!(
                self.executed.contains(&id),
                "report {id} left the outbox and was not carried out"
            );
        }
    }

    fn fail(&mut self) {
        let asked = match self.orders.front() {
            Some(Order::Store(_)) => Asked::Store,
            Some(Order::Rows) => Asked::Rows,
            Some(Order::Fetch { .. }) => Asked::Fetch,
            Some(Order::Settle { .. }) | None => return,
        };
        self.orders.pop_front();
        self.node(Input::StoreFailed {
            asked,
            cause: "disk full".to_owned(),
        });
    }

    fn cut(&mut self, noticed: bool) {
        let Some(Connection { manager, number, .. }) = self.connection.take() else {
            return;
        };
        if noticed {
            self.managers[manager].ended(number);
        }
        self.node(Input::Disconnected {
            jitter: 0.5,
            cause: "cut".to_owned(),
        });
    }

    fn replay(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.down.extend(connection.last_down.clone());
        }
    }

    fn node_crash(&mut self, stored: bool) {
        if let (true, Some(Order::Store(batch))) = (stored, self.orders.pop_front()) {
            self.apply(batch);
        }
        self.connection = None;
        self.orders.clear();
        self.dialling = false;
        self.boots += 1;
        self.left.clear();
        let (position, holds) = (self.disk.position.clone(), self.disk.items.len() as u64);
        self.session = Session::new(identity(self.boots), position, holds);
    }

    fn manager_crash(&mut self, new_lease: bool) {
        let server = self.present().server.clone();
        let lease = server.epoch.lease.trim_start_matches("lease-").parse::<u64>().unwrap();
        let next = if new_lease {
            self::server("ours", lease + 1, 0)
        } else {
            self::server("ours", lease, server.epoch.transitions + 1)
        };
        if self
            .connection
            .as_ref()
            .is_some_and(|connection| connection.manager == self.managers.len() - 1)
        {
            self.cut(true);
        }
        // The old one stays, as one that hangs and does not know that it is deposed.
        self.managers.push(Manager::new(next));
    }

    fn restore(&mut self) {
        if let Some(backup) = self.backup.take() {
            self.lost_with_disk.extend(self.disk.outbox.values().map(id));
            for report in backup.outbox.values() {
                self.lost_with_disk.remove(&id(report));
            }
            // Numbers go on: they are drawn from a clock-free counter that the copy has too, under another boot.
            self.disk = backup;
            self.trusts_position = false;
            self.node_crash(false);
        }
    }

    fn report(&mut self, key: &ObjectKey) {
        let Some(item) = self.disk.items.get(&ItemKey::from(key.clone())) else {
            return;
        };
        self.reports += 1;
        self.disk.last_seq += 1;
        let report = Report {
            seq: self.disk.last_seq,
            key: key.clone(),
            uid: item.uid().to_owned(),
            observed_at: Timestamp::UNIX_EPOCH,
            payload: ReportPayload::DatasetSamples { count: self.reports },
        };
        self.disk.outbox.insert(report.seq, report);
        self.node(Input::OutboxGrew);
    }

    fn take(&mut self, later: bool) {
        for manager in &mut self.managers {
            if let Some(report) = manager.take(later) {
                self.executed.insert(id(&report));
            }
        }
        self.wake_managers();
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.wake_managers();
        if self.session.wake_at().is_some_and(|at| at <= self.now) {
            self.node(Input::Tick);
        }
    }

    fn node(&mut self, input: Input) {
        let mut next = Some(input);
        while let Some(input) = next.take() {
            for output in self.session.handle(self.now, input) {
                match output {
                    Output::Dial => self.dialling = true,
                    Output::Ping => {}
                    Output::Send(frame) => {
                        let text = frame.encode().unwrap();
                        self.connection
                            .as_mut()
                            .expect("sent while connected")
                            .up
                            .push_back(text);
                    }
                    Output::Close => {
                        // The last frame may arrive; nothing comes back.
                        self.deliver_last();
                        next = Some(Input::Disconnected {
                            jitter: 0.5,
                            cause: String::new(),
                        });
                    }
                    Output::Store(batch) => {
                        assert!(!self.is_storing(), "one batch at a time");
                        self.orders.push_back(Order::Store(batch));
                    }
                    Output::ReadRows => {
                        assert!(!self.is_storing(), "rows are read of a store at rest");
                        self.orders.push_back(Order::Rows);
                    }
                    Output::Fetch { after, limit } => self.orders.push_back(Order::Fetch { after, limit }),
                    Output::Settle { seq, result } => self.orders.push_back(Order::Settle { seq, result }),
                }
            }
        }
    }

    fn is_storing(&self) -> bool {
        self.orders.iter().any(|order| matches!(order, Order::Store(_)))
    }

    fn deliver_last(&mut self) {
        while self
            .connection
            .as_ref()
            .is_some_and(|connection| !connection.up.is_empty() && !connection.closed)
        {
            self.deliver_up();
        }
        if let Some(Connection { manager, number, .. }) = self.connection.take() {
            self.managers[manager].ended(number);
        }
    }

    /// No more faults: the present manager knows everything, and the connection holds.
    pub(crate) fn settle(&mut self) {
        if self
            .connection
            .as_ref()
            .is_some_and(|connection| connection.manager != self.managers.len() - 1)
        {
            self.cut(true);
        }
        (0..KEYS).for_each(|number| self.plan(number));
        self.list();
        for _ in 0..10_000 {
            if self.is_quiet() {
                return;
            }
            self.flow();
            self.take(false);
            self.wait(Duration::from_secs(1));
        }
        panic!("nothing settles: {:?}", self.session);
    }

    fn is_quiet(&self) -> bool {
        let manager = self.managers.last().expect("there always is one");
        self.session.state() == State::Live
            && self
                .connection
                .as_ref()
                .is_some_and(|c| c.up.is_empty() && c.down.is_empty() && !c.closed)
            && self.orders.is_empty()
            && self.disk.outbox.is_empty()
            && manager.is_quiet()
    }

    pub(crate) fn check(&self) {
        let wanted: BTreeMap<_, _> = self
            .declared
            .values()
            .flat_map(items)
            .map(|item| (item.key(), item))
            .collect();
        assert_eq!(self.disk.items, wanted);
        let present = self.managers.last().expect("there always is one");
        assert_eq!(
            self.disk.position.as_ref().map(|position| &position.epoch),
            Some(&present.server.epoch)
        );
        assert_eq!(present.strays(), 0);
        for report in 1..=self.reports {
            let known = self.settled.contains(&report) || self.lost_with_disk.contains(&report);
            assert!(known, "report {report} was forgotten");
        }
        assert!(present.wake_at(self.connections - 1).is_some(), "the session lives");
    }
}

fn id(report: &Report) -> u64 {
    match report.payload {
        ReportPayload::DatasetSamples { count } => count,
        _ => unreachable!("the model reports samples only"),
    }
}
