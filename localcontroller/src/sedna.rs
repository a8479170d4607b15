//! The link to Sedna's own manager: the store and the outbox as with ours, over what its protocol has.
//!
//! That manager acknowledges nothing and heeds no acknowledgement, so it is never left waiting in vain: a message that was
//! read is stored before the next one is, however long the store takes. A report leaves the outbox when the manager has
//! shown that it has read it ([`Receipts`]); what was sent and not shown to be read goes again over the next connection.

use std::{sync::Arc, time::Duration};

use skerry_edge::{
    Report, limits,
    link::Signals,
    message::Received,
    node::{Change, Outgoing, Reconnect, State},
    sedna::{
        client::{self, SednaSocket, Text},
        envelope::Envelope,
        holdings::Holdings,
        receipts::Receipts,
    },
    seldom::Seldom,
    transport::{Event, client::Dialer},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, sleep, sleep_until},
};

use crate::{
    link::log,
    metrics::{Metrics, Outcome},
    store::{Store, StoreError},
};

/// How long a manager may be silent that has reports of ours to read. It reads nothing while its one queue for all nodes is
/// full, a thousand long, and works that off at two or three a second: what is sent again then only makes it longer.
const BUSY: Duration = Duration::from_secs(300);

/// How long a store that failed is left alone.
const PAUSE: Duration = Duration::from_secs(5);

/// Runs the link until it is told to stop.
pub async fn run(
    node: String,
    dialer: impl Dialer,
    store: Store,
    metrics: Arc<Metrics>,
    signals: Signals,
) -> Result<(), StoreError> {
    let mut link = Link {
        holdings: Holdings::new(store.rows().await?),
        receipts: Receipts::default(),
        store,
        metrics: metrics.clone(),
        signals: signals.clone(),
        refused: Seldom::default(),
    };
    let log = tokio::spawn(log(signals.clone(), metrics));
    let ended = link.dial_on(&node, &dialer).await;
    log.abort();
    ended
}

/// Why a connection is over.
enum Over {
    /// This node ends.
    Told,
    /// This has come between.
    Because(String),
}

struct Link {
    holdings: Holdings,
    receipts: Receipts,
    store: Store,
    metrics: Arc<Metrics>,
    signals: Signals,
    refused: Seldom,
}

