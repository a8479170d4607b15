//! What one of Sedna's agents was told, and what it reported, without I/O.
//!
//! Decides what goes to the agent: everything whenever it connects, since it forgets, and of several changes of one
//! object the last, since it heeds no order; and what was deleted while it was away, as far as this manager knows. Keeps
//! what the agent reported until it is answered, over its connections, since the agent takes a report for done with once
//! it is sent. Where too much waits the agent has to wait, too, but not for ever: what is said of one resource may hold up
//! what is said of others for a while, and then gives way.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use jiff::Timestamp;
use tokio::time::Instant;

use super::envelope::{Envelope, Said};
use crate::{
    hash::ContentHash,
    node::{Batch, Change, Outgoing, Wanted},
    object::{Credential, Item, ItemKey, ObjectKey, Row},
    position::Epoch,
    report::{Report, ReportPayload},
};

/// Bytes of reports that wait for their object. Figures go first, then the oldest: an agent may report for ever on what is no
/// more. Little, since this is what somebody can have us keep who only says that he is a node.
pub const HOMELESS: usize = 64 * 1024;

/// Bytes of reports that were not answered, from which on nothing is read of the agent. With one more report and those that
/// waited for their object it has us keep a quarter of a MiB at most.
pub const OWED: usize = 64 * 1024;

/// Of these, on one resource, so that there is room for what is said of another.
pub const SHARE: usize = OWED / 2;

/// For how long an agent has to wait because of one resource. Longer than an API server is away that is started anew, and
/// than a burst of a thousand rounds takes: of these nothing is given up.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The kind that an agent takes no edit of. What it counts it settles when it first hears of a Dataset, and it reports a count
/// that differs from its last one: told of another URL, or of one that was made again, it would say nothing for ever. So it is
/// told to forget each before it is told of it, and counts anew.
const DATASET: &str = "dataset";

/// What one of them takes beside its message.
const ROW: usize = 512;

fn size(payload: &ReportPayload) -> usize {
    payload.message().map_or(0, |message| message.json().len()) + ROW
}

/// The state of one agent.
#[derive(Debug)]
pub struct Agent {
    /// Unique to this state, as the start of a local controller is.
    boot: String,
    /// The manager that last told it anything.
    heard: Option<Epoch>,
    held: BTreeMap<ItemKey, Item>,
    /// What it was told over earlier connections, and may hold.
    before: BTreeSet<ObjectKey>,
    outbox: BTreeMap<u64, Report>,
    /// On which resources too much waited, and since when; until half of it is answered.
    busy: BTreeMap<ObjectKey, Instant>,
    /// The same of all together.
    full: Option<Instant>,
    last: u64,
    homeless: VecDeque<Said>,
}

/// What an agent may report now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Nothing until a report is answered, or until then; none where there is room.
    pub full_until: Option<Instant>,
    /// How many reports were given up for it. One that is on its way may arrive all the same.
    pub given_up: u64,
}

impl Agent {
    /// An agent that was told nothing, under a name for this state that no other has.
    pub fn new(boot: String) -> Self {
        Self {
            boot,
            heard: None,
            held: BTreeMap::new(),
            before: BTreeSet::new(),
            outbox: BTreeMap::new(),
            busy: BTreeMap::new(),
            full: None,
            last: 0,
            homeless: VecDeque::new(),
        }
    }

    /// Under which numbers of reports are unique.
    pub fn boot(&self) -> &str {
        &self.boot
    }

    /// The agent has connected: whatever it was told it is told again.
    pub fn connected(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.before.extend(held.into_keys().map(|key| key.object));
    }

    /// The agent has gone; whether there is anything to be kept in mind of it. Only what is placed on a node is.
    pub fn disconnected(&mut self) -> bool {
        self.homeless.clear();
        !(self.held.is_empty() && self.before.is_empty() && self.outbox.is_empty())
    }

    /// How many items it holds, or may hold.
    pub fn holds(&self) -> u64 {
        (self.held.len() + self.before.len()) as u64
    }

    /// Takes changes; what to tell the agent. The first ones of a session come before anything is asked of it.
    pub fn apply(&mut self, now: Timestamp, batch: Batch) -> Vec<Envelope> {
        self.hear(batch.position.epoch);
        let mut touched = BTreeSet::new();
        for change in batch.changes {
            let key = change.key();
            match change {
                Change::Put(object) => drop(self.held.insert(key.clone(), Item::Object(object))),
                Change::PutCredential(credential) => drop(self.held.insert(key.clone(), Item::Credential(credential))),
                Change::Delete(_) => drop(self.held.remove(&key)),
            }
            touched.insert((key.object, key.secret.is_some()));
        }
        let mut told = Vec::new();
        let objects: BTreeSet<_> = touched.iter().map(|(object, _)| object).collect();
        for key in objects {
            match self.held.get(&ItemKey::from(key.clone())) {
                Some(Item::Object(object)) => {
                    if key.kind == DATASET {
                        told.push(Envelope::delete(key));
                    }
                    told.push(Envelope::insert(object, self.credential(key)));
                    self.before.remove(key);
                }
                // A credential whose object comes with another batch, or has gone before it.
                _ if !touched.contains(&(key.clone(), false)) => {}
                _ => {
                    told.push(Envelope::delete(key));
                    self.before.remove(key);
                }
            }
        }
        self.house(now);
        told
    }

