//! What a node keeps over restarts, in one SQLite file: the items that it should hold, the position that they lead to,
//! the outbox, and what was found of its Datasets.
//!
//! [`Store`] is a handle to the one thread that has the file open (`writer`); every method returns when what it did
//! is on the disk. The store never talks to anybody: it says that something has changed ([`Store::changes`],
//! [`Store::outbox_grew`]), and others look.

mod age;
mod changes;
mod datasets;
mod error;
mod items;
pub mod limits;
mod mark;
mod open;
mod outbox;
mod room;
mod salvage;
mod schema;
#[cfg(test)]
mod tests;
mod writer;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use age::Age;
pub use changes::Changes;
pub use datasets::{Finding, Kept};
pub use error::StoreError;
pub use items::Admission;
use mark::Mark;
use outbox::Homes;
pub use outbox::{NewReport, OutboxLimits, Totals};
use skerry_edge::{
    Credential, Object, ObjectKey, Position, Row,
    node::{Batch, Change, Outgoing, Wanted},
};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use uuid::Uuid;
use writer::{Closure, Database, Message, State, Writer};

/// Where the store is, under the host's root. Sedna's own file (`var/lib/sedna/database.db`) is left alone.
pub const PATH: &str = "var/lib/skerry/localcontroller.db";

/// The kind of Datasets, as the link writes it.
pub const DATASET: &str = "dataset";

/// Calls that wait for the thread; above it, callers wait.
const QUEUE: usize = 1024;

/// A handle to the store. Clones share it.
#[derive(Clone, Debug)]
pub struct Store {
    messages: mpsc::Sender<Message>,
    changes: Arc<Changes>,
    outbox_grew: Arc<Notify>,
    failed: watch::Receiver<Option<StoreError>>,
    trouble: watch::Receiver<Option<StoreError>>,
    moved_aside: Arc<[PathBuf]>,
    put_back: bool,
    boot: Arc<str>,
}

impl Store {
    /// Opens the store in this file, or a new one where there is none or it is damaged.
    pub async fn open(path: &Path, limits: OutboxLimits) -> Result<Self, StoreError> {
        let opened = Instant::now();
        Self::open_with(path, limits, move || opened.elapsed()).await
    }

