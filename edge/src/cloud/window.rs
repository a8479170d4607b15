//! What is in flight to a node: sent and not acknowledged.

use std::{collections::VecDeque, time::Duration};

use crate::{limits, message::Downstream};

/// The window of one connection.
#[derive(Debug)]
pub(super) struct Window {
    /// How many changes may be in flight.
    frames: usize,
    sent: u64,
    in_flight: VecDeque<Sent>,
    bytes: usize,
    /// When a change was last acknowledged.
    acked_at: Duration,
}

#[derive(Debug)]
struct Sent {
    version: u64,
    bytes: usize,
    at: Duration,
}

impl Window {
    /// Nothing in flight to a node that said how many changes it takes, and stands at `version`.
    pub(super) fn of(said: Option<u32>, version: u64) -> Self {
        let frames = said.unwrap_or(limits::WINDOW_UNSAID).clamp(1, limits::WINDOW_FRAMES);
        Self {
            frames: frames as usize,
            sent: version,
            in_flight: VecDeque::new(),
            bytes: 0,
            acked_at: Duration::ZERO,
        }
    }

    /// The last version sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether this frame may go now. One that is larger than the window goes alone.
    pub(super) fn has_room_for(&self, frame: &Downstream) -> bool {
        self.in_flight.len() < self.frames
            && (self.in_flight.is_empty() || self.bytes + size(frame) <= limits::WINDOW_BYTES)
    }

    /// This frame goes.
    pub(super) fn push(&mut self, now: Duration, version: u64, frame: &Downstream) {
        let bytes = size(frame);
        self.sent = version;
        self.bytes += bytes;
        self.in_flight.push_back(Sent {
            version,
            bytes,
            at: now,
        });
    }

    /// Every version up to this one was acknowledged; false where it was never sent.
    pub(super) fn ack(&mut self, now: Duration, version: u64) -> bool {
        while let Some(first) = self.in_flight.front().filter(|first| first.version <= version) {
            self.bytes -= first.bytes;
            self.acked_at = now;
            self.in_flight.pop_front();
        }
        if self.in_flight.is_empty() {
            // An idle connection keeps no memory of a busy time.
            self.in_flight = VecDeque::new();
        }
        version <= self.sent
    }

    /// When the wait for the next acknowledgement is over. A window takes its time over a slow link: who acknowledges one
    /// change after the other is not stuck.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let since = self.in_flight.front()?.at.max(self.acked_at);
        Some(since + limits::ACK_TIMEOUT)
    }
}

/// What a frame costs of the window, in bytes: its content, as the node counts it.
fn size(frame: &Downstream) -> usize {
    match frame {
        Downstream::Put { object, .. } => object.body.json().len(),
        Downstream::PutCredential { credential, .. } => credential.size(),
        _ => 0,
    }
}