impl Link {
    async fn dial_on<D: Dialer>(&mut self, node: &str, dialer: &D) -> Result<(), StoreError> {
        let (origin, stop) = (Instant::now(), self.signals.stop.clone());
        let mut reconnect = Reconnect::default();
        loop {
            self.signals.state.send_replace(State::Connecting);
            let connected = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                connected = client::connect(dialer, node) => connected,
            };
            let (lasted, cause) = match connected {
                Ok(mut socket) => {
                    let since = Instant::now();
                    self.signals.state.send_replace(State::Live);
                    let over = self.serve(&mut socket).await?;
                    self.signals.state.send_replace(State::Connecting);
                    socket.close().await;
                    match over {
                        Over::Told => return Ok(()),
                        Over::Because(cause) => (Some(since.elapsed()), cause),
                    }
                }
                Err(error) => (None, error.to_string()),
            };
            let wait = reconnect.next(lasted, rand::random());
            self.signals.state.send_replace(State::Waiting {
                until: origin.elapsed() + wait,
                cause: Some(cause),
            });
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = sleep(wait) => {}
            }
        }
    }

    /// Serves one connection to its end.
    async fn serve<Io>(&mut self, socket: &mut SednaSocket<Io>) -> Result<Over, StoreError>
    where
        Io: AsyncRead + AsyncWrite + Unpin,
    {
        let Signals { outbox, stop, .. } = self.signals.clone();
        self.receipts.connected();
        let mut heard = Instant::now();
        let mut ping_at = heard + limits::PING_AFTER;
        loop {
            if let Err(error) = self.send(socket).await {
                self.failed(&error)?;
                return Ok(Over::Because(format!("the store failed: {error}")));
            }
            let event = tokio::select! {
                // Each of the first is ready only now and then, so the connection has its turn.
                biased;
                () = stop.cancelled() => return Ok(Over::Told),
                () = outbox.notified() => {
                    self.receipts.grew();
                    continue;
                }
                () = sleep_until(ping_at) => {
                    let patience = if self.receipts.waits() { BUSY } else { limits::IDLE };
                    if heard.elapsed() >= patience {
                        return Ok(Over::Because("the manager has fallen silent".to_owned()));
                    }
                    ping_at = Instant::now() + limits::PING_AFTER;
                    socket.ping_marked(self.receipts.mark());
                    continue;
                }
                event = socket.next() => event,
            };
            match event {
                Ok(Event::Frame(Ok(Received::Message(Text(text))))) => {
                    if !self.take(&text).await? {
                        return Ok(Over::Told);
                    }
                }
                Ok(Event::Frame(Err(breach))) => {
                    self.refuse("form", &breach);
                    return Ok(Over::Because(breach.to_string()));
                }
                Ok(Event::Pong(Some(mark))) => self.read_to(mark).await?,
                Ok(Event::Frame(Ok(Received::Unknown(_))) | Event::Heard | Event::Pong(None)) => {}
                Err(ended) => return Ok(Over::Because(ended.to_string())),
            }
            // What took long was our own store, not the manager.
            heard = Instant::now();
        }
    }

    /// Sends what may be sent of the outbox, and asks whether it was read.
    async fn send<Io>(&mut self, socket: &mut SednaSocket<Io>) -> Result<(), StoreError>
    where
        Io: AsyncRead + AsyncWrite + Unpin,
    {
        while let Some((after, limit)) = self.receipts.want() {
            let outgoing = self.store.fetch_homeless_too(after, limit).await?;
            if outgoing.is_empty() {
                self.receipts.exhausted();
            }
            let mut asked = false;
            for outgoing in outgoing {
                let seq = outgoing.seq();
                match self.word_of(&outgoing) {
                    Ok(envelope) => {
                        socket.send(Text(envelope.encode()));
                        self.receipts.passed(seq, true);
                        asked = true;
                    }
                    Err(outcome) => {
                        self.receipts.passed(seq, false);
                        self.settle(seq, outcome).await?;
                    }
                }
            }
            if asked {
                socket.ping_marked(self.receipts.mark());
            }
        }
        Ok(())
    }

    /// How the manager is told this; or a word for why it is not.
    fn word_of(&self, outgoing: &Outgoing) -> Result<Envelope, &'static str> {
        let report = match outgoing {
            Outgoing::Report(report) => report,
            Outgoing::Gap { count, .. } => {
                tracing::warn!(count, "reports were given up because the outbox was full");
                return Err("given_up");
            }
        };
        let Report { key, uid, .. } = report;
        // The manager goes by names. What was said of a resource that was since deleted and made again is not of this one.
        if !uid.is_empty() && self.holdings.uid(key).is_some_and(|held| held != uid) {
            return Err("outdated");
        }
        Envelope::status(report).ok_or_else(|| {
            tracing::warn!(%key, ?report.payload, "Sedna's manager has no word for this, so it is not told");
            "unsaid"
        })
    }

    /// The manager has read what was sent up to here.
    async fn read_to(&mut self, mark: u64) -> Result<(), StoreError> {
        for seq in self.receipts.answered(mark) {
            self.settle(seq, "read").await?;
        }
        Ok(())
    }

    async fn settle(&self, seq: u64, outcome: &'static str) -> Result<(), StoreError> {
        self.metrics.reports_settled.get_or_create(&Outcome::new(outcome)).inc();
        let settled = self.store.settle(seq).await?;
        tokio::spawn(async move {
            if let Err(error) = settled.await {
                // It is sent again over the next connection.
                tracing::warn!(seq, %error, "a report that was read could not be removed from the outbox");
            }
        });
        Ok(())
    }

    /// Takes what the manager says; false where this node ended before it could be stored.
    async fn take(&mut self, text: &str) -> Result<bool, StoreError> {
        let told = match Envelope::decode(text).and_then(|envelope| envelope.told()) {
            Ok(told) => told,
            Err(error) => {
                self.refuse(error.word(), &error);
                return Ok(true);
            }
        };
        let changes = match self.holdings.changes(told) {
            Ok(changes) => changes,
            Err(full) => {
                self.refuse("full", &full);
                return Ok(true);
            }
        };
        let stored = changes.is_empty() || self.store_all(&changes).await?;
        if stored {
            self.holdings.stored(&changes);
        }
        Ok(stored)
    }

    /// Stores this, however long it takes, and reads nothing more until then: it may not be told again. False where this node
    /// ended before.
    async fn store_all(&self, changes: &[Change]) -> Result<bool, StoreError> {
        loop {
            match self.store.apply_uncounted(changes.to_vec()).await {
                Ok(_) => {
                    self.metrics.changes_stored.inc_by(changes.len() as u64);
                    return Ok(true);
                }
                Err(error) => self.failed(&error)?,
            }
            tokio::select! {
                () = self.signals.stop.cancelled() => return Ok(false),
                () = sleep(PAUSE) => {}
            }
        }
    }

    /// Counts what the store could not do; an error where it never will.
    fn failed(&self, error: &StoreError) -> Result<(), StoreError> {
        tracing::error!(%error, "the link cannot use the store");
        let outcome = Outcome::new(error.category());
        self.metrics.store_failures.get_or_create(&outcome).inc();
        if error.is_final() { Err(error.clone()) } else { Ok(()) }
    }

    fn refuse(&self, word: &'static str, why: &dyn std::fmt::Display) {
        self.metrics.messages_refused.get_or_create(&Outcome::new(word)).inc();
        if let Some(left_out) = self.refused.line() {
            tracing::warn!(%why, left_out, "a message of the manager is not taken");
        }
    }
}

#[cfg(test)]
mod tests;
