//! The reports on their way from the durable outbox to the manager: which are to be read, which are in flight.
//!
//! ```text
//!   outbox ── read in order ─┬─▶ in flight ──▶ answered
//!                            └─ no share left, or put off ─▶ apart: the resource is read by itself from there
//! ```
//!
//! Decides that what is said of one resource never holds up what is said of another: the manager writes a resource at most
//! once a [`limits::STATUS_PACE`], so a resource of which much waits has a share of the window, and goes on from where it
//! was left; and the last places of the window are for resources of which nothing is in flight, however many are busy. What
//! is said of one resource stays in its order. All together go as fast as the manager has set ([`super::pace`]).

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use super::{
    pace::Pace,
    store::{Outgoing, Wanted},
};
use crate::{limits, message::Upstream, object::ObjectKey};

/// The places that are kept for resources of which nothing is in flight.
const RESERVE: usize = limits::REPORT_WINDOW - limits::REPORT_SHARE;

/// The window over the durable outbox.
#[derive(Debug, Default)]
pub(super) struct Window {
    in_flight: BTreeMap<u64, ObjectKey>,
    /// What the session before had in flight. It goes first and alone: of so many the manager remembers the answers.
    again: BTreeMap<u64, ObjectKey>,
    /// The first that was put off in sessions before. What was in flight behind it may have been answered since, and is not
    /// in flight again before all is read anew.
    put_off: Option<u64>,
    /// The last number read, of all resources.
    read_to: u64,
    reading: Option<Reading>,
    /// What was answered since that was asked for, and may have been read all the same.
    answered: BTreeSet<u64>,
    /// Whether the outbox may hold more than was read.
    more: bool,
    /// What is passed over where all is read; whatever waits longest is the first.
    apart: VecDeque<Apart>,
    /// Whether the last read was of one of these, so that neither they nor the others wait for ever.
    was_apart: bool,
    pace: Pace,
}

/// A resource that is read by itself.
#[derive(Debug)]
struct Apart {
    key: ObjectKey,
    /// All of its reports up to this number are in flight or answered.
    read_to: u64,
    /// When to read it again, because the manager could not carry one out yet.
    until: Option<Duration>,
}

