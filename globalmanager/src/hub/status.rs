//! What operators see of the hub.

use std::{collections::BTreeMap, sync::atomic::Ordering::Relaxed, time::Duration};

use serde::{Deserialize, Serialize};
use skerry_edge::message::OutboxDepth;

use super::Hub;

/// The hub in numbers; totals since the process began where nothing else is said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Nodes that are connected now.
    pub sessions: usize,
    /// Nodes of which there is state now.
    pub nodes: usize,
    /// Items that nodes should hold now.
    pub assigned: usize,
    /// Changes that nodes have not acknowledged now.
    pub unacked: usize,
    /// How long the oldest of those has waited, where its node is connected.
    pub lag: Option<Duration>,
    /// Connections that were upgraded.
    pub connections: u64,
    /// Connections that are there now and have proven nothing.
    pub unproven: usize,
    /// Connections that were turned away before anything was read of them, by why.
    pub turned_away: BTreeMap<&'static str, u64>,
    /// Connections that became no session, by why.
    pub refused: BTreeMap<&'static str, u64>,
    /// Sessions that are over, by what ended them.
    pub ended: BTreeMap<&'static str, u64>,
    /// Frames that we did not know.
    pub unknown_frames: u64,
    /// Changes that nodes have acknowledged.
    pub acked: u64,
    /// The longest that a change took to be acknowledged.
    pub slowest_ack: Duration,
    /// Reports that are in the API server.
    pub reports_accepted: u64,
    /// Reports that were refused for good.
    pub reports_refused: u64,
    /// Reports that their node may not make, by why.
    pub reports_denied: BTreeMap<&'static str, u64>,
    /// Answers that told a node to send a report again.
    pub reports_put_off: u64,
    /// Reports that nodes gave up because their outbox was full, or they were too old.
    pub reports_given_up: u64,
    /// Objects that were too large for a node.
    pub oversize: u64,
}

/// One node as the hub sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// For how long it has been connected; none where it is not.
    pub connected: Option<Duration>,
    /// The version of its local controller, as of its present connection.
    pub agent: Option<String>,
    /// Items that it should hold.
    pub assigned: usize,
    /// Changes that it has not acknowledged, deletions included.
    pub unacked: usize,
    /// For how long the oldest of those has waited.
    pub oldest_unacked: Option<Duration>,
    /// Items that it holds in excess, and that may not be deleted yet.
    pub strays: usize,
    /// Credentials that its connection may not carry.
    pub withheld: usize,
    /// What waits in its outbox; nothing of one that is not connected, or does not tell.
    pub outbox: Option<OutboxDepth>,
    /// From a ping to its answer, over its present connection.
    pub round_trip: Option<Duration>,
}

impl Hub {
    /// The hub in numbers.
    pub fn snapshot(&self) -> Snapshot {
        let now = self.now();
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);
        let counters = &self.shared.counters;
        let state = self.shared.state.lock();
        let mut snapshot = Snapshot {
            sessions: state.connected.len(),
            connections: load(&counters.connections),
            unproven: self.shared.doors.present().0,
            turned_away: self.shared.doors.turned(),
            refused: counters.refused.read(),
            ended: counters.ended.read(),
            reports_denied: counters.reports_denied.read(),
            unknown_frames: load(&counters.unknown_frames),
            acked: load(&counters.acked),
            slowest_ack: Duration::from_millis(load(&counters.slowest_ack_ms)),
            reports_accepted: load(&counters.reports_accepted),
            reports_refused: load(&counters.reports_refused),
            reports_put_off: load(&counters.reports_put_off),
            reports_given_up: load(&counters.reports_given_up),
            oversize: load(&counters.oversize),
            ..Snapshot::default()
        };
        for (name, node) in state.placements.nodes() {
            let counts = node.objects.counts();
            snapshot.nodes += 1;
            snapshot.assigned += counts.assigned;
            snapshot.unacked += counts.unacked;
            if state.connected.contains_key(name) {
                snapshot.lag = snapshot
                    .lag
                    .max(node.objects.oldest_unacked().map(|since| now.saturating_sub(since)));
            }
        }
        snapshot
    }

    /// All nodes of which there is state, by name.
    pub fn nodes(&self) -> Vec<NodeStatus> {
        let now = self.now();
        let state = self.shared.state.lock();
        let status = |(name, node): (&super::NodeName, &skerry_edge::cloud::Node)| {
            let connected = state.connected.get(name);
            let counts = node.objects.counts();
            NodeStatus {
                name: name.to_string(),
                connected: connected.map(|connected| now.saturating_sub(connected.since)),
                agent: connected.map(|connected| connected.agent.clone()),
                assigned: counts.assigned,
                unacked: counts.unacked,
                oldest_unacked: node.objects.oldest_unacked().map(|since| now.saturating_sub(since)),
                strays: counts.strays,
                withheld: counts.withheld,
                outbox: connected.and(node.link.outbox),
                round_trip: connected.and(node.link.round_trip),
            }
        };
        let mut nodes: Vec<_> = state.placements.nodes().map(status).collect();
        nodes.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        nodes
    }
}
