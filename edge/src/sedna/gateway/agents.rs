//! The agents that are connected, and for a time those that were.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::super::agent::Agent;

/// Between the beginnings of two connections of a node: as long as an agent that is sent away waits until it dials again. One
/// that was let in dials again at once, and two that have one name would take each other's place as fast as they can.
const APART: Duration = Duration::from_secs(5);

/// How long an agent that has gone is remembered: over a night without the site's link. One that comes later is told
/// everything as if it were new, and may hold what was deleted meanwhile until it is restarted.
pub(super) const REMEMBERED: Duration = Duration::from_secs(12 * 60 * 60);

/// The agents, by node. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Agents(Arc<Mutex<HashMap<String, Arc<Entry>>>>);

#[derive(Debug)]
pub(super) struct Entry {
    state: Mutex<Turn>,
    /// Notified when there is room for another report.
    pub(super) room: Notify,
}

/// An agent, and which of its connections is the present one.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) agent: Agent,
    pub(super) number: u64,
    began: Instant,
    /// Since when it has been gone.
    gone: Option<Instant>,
}

impl Agents {
    /// Whether an agent of this node has connected a moment ago, so that none may now.
    pub fn just_connected(&self, node: &str) -> bool {
        let agents = self.lock();
        agents
            .get(node)
            .is_some_and(|entry| Instant::now() < entry.lock().began + APART)
    }

    pub(super) fn connected(&self, node: &str) -> (Arc<Entry>, u64) {
        let mut agents = self.lock();
        // Whenever one comes is often enough: what is kept of all is bounded.
        let now = Instant::now();
        agents.retain(|_, entry| entry.lock().gone.is_none_or(|gone| now < gone + REMEMBERED));
        let entry = agents
            .entry(node.to_owned())
            .or_insert_with(|| {
                let agent = Agent::new(format!("{:032x}", rand::random::<u128>()));
                Arc::new(Entry {
                    state: Mutex::new(Turn {
                        agent,
                        number: 0,
                        began: now,
                        gone: None,
                    }),
                    room: Notify::new(),
                })
            })
            .clone();
        let mut state = entry.lock();
        state.number += 1;
        state.began = now;
        state.gone = None;
        state.agent.connected();
        let turn = state.number;
        drop(state);
        (entry, turn)
    }

    pub(super) fn disconnected(&self, node: &str, turn: u64) {
        let mut agents = self.lock();
        let Some(entry) = agents.get(node) else { return };
        let mut state = entry.lock();
        if state.number != turn {
            return;
        }
        let forget = !state.agent.disconnected();
        state.gone = Some(Instant::now());
        drop(state);
        if forget {
            agents.remove(node);
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Entry>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    pub(super) fn lock(&self) -> MutexGuard<'_, Turn> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
