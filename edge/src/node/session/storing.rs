//! What is asked of the store and of the outbox, and what comes of it.
//!
//! Decides that one batch is stored at a time, and acknowledged when it is durable.

use std::time::Duration;

use super::{Connection, Phase, Session, Stage};
use crate::{
    digest,
    message::Upstream,
    node::{Batch, Output},
    object::Row,
    position::Position,
};

impl Session {
    pub(super) fn stored(&mut self, now: Duration, holds: u64, out: &mut Vec<Output>) {
        self.holds = holds;
        let Some(position) = self.storing.take() else { return };
        // No session comes up while something is being stored, so it came in over this one.
        if self.is_live() {
            out.push(Output::Send(Upstream::Ack {
                version: position.version,
            }));
        }
        if let Some(before) = &self.position {
            self.retired.supersede(now, &before.epoch, &position.epoch);
        }
        self.position = Some(position);
    }

    pub(super) fn rows(&mut self, rows: &[Row], out: &mut Vec<Output>) {
        let Some(read_for) = std::mem::replace(&mut self.reading_rows, false).then_some(&self.phase) else {
            return;
        };
        if let Phase::Connected(Connection {
            stage: Stage::Digesting {
                chunks, asked: true, ..
            },
            ..
        }) = read_for
        {
            out.extend(digest::answer(chunks, rows).into_iter().map(Output::Send));
        }
    }

    /// Asks for whatever can be asked for now.
    pub(super) fn pump(&mut self, now: Duration, out: &mut Vec<Output>) {
        let Phase::Connected(Connection { stage, .. }) = &mut self.phase else {
            return;
        };
        match stage {
            Stage::Greeting { .. } => {}
            Stage::Digesting { asked, .. } => {
                if !*asked && !self.reading_rows {
                    *asked = true;
                    self.reading_rows = true;
                    out.push(Output::ReadRows);
                }
            }
            Stage::Live { base, inbox, .. } => {
                if self.storing.is_none()
                    && let Some((version, changes)) = inbox.batch()
                {
                    let position = Position {
                        version,
                        ..base.clone()
                    };
                    self.storing = Some(position.clone());
                    out.push(Output::Store(Batch { changes, position }));
                }
                out.extend(self.outbox.want(now).map(Output::Fetch));
            }
        }
    }
}
