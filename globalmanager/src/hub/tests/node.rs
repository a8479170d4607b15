//! A node for tests: the real link over a store in memory.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use jiff::Timestamp;
use parking_lot::Mutex;
use skerry_edge::{
    Item, ItemKey, ObjectKey, Position, Report, ReportId, ReportPayload, ReportResult, Row,
    link::Store,
    message::OutboxDepth,
    node::{Batch, Change, Identity, Outgoing, Session, Wanted},
};

/// What outlives the node's process.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    pub(super) items: BTreeMap<ItemKey, Item>,
    pub(super) position: Option<Position>,
    pub(super) outbox: BTreeMap<u64, Report>,
    pub(super) settled: BTreeMap<u64, (Report, ReportResult)>,
    /// How many objects were written.
    pub(super) puts: usize,
    /// How many of them were older than what the node held of the same resource.
    pub(super) regressions: usize,
    /// What the node's clock shows.
    pub(super) clock: Timestamp,
    /// The start of the local controller that uses it; none of one that does not say so.
    pub(super) boot: Option<String>,
    last_seq: u64,
}

impl Disk {
    /// The node reports on a resource that it holds, if it does.
    pub(super) fn report(&mut self, key: &ObjectKey, count: u64) -> bool {
        self.say(key, ReportPayload::DatasetSamples { count })
    }

    /// The node reports this on a resource that it holds, if it does.
    pub(super) fn say(&mut self, key: &ObjectKey, payload: ReportPayload) -> bool {
        let Some(item) = self.items.get(&ItemKey::from(key.clone())) else {
            return false;
        };
        let uid = item.uid().to_owned();
        self.put(key, uid, payload);
        true
    }

    /// The node reports on whatever it likes.
    pub(super) fn invent(&mut self, key: &ObjectKey, uid: &str) {
        self.put(key, uid.to_owned(), ReportPayload::DatasetSamples { count: 0 });
    }

    fn put(&mut self, key: &ObjectKey, uid: String, payload: ReportPayload) {
        self.last_seq += 1;
        let report = Report {
            seq: self.last_seq,
            id: self.boot.clone().map(|boot| ReportId {
                boot,
                number: self.last_seq,
            }),
            key: key.clone(),
            uid,
            observed_at: self.clock,
            payload,
        };
        self.outbox.insert(report.seq, report);
    }

    fn apply(&mut self, Batch { changes, position }: Batch) {
        for change in changes {
            match change {
                Change::Put(object) => {
                    self.puts += 1;
                    let key = ItemKey::from(object.key.clone());
                    if let Some(Item::Object(held)) = self.items.get(&key) {
                        let same = held.uid == object.uid;
                        self.regressions += usize::from(same && object.generation < held.generation);
                    }
                    self.items.insert(key, Item::Object(object));
                }
                Change::PutCredential(credential) => {
                    self.items.insert(credential.key(), Item::Credential(credential));
                }
                Change::Delete(key) => drop(self.items.remove(&key)),
            }
        }
        self.position = Some(position);
    }
}

/// A store that takes its time: what was asked for becomes durable between the two waits.
pub(super) struct MemoryStore {
    pub(super) disk: Arc<Mutex<Disk>>,
    waits: Box<dyn Fn() -> Duration + Send + Sync>,
}

impl MemoryStore {
    pub(super) fn new(disk: Arc<Mutex<Disk>>, waits: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self {
            disk,
            waits: Box::new(waits),
        }
    }

    async fn wait(&self) {
        let wait = (self.waits)();
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }
}

impl Store for MemoryStore {
    type Error = Infallible;

    async fn store(&self, batch: Batch) -> Result<u64, Infallible> {
        self.wait().await;
        self.disk.lock().apply(batch);
        self.wait().await;
        Ok(self.disk.lock().items.len() as u64)
    }

    async fn rows(&self) -> Result<Vec<Row>, Infallible> {
        self.wait().await;
        Ok(self.disk.lock().items.values().map(Item::row).collect())
    }

    async fn fetch(&self, wanted: Wanted) -> Result<Vec<Outgoing>, Infallible> {
        self.wait().await;
        let disk = self.disk.lock();
        Ok(wanted.pick(disk.outbox.values().cloned().map(Outgoing::Report)))
    }

    async fn outbox(&self) -> Result<Option<OutboxDepth>, Infallible> {
        let messages = self.disk.lock().outbox.len() as u64;
        let bytes = 100 * messages;
        Ok(Some(OutboxDepth { messages, bytes }))
    }

    async fn settle(&self, seq: u64, result: ReportResult) -> Result<(), Infallible> {
        self.wait().await;
        let mut disk = self.disk.lock();
        if let Some(report) = disk.outbox.remove(&seq) {
            disk.settled.insert(seq, (report, result));
        }
        Ok(())
    }
}

/// A session of the node's next start.
pub(super) fn session(node: &str, boot: u64, disk: &mut Disk) -> Session {
    disk.boot = Some(boot.to_string());
    let identity = Identity {
        node: node.to_owned(),
        boot: boot.to_string(),
        agent: "test".to_owned(),
    };
    Session::new(identity, disk.position.clone(), disk.items.len() as u64)
}