impl Apart {
    /// The first that may be owed.
    fn first(&self) -> u64 {
        self.read_to.saturating_add(1)
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Reading {
    All,
    Of(ObjectKey),
    /// The session that asked is over: what comes is dropped, since earlier reports have to go first again.
    Stale,
}

impl Window {
    /// A session has come up: everything that the outbox holds is owed.
    pub(super) fn open(&mut self) {
        self.again.append(&mut self.in_flight);
        // What is behind one that was put off was put off as well, and goes after that one.
        let apart = std::mem::take(&mut self.apart);
        let behind = |seq: u64, key: &ObjectKey| apart.iter().any(|apart| apart.key == *key && apart.read_to < seq);
        self.again.retain(|seq, key| !behind(*seq, key));
        self.put_off = apart.iter().map(Apart::first).chain(self.put_off).min();
        self.read_to = self.again.keys().next().map_or(0, |first| first.saturating_sub(1));
        self.more = true;
        self.reading = self.reading.take().map(|_| Reading::Stale);
    }

    /// How many reports a second the manager takes over this session.
    pub(super) fn pace(&mut self, per_second: Option<u32>) {
        self.pace.set(per_second);
    }

    /// Something was put into the outbox.
    pub(super) fn grew(&mut self) {
        self.more = true;
    }

    /// What to read now, if anything.
    pub(super) fn want(&mut self, now: Duration) -> Option<Wanted> {
        if self.reading.is_some() {
            return None;
        }
        for apart in &mut self.apart {
            apart.until.take_if(|until| now >= *until);
        }
        let room = self.room().min(self.pace.left(now));
        if room == 0 {
            return None;
        }
        let ready = || {
            let mut apart = self.apart.iter().filter(|apart| apart.until.is_none());
            apart.find_map(|Apart { key, read_to, .. }| {
                let share = self.share_left(key);
                (share > 0).then(|| (key.clone(), *read_to, share))
            })
        };
        let turn = self.again.is_empty() && (!self.more || !self.was_apart);
        let ready = turn.then(ready).flatten();
        self.was_apart = ready.is_some();
        if let Some((key, after, share)) = ready {
            self.reading = Some(Reading::Of(key.clone()));
            let (of, limit) = (Some(key), share.min(room));
            return Some(Wanted { of, after, limit });
        }
        // Cleared before the outbox is read: what is put in meanwhile sets it again.
        std::mem::take(&mut self.more).then(|| {
            self.reading = Some(Reading::All);
            Wanted {
                of: None,
                after: self.read_to,
                limit: room,
            }
        })
    }

    /// Takes what was read; the frames to send.
    pub(super) fn read(&mut self, outgoing: Vec<Outgoing>) -> Vec<Upstream> {
        let answered = std::mem::take(&mut self.answered);
        let fresh = match self.reading.take() {
            Some(Reading::All) => self.read_all(outgoing, &answered),
            Some(Reading::Of(key)) => self.read_apart(&key, outgoing, &answered),
            Some(Reading::Stale) | None => Vec::new(),
        };
        self.pace.take(fresh.len());
        let settled = self.settled();
        fresh
            .into_iter()
            .map(|outgoing| {
                let after = self.last_before(&outgoing);
                outgoing.into_message(settled, after)
            })
            .collect()
    }

    /// The last on the same resource before this one that is in flight.
    fn last_before(&self, outgoing: &Outgoing) -> Option<u64> {
        let key = outgoing.key();
        let mut before = self.in_flight.range(..outgoing.seq()).rev();
        before.find(|(_, of)| **of == key).map(|(seq, _)| *seq)
    }

    /// Before which number everything has its answer.
    fn settled(&self) -> u64 {
        let sent = [&self.in_flight, &self.again].map(|sent| sent.keys().next().copied());
        let apart = self.apart.iter().map(Apart::first);
        let owed = sent.into_iter().flatten().chain(apart).chain(self.put_off);
        owed.min().unwrap_or_default()
    }

    fn read_all(&mut self, outgoing: Vec<Outgoing>, answered: &BTreeSet<u64>) -> Vec<Outgoing> {
        let again = !self.again.is_empty();
        if let Some(last) = outgoing.last() {
            // Whether there was more than was asked for is found out by asking again.
            self.more = true;
            self.read_to = self.read_to.max(last.seq());
        } else {
            self.again.clear();
        }
        // What goes again is read from wherever it begins.
        self.put_off
            .take_if(|first| !again && (outgoing.is_empty() || *first <= self.read_to));
        let fresh = outgoing
            .into_iter()
            .filter(|outgoing| {
                if again && self.again.remove(&outgoing.seq()).is_none() {
                    return false;
                }
                !answered.contains(&outgoing.seq()) && self.send(outgoing, again)
            })
            .collect();
        if again {
            // What is not there any more was replaced.
            self.again = self.again.split_off(&self.read_to.saturating_add(1));
            if self.again.is_empty() {
                self.read_to = 0;
                self.more = true;
            }
        }
        fresh
    }

    /// Whether this goes now. It has come in its turn among all. What goes again has its place already.
    fn send(&mut self, outgoing: &Outgoing, again: bool) -> bool {
        let (seq, key) = (outgoing.seq(), outgoing.key());
        if self.in_flight.contains_key(&seq) || self.apart.iter().any(|apart| apart.key == key) {
            return false;
        }
        if !again && self.share_left(&key) == 0 {
            let read_to = seq.saturating_sub(1);
            let until = None;
            self.apart.push_back(Apart { key, read_to, until });
            return false;
        }
        self.in_flight.insert(seq, key);
        true
    }

    fn read_apart(&mut self, key: &ObjectKey, mut outgoing: Vec<Outgoing>, answered: &BTreeSet<u64>) -> Vec<Outgoing> {
        let at = self.apart.iter().position(|apart| apart.key == *key);
        let Some(mut apart) = at.and_then(|at| self.apart.remove(at)) else {
            return Vec::new();
        };
        if apart.until.is_some() {
            // One before these was put off meanwhile.
            self.apart.push_back(apart);
            return Vec::new();
        }
        let Some(last) = outgoing.last() else {
            // What comes later is read with all others: its numbers are above all that were read.
            return Vec::new();
        };
        apart.read_to = last.seq();
        self.apart.push_back(apart);
        outgoing.retain(|outgoing| {
            let seq = outgoing.seq();
            !answered.contains(&seq) && self.in_flight.insert(seq, key.clone()).is_none()
        });
        outgoing
    }

    /// How many more of this resource may go now.
    fn share_left(&self, key: &ObjectKey) -> usize {
        let taken = self.in_flight.values().filter(|of| *of == key).count();
        let others = self.room().saturating_sub(RESERVE);
        let free = if taken == 0 { others.max(1) } else { others };
        limits::REPORT_SHARE.saturating_sub(taken).min(free).min(self.room())
    }

    fn room(&self) -> usize {
        limits::REPORT_WINDOW.saturating_sub(self.in_flight.len())
    }

    /// The outbox could not be read.
    pub(super) fn read_failed(&mut self) {
        self.reading = None;
        self.answered.clear();
        self.more = true;
    }

    /// Takes the answer to a report; false where the report was not in flight.
    pub(super) fn answered(&mut self, seq: u64) -> bool {
        let answered = self.in_flight.remove(&seq).is_some();
        if answered && self.reading.is_some() {
            self.answered.insert(seq);
        }
        answered
    }

    /// The manager could not carry out this report: it goes again at `at`, with all that is said of its resource after it,
    /// and does not hold up others until then.
    pub(super) fn later(&mut self, seq: u64, at: Duration) {
        let Some(key) = self.in_flight.remove(&seq) else {
            return;
        };
        let read_to = seq.saturating_sub(1);
        if let Some(apart) = self.apart.iter_mut().find(|apart| apart.key == key) {
            apart.read_to = apart.read_to.min(read_to);
            apart.until = Some(apart.until.map_or(at, |until| until.min(at)));
        } else {
            let until = Some(at);
            self.apart.push_back(Apart { key, read_to, until });
        }
    }

    /// When [`Window::want`] has to be asked again although nothing happened.
    pub(super) fn wake_at(&self) -> Option<Duration> {
        // What is being read comes first, and wakes us.
        let waiting = self.apart.iter().filter_map(|apart| apart.until);
        waiting
            .chain(self.pace.wake_at())
            .min()
            .filter(|_| self.reading.is_none())
    }
}

#[cfg(test)]
mod tests;
