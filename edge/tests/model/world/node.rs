//! The node: its session, the store that does what it is asked for, in its time or never, and the disk below both.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::json;
use skerry_edge::{
    Epoch, Item, ItemKey, ObjectKey, Position, Report, ReportId, ReportPayload, ReportResult, limits,
    message::OutboxDepth,
    node::{Asked, Batch, Change, Identity, Input, Outgoing, Output, Session, Wanted},
};

use super::{World, id};

/// What outlives the local controller.
#[derive(Clone, Default)]
pub(super) struct Disk {
    pub(super) items: BTreeMap<ItemKey, Item>,
    pub(super) position: Option<Position>,
    pub(super) outbox: BTreeMap<u64, Report>,
    pub(super) last_seq: u64,
}

pub(super) enum Order {
    Store(Batch),
    Rows,
    Fetch(Wanted),
    Weigh,
    Settle { seq: u64, result: ReportResult },
}

pub(super) fn identity(boots: u64) -> Identity {
    Identity {
        node: "edge-1".to_owned(),
        boot: format!("boot-{boots}"),
        agent: "0.1.0".to_owned(),
    }
}

impl World {
    pub(super) fn node(&mut self, input: Input) {
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
                    Output::Fetch(wanted) => self.orders.push_back(Order::Fetch(wanted)),
                    Output::Weigh => self.orders.push_back(Order::Weigh),
                    Output::Settle { seq, result } => self.orders.push_back(Order::Settle { seq, result }),
                }
            }
        }
    }

    /// Whether a node that stands here knows of a manager of another epoch whether it is the older: by the terms of a Lease
    /// that it knows, by the age of Leases, or because it has lately seen that one superseded. One that is older and stays is
    /// given up by itself within seconds, or else was put back.
    pub(super) fn knows(&self, at: &Position, epoch: &Epoch) -> bool {
        let left = self.left.get(&epoch.lease).map(|until| self.now < *until);
        epoch.lease == at.epoch.lease || left.unwrap_or_else(|| epoch.is_of_older_lease_than(&at.epoch))
    }

    /// The node meets a manager of this epoch.
    pub(super) fn meet(&mut self, epoch: &Epoch) {
        let at = self.disk.position.as_ref();
        if at.is_some_and(|at| epoch.is_of_older_lease_than(&at.epoch)) {
            let until = self.now + limits::RETIRED;
            self.left.entry(epoch.lease.clone()).or_insert(until);
        }
    }

    fn is_storing(&self) -> bool {
        self.orders.iter().any(|order| matches!(order, Order::Store(_)))
    }

    /// The store does the first thing that it was asked for.
    pub(super) fn work(&mut self) {
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
            Some(Order::Fetch(wanted)) => {
                let outgoing = wanted.pick(self.disk.outbox.values().cloned().map(Outgoing::Report));
                self.node(Input::Fetched(outgoing));
            }
            Some(Order::Weigh) => {
                let messages = self.disk.outbox.len() as u64;
                self.node(Input::Weighed(Some(OutboxDepth { messages, bytes: 0 })));
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
        if let Some(before) = &self.disk.position {
            let rank = |epoch: &Epoch| self.managers.iter().position(|manager| manager.server.epoch == *epoch);
            let older = rank(&position.epoch) < rank(&before.epoch);
            let told = self.trusts_position && self.knows(before, &position.epoch);
            assert!(!(older && told), "nothing of a deposed manager is stored");
            assert!(
                !self.trusts_position || changes.is_empty() || position.version > manager.acked,
                "nothing that was acknowledged is stored again"
            );
            let lease = &position.epoch.lease;
            self.left.retain(|left, until| self.now < *until && left != lease);
            if *lease != before.epoch.lease && !before.epoch.is_of_older_lease_than(&position.epoch) {
                self.left.insert(before.epoch.lease.clone(), self.now + limits::RETIRED);
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
        if let ReportResult::Refused { reason } = result {
            self.refused.insert(id);
            assert!(reason.contains("not placed"), "{reason}");
        } else {
            self.accepted.insert(id);
            assert!(
                self.executed.contains(&id),
                "report {id} left the outbox and was not carried out"
            );
        }
    }

    pub(super) fn fail(&mut self) {
        let asked = match self.orders.front() {
            Some(Order::Store(_)) => Asked::Store,
            Some(Order::Rows) => Asked::Rows,
            Some(Order::Fetch(_)) => Asked::Fetch,
            Some(Order::Weigh | Order::Settle { .. }) | None => return,
        };
        self.orders.pop_front();
        self.node(Input::StoreFailed {
            asked,
            cause: "disk full".to_owned(),
        });
    }

    pub(super) fn node_crash(&mut self, stored: bool) {
        if let (true, Some(Order::Store(batch))) = (stored, self.orders.pop_front()) {
            self.apply(batch);
        }
        if let Some(connection) = self.connection.take() {
            self.late(connection);
        }
        self.orders.clear();
        self.dialling = false;
        self.boots += 1;
        self.left.clear();
        let (position, holds) = (self.disk.position.clone(), self.disk.items.len() as u64);
        self.session = Session::new(identity(self.boots), position, holds);
    }

    pub(super) fn restore(&mut self) {
        if let Some(backup) = self.backup.take() {
            self.lost_with_disk.extend(self.disk.outbox.values().map(id));
            for report in backup.outbox.values() {
                self.lost_with_disk.remove(&id(report));
                // An old disk owes it again, and nobody can tell that it was told.
                self.accepted.remove(&id(report));
                self.refused.remove(&id(report));
            }
            // Numbers go on: they are drawn from a clock-free counter that the copy has too, under another boot.
            self.disk = backup;
            self.trusts_position = false;
            self.node_crash(false);
        }
    }

    pub(super) fn report(&mut self, key: &ObjectKey) {
        let Some(item) = self.disk.items.get(&ItemKey::from(key.clone())) else {
            return;
        };
        self.reports += 1;
        self.disk.last_seq += 1;
        let report = Report {
            seq: self.disk.last_seq,
            id: Some(ReportId {
                boot: identity(self.boots).boot,
                number: self.disk.last_seq,
            }),
            key: key.clone(),
            uid: item.uid().to_owned(),
            observed_at: Timestamp::UNIX_EPOCH,
            // Of figures the manager may leave out those that others make worthless.
            payload: ReportPayload::Round {
                round: self.reports,
                message: json!({}).into(),
            },
        };
        self.disk.outbox.insert(report.seq, report);
        self.node(Input::OutboxGrew);
    }
}
