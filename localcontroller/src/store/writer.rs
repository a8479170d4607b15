//! The one thread that has the database open: takes calls in order, and commits as many as wait in one transaction.
//!
//! Decides when to commit, never what is written. A call that fails is undone alone; where SQLite undoes the whole
//! transaction (a full disk), all calls in it fail. Nobody is told of success before the commit is on the disk.

use std::path::PathBuf;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    age::Age,
    error::StoreError,
    mark::Mark,
    open,
    outbox::{OutboxLimits, Totals},
};

/// Calls in one transaction at most: above it, those at its start would wait too long for its end.
const BATCH: usize = 256;

/// What a call may use.
pub(super) struct Database {
    pub(super) connection: Connection,
    /// A name that no other start has.
    pub(super) boot: String,
    /// The least number that the next report is given.
    pub(super) clock: Box<dyn Fn() -> u64 + Send>,
    pub(super) state: State,
    pub(super) limits: OutboxLimits,
    pub(super) age: Age,
}

/// What is derived from the tables and kept in memory; put back as it was when a call is undone.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// How many items there are.
    pub(super) holds: u64,
    pub(super) outbox: Totals,
}

/// A call to the database, with the way back for its result.
pub(super) trait Call: Send {
    /// Does it; the result is kept until [`Call::finish`].
    fn run(&mut self, database: &mut Database) -> Result<(), StoreError>;
    /// Answers: with the result, or with why the transaction failed.
    fn finish(self: Box<Self>, committed: Result<(), StoreError>);
}

/// A [`Call`] made of a closure.
pub(super) struct Closure<F, T> {
    call: Option<F>,
    result: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<F, T> Closure<F, T> {
    pub(super) fn new(call: F, reply: oneshot::Sender<Result<T, StoreError>>) -> Self {
        Self {
            call: Some(call),
            result: None,
            reply,
        }
    }
}

impl<F, T> Call for Closure<F, T>
where
    F: FnOnce(&mut Database) -> Result<T, StoreError> + Send,
    T: Send,
{
    fn run(&mut self, database: &mut Database) -> Result<(), StoreError> {
        let Some(call) = self.call.take() else { return Ok(()) };
        let result = call(database);
        let outcome = result.as_ref().map(drop).map_err(Clone::clone);
        self.result = Some(result);
        outcome
    }

    fn finish(self: Box<Self>, committed: Result<(), StoreError>) {
        let Self { call: _, result, reply } = *self;
        let result = match (result, committed) {
            (Some(Ok(_)) | None, Err(error)) => Err(error),
            (Some(result), _) => result,
            (None, Ok(())) => Err(StoreError::Closed),
        };
        // Whoever asked may have gone; what was written stays written.
        let _ = reply.send(result);
    }
}

/// What the thread is told.
pub(super) enum Message {
    /// Do this.
    Call(Box<dyn Call>),
    /// That the store is an old one was told.
    PutBackIsTold,
    /// Close the database, after what was asked before.
    Close(oneshot::Sender<()>),
}

/// The thread's main function.
pub(super) struct Writer {
    pub(super) path: PathBuf,
    pub(super) database: Database,
    pub(super) mark: Mark,
    pub(super) messages: mpsc::Receiver<Message>,
    /// Set when the store cannot go on.
    pub(super) failed: watch::Sender<Option<StoreError>>,
    /// Why the last write failed, where it did.
    pub(super) trouble: watch::Sender<Option<StoreError>>,
}

impl Writer {
    pub(super) fn run(mut self) {
        let mut closing = None;
        while closing.is_none()
            && let Some(message) = self.messages.blocking_recv()
        {
            let mut calls = Vec::new();
            let mut next = Some(message);
            while let Some(message) = next {
                match message {
                    Message::Call(call) => calls.push(call),
                    Message::PutBackIsTold => self.mark.told(),
                    Message::Close(reply) => closing = Some(reply),
                }
                let full = calls.len() >= BATCH || closing.is_some();
                next = if full { None } else { self.messages.try_recv().ok() };
            }
            if let Err(StoreError::Damaged(what)) = self.transact(calls) {
                return self.give_up(what);
            }
            self.mark.keep(&self.database.connection, self.database.age.seconds());
        }
        // Where it cannot be written to, what waits is taken for a little younger.
        let _ = self.database.keep_age();
        self.mark.renew(&self.database.connection, self.database.age.seconds());
        drop(self.database);
        if let Some(reply) = closing {
            let _ = reply.send(());
        }
        refuse(self.messages);
    }

    /// Runs these calls in one transaction and answers them.
    fn transact(&mut self, calls: Vec<Box<dyn Call>>) -> Result<(), StoreError> {
        let before = self.database.state.clone();
        let (written, mut trouble) = (self.database.connection.total_changes(), None);
        let mut done = Vec::with_capacity(calls.len());
        let mut went = self.execute("BEGIN");
        for mut call in calls {
            if went.is_ok() {
                went = self.run_one(call.as_mut(), &mut trouble);
            }
            done.push(call);
        }
        if went.is_ok() {
            went = self.execute("COMMIT");
        }
        if went.is_err() {
            self.database.state = before;
            if !self.database.connection.is_autocommit() {
                let _ = self.execute("ROLLBACK");
            }
        }
        let trouble = went
            .as_ref()
            .err()
            .cloned()
            .or(trouble)
            .filter(StoreError::is_of_the_disk);
        if trouble.is_some() || self.database.connection.total_changes() != written {
            self.trouble.send_replace(trouble);
        }
        for call in done {
            call.finish(went.clone());
        }
        went
    }

    /// Runs one call; an error is the transaction's, a call's own error is undone and kept for its answer, and as `trouble`.
    fn run_one(&mut self, call: &mut dyn Call, trouble: &mut Option<StoreError>) -> Result<(), StoreError> {
        self.execute("SAVEPOINT call")?;
        let before = self.database.state.clone();
        match call.run(&mut self.database) {
            Ok(()) => self.execute("RELEASE call"),
            Err(error @ StoreError::Damaged(_)) => Err(error),
            Err(error) if self.database.connection.is_autocommit() => Err(error),
            Err(error) => {
                *trouble = Some(error);
                self.database.state = before;
                self.execute("ROLLBACK TO call")?;
                self.execute("RELEASE call")
            }
        }
    }

    fn execute(&self, sql: &str) -> Result<(), StoreError> {
        self.database.connection.prepare_cached(sql)?.execute([])?;
        Ok(())
    }

    /// Puts another file in the place of the damaged one, so that the next start heals, and says that this run cannot go on.
    fn give_up(self, what: String) {
        let Self {
            path,
            database,
            mark: _,
            messages,
            failed,
            trouble: _,
        } = self;
        drop(database);
        if let Err(error) = open::replace(&path, &what) {
            tracing::error!(store = %path.display(), %error, %what, "the store is damaged and no new one can take its place");
        }
        failed.send_replace(Some(StoreError::Damaged(what)));
        refuse(messages);
    }
}

/// Answers none of these, nor what comes while this ends: a message whose sender was on its way when the receiver was dropped
/// would stay in the channel, and whoever asked would wait for as long as there is a handle to the store.
fn refuse(mut messages: mpsc::Receiver<Message>) {
    messages.close();
    while messages.blocking_recv().is_some() {}
}
