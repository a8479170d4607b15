//! A kind with its type erased, so that one queue and one loop serve all kinds.

use std::marker::PhantomData;

use async_trait::async_trait;
use serde_json::Value;
use skerry_workloads::{Kind, ObjectKind, Refusal, Report, StatusChange};

use super::{Engine, ResourceKey, pass, placing, queue::Ended};

/// What the engine asks of a kind.
#[async_trait]
pub(crate) trait Driver: Send + Sync {
    /// All kinds that have to be watched for it.
    fn watched(&self) -> Vec<ObjectKind>;

    /// The status fields that nodes report.
    fn reported(&self) -> &'static [&'static str];

    /// One pass over one resource.
    async fn pass(&self, engine: &Engine, key: &ResourceKey) -> Result<Ended, pass::Error>;

    /// Tells the hub what a resource places on nodes.
    fn place(&self, engine: &Engine, key: &ResourceKey);

    /// What a node's report about `resource` changes.
    fn report(&self, resource: &Value, report: &Report, now: jiff::Timestamp) -> Result<Vec<StatusChange>, Refused>;
}

/// Why a report is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// The kind refuses it for good.
    #[error(transparent)]
    ByKind(#[from] Refusal),
    /// The resource itself does not parse; it may be mended, so the report is kept.
    #[error("the resource does not parse: {0}")]
    Unparsable(#[from] serde_json::Error),
}

/// The driver of `K`.
pub(crate) struct Driven<K>(PhantomData<fn() -> K>);

impl<K> Driven<K> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

#[async_trait]
impl<K: Kind> Driver for Driven<K> {
    fn watched(&self) -> Vec<ObjectKind> {
        let mut kinds = vec![K::KIND, ObjectKind::MODEL, ObjectKind::DATASET, ObjectKind::SECRET];
        kinds.extend_from_slice(K::CHILDREN);
        if K::CHILDREN.contains(&ObjectKind::DEPLOYMENT) {
            // Why a Deployment is not available is written in its pods.
            kinds.push(ObjectKind::POD);
        }
        kinds
    }

    fn reported(&self) -> &'static [&'static str] {
        K::REPORTED
    }

    async fn pass(&self, engine: &Engine, key: &ResourceKey) -> Result<Ended, pass::Error> {
        pass::pass::<K>(engine, key).await
    }

    fn place(&self, engine: &Engine, key: &ResourceKey) {
        placing::place::<K>(engine, key);
    }

    fn report(&self, resource: &Value, report: &Report, now: jiff::Timestamp) -> Result<Vec<StatusChange>, Refused> {
        let resource: K = serde_json::from_value(resource.clone())?;
        Ok(resource.report(report, now)?)
    }
}
