//! The world of the model: a user, a node with its disk, managers of all times, and one connection.

mod link;
mod node;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use jiff::Timestamp;
use serde_json::json;
use skerry_edge::{
    Credential, Epoch, Item, Object, ObjectKey, Report, ReportPayload,
    cloud::Server,
    node::{Input, Session, State},
};

use self::{
    link::{Connection, Late},
    node::{Disk, Order, identity},
};
use super::{
    KEYS, Step,
    manager::{Effect, Manager},
};

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
    late: Vec<Late>,
    dialling: bool,
    disk: Disk,
    backup: Option<Disk>,
    /// What a disk that was put back may not know: neither of acknowledgements nor of newer managers.
    trusts_position: bool,
    session: Session,
    boots: u64,
    /// Until when a Lease that was superseded, or that is known to be older, is not to be heard. Of another that it has not
    /// heard of, nor lately, the node cannot tell that it is the older.
    left: BTreeMap<String, Duration>,
    orders: VecDeque<Order>,
    reports: u64,
    executed: BTreeSet<u64>,
    /// Reports that were given to a disk which was replaced by an older one since.
    lost_with_disk: BTreeSet<u64>,
    /// Those that the node owes no more, since they were carried out, or since their object was not placed any more.
    accepted: BTreeSet<u64>,
    refused: BTreeSet<u64>,
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
            made: made(lease),
        },
    }
}

/// When a Lease was made: one after the other, but for two within a second, one of whose holder does not say, and one by a
/// server whose clock is behind.
fn made(lease: u64) -> Option<Timestamp> {
    let second = match lease {
        0 => 100,
        1 | 2 => 110,
        3 => return None,
        4 => 105,
        later => 100 + 10 * i64::try_from(later).unwrap(),
    };
    Timestamp::from_second(second).ok()
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
            late: Vec::new(),
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
            accepted: BTreeSet::new(),
            refused: BTreeSet::new(),
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
            Step::Late { which, frames } => self.deliver_late(which.into(), frames.into()),
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

    fn take(&mut self, later: bool) {
        let present = self.managers.len() - 1;
        for (at, manager) in self.managers.iter_mut().enumerate() {
            if let Some(report) = manager.take(later) {
                let id = id(&report);
                // One that was refused may wait here, told by earlier starts of the node when its object was still there.
                let again = !self.executed.insert(id) && self.accepted.contains(&id);
                // Of one that is deposed the API server takes nothing.
                assert!(
                    !again || at != present,
                    "report {id} was accepted, and takes effect again"
                );
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

    /// No more faults: the present manager knows everything, and the connection holds.
    pub(crate) fn settle(&mut self) {
        if self
            .connection
            .as_ref()
            .is_some_and(|connection| connection.manager != self.managers.len() - 1)
        {
            self.cut(true);
        }
        while !self.late.is_empty() {
            self.deliver_late(0, usize::MAX);
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
            let ends = [&self.accepted, &self.refused, &self.lost_with_disk];
            let known = ends.iter().any(|end| end.contains(&report));
            assert!(known, "report {report} was forgotten");
        }
        assert!(present.wake_at(self.connections - 1).is_some(), "the session lives");
    }
}

fn id(report: &Report) -> u64 {
    match report.payload {
        ReportPayload::Round { round, .. } => round,
        _ => unreachable!("the model reports rounds only"),
    }
}