    /// As [`Store::open`], with another clock of for how long it has been open.
    async fn open_with(
        path: &Path,
        limits: OutboxLimits,
        clock: impl Fn() -> Duration + Send + 'static,
    ) -> Result<Self, StoreError> {
        let age = Age::new(clock);
        let (messages, receiver) = mpsc::channel(QUEUE);
        let (fail, failed) = watch::channel(None);
        let (troubles, trouble) = watch::channel(None);
        let (reply, opened) = oneshot::channel();
        let path = path.to_owned();
        thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || match open_database(&path, limits, age) {
                Ok((database, mark, put_back)) => {
                    let boot = Arc::from(database.boot.as_str());
                    let _ = reply.send(Ok((open::moved_aside(&path), put_back, boot)));
                    let writer = Writer {
                        path,
                        database,
                        mark,
                        messages: receiver,
                        failed: fail,
                        trouble: troubles,
                    };
                    writer.run();
                }
                Err(error) => {
                    let _ = reply.send(Err(error));
                }
            })
            .map_err(StoreError::file(PathBuf::from("thread")))?;
        let (moved_aside, put_back, boot) = opened.await.map_err(|_| StoreError::Closed)??;
        Ok(Self {
            messages,
            changes: Arc::default(),
            outbox_grew: Arc::default(),
            failed,
            trouble,
            moved_aside: moved_aside.into(),
            put_back,
            boot,
        })
    }

    /// Closes the file after all that was asked before; what is asked later fails.
    pub async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if self.messages.send(Message::Close(reply)).await.is_ok() {
            let _ = closed.await;
        }
    }

    /// Returns when the store cannot go on, with why.
    pub async fn failure(&self) -> StoreError {
        let mut failed = self.failed.clone();
        match failed.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(error)) => error.clone(),
            _ => StoreError::Closed,
        }
    }

    /// Why the last write failed, where it did: the next one will, too, for all that is known.
    pub fn trouble(&self) -> Option<StoreError> {
        self.trouble.borrow().clone()
    }

    /// Damaged stores that lie beside this one, with what could not be carried over of what they had not delivered.
    pub fn moved_aside(&self) -> &[PathBuf] {
        &self.moved_aside
    }

    /// Whether this is an older store than was last here: each start says so until one has told it
    /// ([`Store::put_back_is_told`]).
    pub fn is_put_back(&self) -> bool {
        self.put_back
    }

    /// Takes the store for the one that is here from now on.
    pub async fn put_back_is_told(&self) {
        // Of a closed store the next start tells it again.
        let _ = self.messages.send(Message::PutBackIsTold).await;
    }

    /// The name of this start: no other has it, whatever becomes of the file. It begins with the name of the store.
    pub fn boot(&self) -> &str {
        &self.boot
    }

    /// The objects that were put or deleted since somebody last looked.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Notified when something was put into the outbox that can be sent.
    pub fn outbox_grew(&self) -> Arc<Notify> {
        self.outbox_grew.clone()
    }

    /// Stores a batch and its position, all or nothing; how many items there are now.
    pub async fn apply(&self, batch: Batch) -> Result<u64, StoreError> {
        let Batch { changes, position } = batch;
        self.change(changes, Some(position)).await
    }

    /// Stores changes of a manager that counts none, all or nothing; how many items there are now. There is no position then:
    /// a manager that counts them finds out what differs from the beginning.
    pub async fn apply_uncounted(&self, changes: Vec<Change>) -> Result<u64, StoreError> {
        self.change(changes, None).await
    }

    async fn change(&self, changes: Vec<Change>, position: Option<Position>) -> Result<u64, StoreError> {
        let apply = move |database: &mut Database| database.apply(&changes, position.as_ref());
        let applied = self.call(apply).await?;
        if applied.freed {
            self.outbox_grew.notify_one();
        }
        self.changes.add(applied.touched);
        Ok(applied.holds)
    }

    /// Where the items stand; none before the first batch, or after changes that nobody counts.
    pub async fn position(&self) -> Result<Option<Position>, StoreError> {
        self.call(|database| database.position()).await
    }

    /// How many items there are.
    pub async fn holds(&self) -> Result<u64, StoreError> {
        self.call(|database| Ok(database.state.holds)).await
    }

    /// By what a digest compares the items.
    pub async fn rows(&self) -> Result<Vec<Row>, StoreError> {
        self.call(|database| database.rows()).await
    }

    /// Marks every object as changed, for whoever starts from what the store holds.
    pub async fn announce_all(&self) -> Result<(), StoreError> {
        let keys = self.call(|database| database.keys()).await?;
        self.changes.add(keys);
        Ok(())
    }

    /// An object.
    pub async fn object(&self, key: &ObjectKey) -> Result<Option<Object>, StoreError> {
        let key = key.clone();
        self.call(move |database| database.object(&key)).await
    }

    /// A credential of an object.
    pub async fn credential(&self, owner: &ObjectKey, secret: &str) -> Result<Option<Credential>, StoreError> {
        let (owner, secret) = (owner.clone(), secret.to_owned());
        self.call(move |database| database.credential(&owner, &secret)).await
    }

    /// Whether what this worker says of a resource is taken.
    pub async fn admits(&self, key: &ObjectKey, worker: &str) -> Result<Admission, StoreError> {
        let (key, worker) = (key.clone(), worker.to_owned());
        self.call(move |database| database.admits(&key, &worker)).await
    }

    /// Numbers reports by this clock from here on, as long as it goes forward: what is made after an old store was put back, or
    /// after a machine went on from a snapshot, has higher numbers then than what was made meanwhile.
    pub async fn number_by(&self, clock: impl Fn() -> u64 + Send + 'static) -> Result<(), StoreError> {
        let number = move |database: &mut Database| {
            database.clock = Box::new(clock);
            Ok(())
        };
        self.call(number).await
    }

    /// Puts a report into the outbox.
    pub async fn push(&self, report: NewReport) -> Result<(), StoreError> {
        self.call(move |database| outbox::push(database, &report)).await?;
        self.outbox_grew.notify_one();
        Ok(())
    }

    /// Gives up figures that are too old; how many there were.
    pub async fn give_up_old(&self) -> Result<u64, StoreError> {
        let given_up = self.call(Database::give_up_old).await?;
        if given_up > 0 {
            self.outbox_grew.notify_one();
        }
        Ok(given_up)
    }

    /// At most `limit` of what the outbox holds after this number, in order: what can be sent to a manager that wants to know
    /// of which resource it is.
    pub async fn fetch(&self, after: u64, limit: usize) -> Result<Vec<Outgoing>, StoreError> {
        let of = None;
        self.fetch_wanted(Wanted { of, after, limit }).await
    }

    /// As [`Store::fetch`], of one resource where it is named.
    pub async fn fetch_wanted(&self, wanted: Wanted) -> Result<Vec<Outgoing>, StoreError> {
        self.call(move |database| outbox::fetch(database, &wanted, Homes::Only))
            .await
    }

    /// As [`Store::fetch`], with what waits for its object, too: its uid is empty.
    pub async fn fetch_homeless_too(&self, after: u64, limit: usize) -> Result<Vec<Outgoing>, StoreError> {
        let of = None;
        let wanted = Wanted { of, after, limit };
        self.call(move |database| outbox::fetch(database, &wanted, Homes::OrNone))
            .await
    }

    /// Removes from the outbox what the manager has answered. When this returns it is gone for whoever asks from here on;
    /// whether it is gone for good says the future that it returns, for which nobody has to wait.
    pub async fn settle(&self, seq: u64) -> Result<impl Future<Output = Result<bool, StoreError>> + use<>, StoreError> {
        let removed = self.send(move |database| outbox::remove(database, seq)).await?;
        Ok(async { removed.await.map_err(|_| StoreError::Closed)? })
    }

    /// What the outbox holds of what it can give up.
    pub async fn outbox(&self) -> Result<Totals, StoreError> {
        self.call(|database| Ok(database.state.outbox)).await
    }

    /// What was last found of a Dataset.
    pub async fn finding(&self, key: &ObjectKey) -> Result<Option<Kept>, StoreError> {
        let key = key.clone();
        self.call(move |database| database.finding(&key)).await
    }

    /// Keeps what was found of a Dataset and reports it if it is news, or this start has not told it; whether it did.
    pub async fn find(&self, key: &ObjectKey, finding: Finding) -> Result<bool, StoreError> {
        let key = key.clone();
        let news = self.call(move |database| database.find(&key, &finding)).await?;
        if news {
            self.outbox_grew.notify_one();
        }
        Ok(news)
    }

    /// Leaves the store no more room than it has now.
    #[cfg(test)]
    pub(crate) async fn fill_disk(&self) {
        let fill = |database: &mut Database| database.first("PRAGMA max_page_count = 1", [], |_| Ok(()));
        assert!(self.call(fill).await.is_ok());
    }

    /// Leaves it room again.
    #[cfg(test)]
    pub(crate) async fn empty_disk(&self) {
        let empty = |database: &mut Database| database.first("PRAGMA max_page_count = 1000000", [], |_| Ok(()));
        assert!(self.call(empty).await.is_ok());
    }

    /// Lets no mark be written.
    #[cfg(test)]
    pub(crate) async fn break_mark(&self) {
        let sql = "CREATE TEMP TRIGGER unmarked BEFORE INSERT ON mark BEGIN SELECT RAISE(ABORT, 'broken'); END";
        self.call(move |database| database.execute(sql, [])).await.unwrap();
    }

    /// Lets nothing be removed from the outbox, as a full disk does, or lets it again.
    #[cfg(test)]
    pub(crate) async fn break_outbox(&self, broken: bool) {
        let sql = if broken {
            "CREATE TEMP TRIGGER broken BEFORE DELETE ON outbox BEGIN SELECT RAISE(ABORT, 'broken'); END"
        } else {
            "DROP TRIGGER broken"
        };
        self.call(move |database| database.execute(sql, [])).await.unwrap();
    }

    async fn call<T, F>(&self, call: F) -> Result<T, StoreError>
    where
        F: FnOnce(&mut Database) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        self.send(call).await?.await.map_err(|_| StoreError::Closed)?
    }

    async fn send<T, F>(&self, call: F) -> Result<oneshot::Receiver<Result<T, StoreError>>, StoreError>
    where
        F: FnOnce(&mut Database) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        let (reply, result) = oneshot::channel();
        let call = Box::new(Closure::new(call, reply));
        let sent = self.messages.send(Message::Call(call)).await;
        sent.map(|()| result).map_err(|_| StoreError::Closed)
    }
}

/// The store at `path` and its mark, and whether it is older than the one that was last here.
fn open_database(path: &Path, limits: OutboxLimits, age: Age) -> Result<(Database, Mark, bool), StoreError> {
    let connection = open::open(path)?;
    let (mut mark, put_back) = Mark::open(&connection, path);
    let boot = skerry_edge::boot(&open::name(&connection)?, &Uuid::new_v4().to_string());
    let mut database = Database {
        connection,
        boot,
        clock: Box::new(|| 0),
        state: State::default(),
        limits,
        age,
    };
    database.read_age()?;
    database.count_items()?;
    outbox::count(&mut database)?;
    room::share_out(&database)?;
    mark.renew(&database.connection, database.age.seconds());
    Ok((database, mark, put_back))
}
