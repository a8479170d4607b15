//! What the manager says.
//!
//! Decides which manager is listened to, and which frame may come when.

use std::time::Duration;

use super::{
    super::{inbox::Inbox, store::Change},
    Closing, Connection, Phase, Session, Stage,
};
use crate::{
    limits,
    message::{Downstream, MessageError, Received, RefusedReason, Start},
    node::Output,
    position::{Epoch, Fenced, Position, Standing},
};

impl Session {
    pub(super) fn frame(
        &mut self,
        now: Duration,
        frame: Result<Received<Downstream>, MessageError>,
        out: &mut Vec<Output>,
    ) -> Result<(), Closing> {
        self.heard(now);
        let Phase::Connected(Connection { stage, .. }) = &mut self.phase else {
            return Ok(());
        };
        let known = frame.map_err(|error| Closing::violation(error.to_string()))?.known();
        let Some(message) = known else {
            self.unknown += 1;
            return Ok(());
        };
        match (message, stage) {
            (
                Downstream::Welcome {
                    cluster,
                    epoch,
                    start,
                    reports_per_second,
                },
                Stage::Greeting { .. },
            ) => {
                self.outbox.pace(reports_per_second);
                return self.welcome(now, &cluster, &epoch, start);
            }
            (Downstream::Synced { version }, Stage::Digesting { start, asked: true, .. }) if !self.reading_rows => {
                let mut inbox = Inbox::default();
                inbox.rebase(version);
                let base = start.clone();
                self.live(now, base, inbox);
            }
            (Downstream::Put { version, object }, Stage::Live { inbox, .. }) => {
                inbox.push(version, Change::Put(object)).map_err(Closing::violation)?;
            }
            (Downstream::PutCredential { version, credential }, Stage::Live { inbox, .. }) => {
                inbox
                    .push(version, Change::PutCredential(credential))
                    .map_err(Closing::violation)?;
            }
            (Downstream::Delete { version, key }, Stage::Live { inbox, .. }) => {
                inbox.push(version, Change::Delete(key)).map_err(Closing::violation)?;
            }
            (Downstream::ReportResult { seq, result }, Stage::Live { .. }) => {
                if self.outbox.answered(seq) {
                    out.push(Output::Settle { seq, result });
                }
            }
            (Downstream::ReportLater { seq, retry_after_ms }, Stage::Live { .. }) => {
                let (least, most) = limits::REPORT_RETRY;
                self.outbox
                    .later(seq, now + Duration::from_millis(retry_after_ms).clamp(least, most));
            }
            (Downstream::Restarting { reconnect_after_ms }, _) => {
                self.reconnect.after(Duration::from_millis(reconnect_after_ms));
                return Err(Closing::because("the manager asked to come back later"));
            }
            (Downstream::Replaced {}, _) => {
                self.reconnect.slowly();
                return Err(Closing::because("another session of this node's name has taken over"));
            }
            (Downstream::Refused { reason: _, hint }, _) => {
                self.reconnect.slowly();
                let hint: String = hint.chars().take(limits::HINT).collect();
                return Err(Closing::because(format!("the manager refused: {hint}")));
            }
            (message, _) => {
                return Err(Closing::violation(format!(
                    "a {} frame is out of place here",
                    message.name()
                )));
            }
        }
        Ok(())
    }

    fn welcome(&mut self, now: Duration, cluster: &str, epoch: &Epoch, start: Start) -> Result<(), Closing> {
        let standing = self.judge(now, cluster, epoch).map_err(|fenced| {
            self.reconnect.slowly();
            let reason = match fenced {
                Fenced::OtherCluster { .. } => RefusedReason::OtherCluster,
                Fenced::Deposed { .. } => RefusedReason::Deposed,
            };
            Closing {
                cause: fenced.to_string(),
                refuse: Some(reason),
            }
        })?;
        match (start, &self.position, standing) {
            (Start::Resume {}, Some(position), Some(Standing::Same)) => {
                let inbox = Inbox::starting_at(position.version);
                // The store may be of a node that did not remember when the Lease was made.
                let epoch = epoch.clone();
                let base = Position {
                    epoch,
                    ..position.clone()
                };
                self.live(now, base, inbox);
                Ok(())
            }
            (Start::Resume {}, ..) => Err(Closing::violation("a new epoch has to start with a digest")),
            (Start::Digest { chunks }, ..) if !chunks.len().is_power_of_two() || chunks.len() > limits::MAX_CHUNKS => {
                Err(Closing::violation(format!("a digest of {} chunks", chunks.len())))
            }
            (Start::Digest { chunks }, ..) => {
                let start = Position::start(cluster, epoch.clone());
                let until = now + limits::ACK_TIMEOUT;
                self.stage(Stage::Digesting {
                    start,
                    chunks,
                    until,
                    asked: false,
                });
                Ok(())
            }
        }
    }

    /// What the manager is to this node; none where the node belongs nowhere yet.
    fn judge(&mut self, now: Duration, cluster: &str, epoch: &Epoch) -> Result<Option<Standing>, Fenced> {
        let Some(position) = &self.position else {
            return Ok(None);
        };
        let standing = position.judge(cluster, epoch)?;
        if self.retired.hangs(now, &position.epoch, epoch) {
            return Err(Fenced::Deposed {
                ours: position.epoch.clone(),
                theirs: epoch.clone(),
            });
        }
        Ok(Some(standing))
    }

    fn live(&mut self, now: Duration, base: Position, inbox: Inbox) {
        self.outbox.open();
        // Not at once: a session that goes on where the last one ended is to cost two messages.
        self.weigh_at = now + limits::OUTBOX_EVERY;
        self.told = None;
        self.stage(Stage::Live {
            base,
            inbox,
            since: now,
        });
    }

    fn stage(&mut self, stage: Stage) {
        if let Phase::Connected(connection) = &mut self.phase {
            connection.stage = stage;
        }
    }
}
