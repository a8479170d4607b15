//! What the manager counts, and how it is exposed.

use std::{fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _, text::encode},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::{ConstGauge, Gauge},
        histogram::Histogram,
    },
    registry::Registry,
};

use crate::{
    engine::Ended,
    hub::{Hub, Snapshot},
};

/// Upper bounds, in seconds, of the buckets for passes: from a pass over the cache alone to one at its time-out.
const PASS_SECONDS: [f64; 9] = [0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 20.0, 60.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Pass {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Failed {
    kind: &'static str,
    category: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Watched {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    verb: String,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Asked {
    asked: &'static str,
    outcome: &'static str,
}

/// The manager's counters. Cheap to share; encoded on demand.
pub struct Metrics {
    registry: Mutex<Registry>,
    passes: Family<Pass, Counter>,
    pass_seconds: Histogram,
    failures: Family<Failed, Counter>,
    watch_failures: Family<Watched, Counter>,
    queue_depth: Gauge,
    calls: Family<Call, Counter>,
    leader: Gauge,
    certificates: Family<Asked, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("skerry");
        let metrics = Self {
            registry: Mutex::default(),
            passes: Family::default(),
            pass_seconds: Histogram::new(PASS_SECONDS),
            failures: Family::default(),
            watch_failures: Family::default(),
            queue_depth: Gauge::default(),
            calls: Family::default(),
            leader: Gauge::default(),
            certificates: Family::default(),
        };
        registry.register(
            "reconciles",
            "Passes over resources, by outcome",
            metrics.passes.clone(),
        );
        registry.register(
            "reconcile_seconds",
            "How long passes took",
            metrics.pass_seconds.clone(),
        );
        registry.register(
            "reconcile_errors",
            "Passes that failed, by category",
            metrics.failures.clone(),
        );
        registry.register(
            "watch_errors",
            "Watches that failed and were tried again",
            metrics.watch_failures.clone(),
        );
        registry.register(
            "queue_depth",
            "Resources that wait for a pass",
            metrics.queue_depth.clone(),
        );
        registry.register(
            "api_requests",
            "Requests to the API server, by verb and code",
            metrics.calls.clone(),
        );
        registry.register(
            "edge_certificates_asked_for",
            "What nodes asked for and got: join or renew; issued, not due, refused or failed",
            metrics.certificates.clone(),
        );
        registry.register("leader", "1 where this process holds the lease", metrics.leader.clone());
        *metrics.registry.lock() = registry;
        metrics
    }
}

impl Metrics {
    /// New counters, at zero.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A node asked to `join` or to `renew`.
    pub(crate) fn certificate_asked_for(&self, asked: &'static str, outcome: &'static str) {
        self.certificates.get_or_create(&Asked { asked, outcome }).inc();
    }

    /// A pass ended.
    pub(crate) fn reconciled(&self, kind: &'static str, outcome: Ended, took: Duration) {
        self.passes
            .get_or_create(&Pass {
                kind,
                outcome: outcome.word(),
            })
            .inc();
        self.pass_seconds.observe(took.as_secs_f64());
    }

    /// A pass failed.
    pub(crate) fn failed(&self, kind: &'static str, category: &'static str) {
        self.failures.get_or_create(&Failed { kind, category }).inc();
    }

    /// A watch failed.
    pub(crate) fn watch_failed(&self, kind: &'static str) {
        self.watch_failures.get_or_create(&Watched { kind }).inc();
    }

    /// How many resources wait.
    pub(crate) fn queue_depth(&self, depth: usize) {
        self.queue_depth.set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    /// A request was answered; code 0 stands for no answer.
    pub(crate) fn called(&self, verb: &str, code: u16) {
        self.calls
            .get_or_create(&Call {
                verb: verb.to_owned(),
                code,
            })
            .inc();
    }

    /// Whether this process holds the lease.
    pub(crate) fn leads(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// Exposes what the hub counts, read when it is asked for.
    pub fn count_hub(&self, hub: Hub) {
        self.registry.lock().register_collector(Box::new(HubCounts(hub)));
    }

    /// All counters in the OpenMetrics text format.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing into a string does not fail.
        let _ = encode(&mut text, &self.registry.lock());
        text
    }
}

/// The hub's numbers as metrics.
struct HubCounts(Hub);

impl fmt::Debug for HubCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HubCounts")
    }
}

impl Collector for HubCounts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counted = self.0.snapshot();
        let now = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let gauges = [
            ("edge_sessions", "Nodes that are connected", now(counted.sessions)),
            (
                "edge_connections_unproven",
                "Connections that have proven nothing",
                now(counted.unproven),
            ),
            ("edge_nodes", "Nodes of which there is state", now(counted.nodes)),
            (
                "edge_objects_assigned",
                "Items that nodes should hold",
                now(counted.assigned),
            ),
            (
                "edge_objects_unacked",
                "Changes that nodes have not acknowledged",
                now(counted.unacked),
            ),
            (
                "edge_lag_seconds",
                "Age of the oldest change that a connected node has not acknowledged",
                counted
                    .lag
                    .map_or(0, |lag| i64::try_from(lag.as_secs()).unwrap_or(i64::MAX)),
            ),
        ];
        for (name, help, value) in gauges {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(metric)?;
        }
        let counters = [
            (
                "edge_connections",
                "Connections that were upgraded",
                counted.connections,
            ),
            ("edge_acks", "Changes that nodes have acknowledged", counted.acked),
            (
                "edge_reports_accepted",
                "Reports that are in the API server",
                counted.reports_accepted,
            ),
            (
                "edge_reports_refused",
                "Reports that were refused for good",
                counted.reports_refused,
            ),
            (
                "edge_reports_put_off",
                "Reports that nodes were told to send again",
                counted.reports_put_off,
            ),
            (
                "edge_reports_given_up",
                "Reports that were given up because an outbox was full, or they were too old",
                counted.reports_given_up,
            ),
            (
                "edge_oversize",
                "Objects that were too large for a node",
                counted.oversize,
            ),
            (
                "edge_unknown_frames",
                "Frames that were not known",
                counted.unknown_frames,
            ),
        ];
        for (name, help, value) in counters {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(value).encode(metric)?;
        }
        by_reason(counted, &mut encoder)
    }
}

/// What was refused or has ended, each with a word for why.
fn by_reason(counted: Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let counters = [
        (
            "edge_turned_away",
            "Connections that came to nothing before anything was read of them, by why",
            counted.turned_away,
        ),
        (
            "edge_refused",
            "Connections that became no session, by why",
            counted.refused,
        ),
        (
            "edge_ended",
            "Sessions that are over, by what ended them",
            counted.ended,
        ),
        (
            "edge_reports_denied",
            "Reports that their node may not make, by why",
            counted.reports_denied,
        ),
    ];
    for (name, help, values) in counters {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (reason, value) in values {
            ConstCounter::new(value).encode(metric.encode_family(&[("reason", reason)])?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_documented() {
        let documented = include_str!("../../docs/configuration.md");
        let metrics = Metrics::new();
        metrics.count_hub(Hub::default());
        let text = metrics.encode();
        let names: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next())
            .collect();
        assert!(names.len() > 15, "{text}");
        for name in names {
            assert!(
                documented.contains(&format!("`{name}`")),
                "{name} is not in docs/configuration.md"
            );
        }
    }
}
