//! The one connection: dialled, delivered in steps, cut, and its last frame sent twice.

use std::collections::VecDeque;

use skerry_edge::{
    Downstream, Upstream,
    message::Received,
    node::{Input, State},
};

use super::{super::Who, World};

pub(super) struct Connection {
    pub(super) manager: usize,
    pub(super) number: u64,
    pub(super) down: VecDeque<String>,
    pub(super) up: VecDeque<String>,
    pub(super) last_down: Option<String>,
    /// The manager has closed it: when all has arrived, the node notices.
    pub(super) closed: bool,
}

/// What is under way on a connection that the node has given up and its manager has not.
pub(super) struct Late {
    manager: usize,
    number: u64,
    up: VecDeque<String>,
}

impl World {
    /// The node dials, in its time.
    pub(super) fn dial(&mut self, who: Who) {
        if let (State::Waiting { .. }, Some(at)) = (self.session.state(), self.session.wake_at()) {
            self.wait(at.saturating_sub(self.now));
        }
        self.connect(who);
    }

    pub(super) fn flow(&mut self) {
        self.dial(Who::Present);
        (0..50).for_each(|_| self.deliver_up());
        (0..50).for_each(|_| self.deliver_down());
        (0..50).for_each(|_| self.work());
    }

    fn connect(&mut self, who: Who) {
        if !std::mem::take(&mut self.dialling) {
            return;
        }
        let ours = self.managers.len() - 1;
        let manager = match who {
            // A node that belongs nowhere yet would join them, as it should.
            Who::OtherCluster if self.disk.position.is_some() => 0,
            Who::Deposed(which) => {
                let deposed = 1 + usize::from(which) % ours;
                if self.would_know(deposed) { deposed } else { ours }
            }
            Who::Present | Who::OtherCluster => ours,
        };
        let number = self.connections;
        self.connections += 1;
        let (down, up) = (VecDeque::new(), VecDeque::new());
        self.connection = Some(Connection {
            manager,
            number,
            down,
            up,
            last_down: None,
            closed: false,
        });
        self.node(Input::Connected);
    }

    /// Whether the node can tell that a manager is deposed.
    fn would_know(&self, manager: usize) -> bool {
        let epoch = self.managers.get(manager).map(|manager| &manager.server.epoch);
        let at = self.disk.position.as_ref().zip(epoch);
        at.is_none_or(|(at, epoch)| self.knows(at, epoch))
    }

    pub(super) fn deliver_down(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        if let Some(text) = connection.down.pop_front() {
            let first = connection.last_down.replace(text.clone()).is_none();
            let frame = Downstream::decode(&text);
            if let (true, Ok(Received::Message(Downstream::Welcome { epoch, .. }))) = (first, &frame) {
                self.meet(epoch);
            }
            self.node(Input::Frame(frame));
        } else if connection.closed {
            self.cut(true);
        }
    }

    pub(super) fn deliver_up(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        let (at, number) = (connection.manager, connection.number);
        let Some(text) = connection.up.pop_front().filter(|_| !connection.closed) else {
            return;
        };
        if let Ok(Received::Message(Upstream::Ack { version })) = Upstream::decode(&text) {
            self.managers[at].acked = version;
        }
        let effects = self.managers[at].frame(self.now, number, &text);
        self.effects(effects);
        self.wake_managers();
    }

    pub(super) fn deliver_last(&mut self) {
        while self
            .connection
            .as_ref()
            .is_some_and(|connection| !connection.up.is_empty() && !connection.closed)
        {
            self.deliver_up();
        }
        if let Some(Connection { manager, number, .. }) = self.connection.take() {
            self.managers[manager].ended(number);
        }
    }

    pub(super) fn cut(&mut self, noticed: bool) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        if noticed {
            self.managers[connection.manager].ended(connection.number);
        } else {
            self.late(connection);
        }
        self.node(Input::Disconnected {
            jitter: 0.5,
            cause: "cut".to_owned(),
        });
    }

    /// What is under way may arrive yet.
    pub(super) fn late(&mut self, connection: Connection) {
        let Connection {
            manager, number, up, ..
        } = connection;
        self.late.push(Late { manager, number, up });
    }

    /// Some of it does.
    pub(super) fn deliver_late(&mut self, which: usize, frames: usize) {
        let Some(which) = which.checked_rem(self.late.len()) else {
            return;
        };
        let Late { manager, number, up } = &mut self.late[which];
        let (manager, number) = (*manager, *number);
        let frames: Vec<_> = up.drain(..frames.min(up.len())).collect();
        if up.is_empty() {
            self.late.remove(which);
        }
        for text in frames {
            if !self.managers[manager].late(self.now, number, &text) {
                self.late.retain(|late| late.number != number);
                break;
            }
            self.wake_managers();
        }
    }

    pub(super) fn replay(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.down.extend(connection.last_down.clone());
        }
    }
}