    fn credential(&self, owner: &ObjectKey) -> Option<&Credential> {
        let mut items = self.held.range(ItemKey::from(owner.clone())..);
        items.find_map(|(key, item)| match item {
            Item::Credential(credential) if key.object == *owner => Some(Some(credential)),
            _ if key.object != *owner => Some(None),
            _ => None,
        })?
    }

    /// What the agent holds, for a digest: what it was told over earlier connections as nothing that anybody wants, so that
    /// it is told anew or deleted.
    pub fn rows(&self) -> Vec<Row> {
        let before = self
            .before
            .iter()
            .filter(|key| !self.held.contains_key(&ItemKey::from((*key).clone())));
        let unknown = before.map(|key| Row {
            key: key.clone().into(),
            uid: String::new(),
            generation: 0,
            hash: ContentHash::default(),
        });
        self.held.values().map(Item::row).chain(unknown).collect()
    }

    /// The agent reports this. It waits where the agent has not been told of the object yet over this connection.
    pub fn report(&mut self, now: Timestamp, said: Said) {
        let Some(item) = self.held.get(&ItemKey::from(said.key.clone())) else {
            self.shelter(said);
            return;
        };
        let uid = item.uid().to_owned();
        self.put(now, uid, said);
    }

    /// Keeps a report until the agent is told of its object. Where there are hundreds of those that takes a while, in which
    /// of figures only the last counts, and no figure takes the place of a round.
    fn shelter(&mut self, said: Said) {
        if said.payload.coalesces() {
            self.homeless
                .retain(|earlier| earlier.key != said.key || !earlier.payload.coalesces());
        }
        self.homeless.push_back(said);
        while self.homeless.iter().map(|said| size(&said.payload)).sum::<usize>() > HOMELESS {
            let figure = self.homeless.iter().position(|said| said.payload.coalesces());
            self.homeless.remove(figure.unwrap_or_default());
        }
    }

    /// A manager of this epoch tells. Where another one may have led since the last, that one may have been told newer figures
    /// than those that were not answered yet: they are worth nothing now.
    fn hear(&mut self, epoch: Epoch) {
        if self.heard.as_ref().is_some_and(|before| !epoch.follows(before)) {
            self.outbox.retain(|_, report| !report.payload.coalesces());
        }
        self.heard = Some(epoch);
    }

    /// Gives reports that waited for their object to it.
    fn house(&mut self, now: Timestamp) {
        for said in std::mem::take(&mut self.homeless) {
            self.report(now, said);
        }
    }

    fn put(&mut self, now: Timestamp, uid: String, said: Said) {
        let Said { key, payload } = said;
        if payload.coalesces() {
            // There is no telling of which worker it is, so the last one counts, as it does for Sedna. One that is on its
            // way goes on, and changes nothing once this one has come.
            self.outbox
                .retain(|_, earlier| earlier.key != key || !earlier.payload.coalesces() || earlier.uid != uid);
        }
        self.last += 1;
        let report = Report {
            seq: self.last,
            id: None,
            key,
            uid,
            observed_at: now,
            payload,
        };
        self.outbox.insert(self.last, report);
    }

    /// Makes room for another report, if that is due. Where there is none nothing may be read of the agent, which then waits
    /// for itself.
    pub fn make_room(&mut self, now: Instant) -> Room {
        let mut given_up = 0;
        while let Some((key, since)) = self.too_much(now) {
            if now < since + PATIENCE {
                let full_until = Some(since + PATIENCE);
                return Room { full_until, given_up };
            }
            self.give_up(&key);
            given_up += 1;
        }
        let full_until = None;
        Room { full_until, given_up }
    }

    /// The resource of which most is owed, and since when that is too much, or all together is. Once it was, it counts from
    /// then until half of it is answered: what is said of many busy ones in turn is not waited for in turn.
    fn too_much(&mut self, now: Instant) -> Option<(ObjectKey, Instant)> {
        let mut owed = BTreeMap::<_, usize>::new();
        for report in self.outbox.values() {
            *owed.entry(report.key.clone()).or_default() += size(&report.payload);
        }
        let all: usize = owed.values().sum();
        self.full = self.full.filter(|_| all >= OWED / 2);
        self.busy
            .retain(|key, _| owed.get(key).is_some_and(|bytes| *bytes >= SHARE / 2));
        let (key, most) = owed.into_iter().max_by_key(|(_, bytes)| *bytes)?;
        let of_all = (all >= OWED).then(|| *self.full.get_or_insert(now));
        let of_one = (most >= SHARE).then(|| *self.busy.entry(key.clone()).or_insert(now));
        let since = of_all.into_iter().chain(of_one).min()?;
        Some((key, since))
    }

    /// Gives up what is owed of this resource: a figure, or the oldest.
    fn give_up(&mut self, key: &ObjectKey) {
        let mut owed = self.outbox.iter().filter(|(_, report)| report.key == *key);
        let oldest = owed.clone().next();
        let figure = owed.find(|(_, report)| report.payload.coalesces());
        if let Some(seq) = figure.or(oldest).map(|(seq, _)| *seq) {
            self.outbox.remove(&seq);
        }
    }

    /// The reports that are wanted, in order.
    pub fn fetch(&self, wanted: &Wanted) -> Vec<Outgoing> {
        wanted.pick(self.outbox.values().cloned().map(Outgoing::Report))
    }

    /// A report was answered.
    pub fn settle(&mut self, seq: u64) {
        self.outbox.remove(&seq);
    }
}
