//! What the local controller counts of itself, in the text format of `OpenMetrics`.

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

/// The counters and gauges, and the registry that names them.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Worker messages by what became of them.
    pub worker_messages: Family<Outcome, Counter>,
    /// Connections to the workers' port that were turned away, by why.
    pub connections_turned_away: Family<Outcome, Counter>,
    /// Reports that the manager has answered, by its answer.
    pub reports_settled: Family<Outcome, Counter>,
    /// Batches that the store could not take, by why.
    pub store_failures: Family<Outcome, Counter>,
    /// Looks at Datasets, whether there was something to read or not.
    pub datasets_looked_at: Counter,
    /// Files of Datasets that were read to their end.
    pub datasets_counted: Counter,
    /// Sessions with the manager that came up.
    pub sessions: Counter,
    /// Changes that came over the link and are stored.
    pub changes_stored: Counter,
    /// Messages of Sedna's own manager that were not taken, by why.
    pub messages_refused: Family<Outcome, Counter>,
    /// Whether a session is up.
    pub link_live: Gauge,
    /// Objects and credentials that the store holds.
    pub items: Gauge,
    /// Reports in the outbox that could be given up.
    pub outbox_reports: Gauge,
    /// Their bytes.
    pub outbox_bytes: Gauge,
    /// Damaged stores that lie beside the present one.
    pub stores_moved_aside: Gauge,
    /// How often the store was not as the node last had it: an old one was put back, most likely.
    pub store_out_of_step: Counter,
}

/// What became of something.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct Outcome {
    /// One word.
    pub outcome: &'static str,
}

impl Outcome {
    /// This outcome.
    pub const fn new(outcome: &'static str) -> Self {
        Self { outcome }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("skerry_localcontroller"),
            worker_messages: Family::default(),
            connections_turned_away: Family::default(),
            reports_settled: Family::default(),
            store_failures: Family::default(),
            datasets_looked_at: Counter::default(),
            datasets_counted: Counter::default(),
            sessions: Counter::default(),
            changes_stored: Counter::default(),
            messages_refused: Family::default(),
            link_live: Gauge::default(),
            items: Gauge::default(),
            outbox_reports: Gauge::default(),
            outbox_bytes: Gauge::default(),
            stores_moved_aside: Gauge::default(),
            store_out_of_step: Counter::default(),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let Self {
            registry,
            worker_messages,
            connections_turned_away,
            reports_settled,
            store_failures,
            datasets_looked_at,
            datasets_counted,
            sessions,
            changes_stored,
            messages_refused,
            link_live,
            items,
            outbox_reports,
            outbox_bytes,
            stores_moved_aside,
            store_out_of_step,
        } = self;
        registry.register("worker_messages", "Messages of workers", worker_messages.clone());
        registry.register(
            "connections_turned_away",
            "Connections to the workers' port that were turned away",
            connections_turned_away.clone(),
        );
        registry.register(
            "reports_settled",
            "Reports that the manager has answered",
            reports_settled.clone(),
        );
        registry.register(
            "store_failures",
            "What the store could not take",
            store_failures.clone(),
        );
        registry.register("datasets_looked_at", "Looks at Datasets", datasets_looked_at.clone());
        registry.register(
            "datasets_counted",
            "Files of Datasets that were read to their end",
            datasets_counted.clone(),
        );
        registry.register("sessions", "Sessions with the manager that came up", sessions.clone());
        registry.register(
            "changes_stored",
            "Changes that the manager sent",
            changes_stored.clone(),
        );
        registry.register(
            "messages_refused",
            "Messages of Sedna's own manager that were not taken",
            messages_refused.clone(),
        );
        registry.register(
            "link_live",
            "Whether a session with the manager is up",
            link_live.clone(),
        );
        registry.register("items", "Objects and credentials in the store", items.clone());
        registry.register(
            "stores_moved_aside",
            "Damaged stores that lie beside the present one",
            stores_moved_aside.clone(),
        );
        registry.register(
            "store_out_of_step",
            "How often the store was not as the node last had it",
            store_out_of_step.clone(),
        );
        registry.register("outbox_reports", "Reports in the outbox", outbox_reports.clone());
        registry.register_with_unit("outbox", "Reports in the outbox", Unit::Bytes, outbox_bytes.clone());
    }

    /// All of them, as text.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
