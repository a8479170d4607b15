//! A kind with its type erased, so that one queue and one loop serve all kinds.

use std::marker::PhantomData;

use async_trait::async_trait;
use jiff::Timestamp;
use kube::core::object::HasStatus;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use skerry_workloads::{Kind, ObjectKind, Refusal, Report, StatusChange};

use super::{Engine, ResourceKey, pass, placing, queue::Ended};

/// What the engine asks of a kind.
#[async_trait]
pub(crate) trait Driver: Send + Sync {
    /// All kinds that have to be watched for it.
    fn watched(&self) -> Vec<ObjectKind>;

    /// What may follow for a resource from a change of its own or of an object that it made or names, or that belongs to
    /// one of these.
    fn follows(&self, of: ObjectKind, change: Change) -> Follows;

    /// The status fields that nodes report.
    fn reported(&self) -> &'static [&'static str];

    /// One pass over one resource.
    async fn pass(&self, engine: &Engine, key: &ResourceKey) -> Result<Ended, pass::Error>;

    /// Tells the hub what a resource places on nodes.
    fn place(&self, engine: &Engine, key: &ResourceKey);

    /// Reads `resource` for what nodes report about it.
    fn open(&self, resource: Value) -> Result<Box<dyn Open>, serde_json::Error>;
}

/// What has changed of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Anything.
    Any,
    /// Its status, and nothing else.
    Status,
    /// What a pass has written, and goes on with.
    Ours,
}

/// What may follow from a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follows {
    /// Other children.
    Children,
    /// No more than what is told of the resource, and what nodes hold of it.
    Told,
}

/// A resource that nodes report on.
pub(crate) trait Open {
    /// What a node's report changes, or why the kind refuses it for good.
    fn report(&self, report: &Report, now: Timestamp) -> Result<Vec<StatusChange>, Refusal>;

    /// Puts what was reported in the place of what was reported before.
    fn put(&mut self, news: &Map<String, Value>) -> Result<(), serde_json::Error>;
}

/// The driver of `K`.
pub(crate) struct Driven<K>(PhantomData<fn() -> K>);

impl<K> Driven<K> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

#[async_trait]
impl<K: Kind + HasStatus<Status: DeserializeOwned>> Driver for Driven<K> {
    fn watched(&self) -> Vec<ObjectKind> {
        let mut kinds = vec![K::KIND, ObjectKind::MODEL, ObjectKind::DATASET, ObjectKind::SECRET];
        kinds.extend_from_slice(K::CHILDREN);
        if K::CHILDREN.contains(&ObjectKind::DEPLOYMENT) {
            // Why a Deployment is not available is written in its pods.
            kinds.push(ObjectKind::POD);
        }
        kinds
    }

    fn follows(&self, of: ObjectKind, change: Change) -> Follows {
        let is_below = of == ObjectKind::POD && !K::CHILDREN.contains(&of);
        let decides = match change {
            Change::Any => !is_below,
            Change::Status | Change::Ours => K::DECIDED_BY.contains(&of),
        };
        if decides { Follows::Children } else { Follows::Told }
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

    fn open(&self, mut resource: Value) -> Result<Box<dyn Open>, serde_json::Error> {
        let typed = K::deserialize(&resource)?;
        let status = match resource.get_mut("status").map(Value::take) {
            Some(Value::Object(status)) => status,
            _ => Map::new(),
        };
        Ok(Box::new(Opened::<K> { typed, status }))
    }
}

/// A resource as its kind reads it, with its status as it is in the API server: a kind need not know all of that.
struct Opened<K> {
    typed: K,
    status: Map<String, Value>,
}

impl<K: Kind + HasStatus<Status: DeserializeOwned>> Open for Opened<K> {
    fn report(&self, report: &Report, now: Timestamp) -> Result<Vec<StatusChange>, Refusal> {
        self.typed.report(report, now)
    }

    fn put(&mut self, news: &Map<String, Value>) -> Result<(), serde_json::Error> {
        self.status.retain(|field, _| !K::REPORTED.contains(&field.as_str()));
        self.status.extend(news.clone());
        *self.typed.status_mut() = Some(Deserialize::deserialize(&self.status)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use skerry_crds::sedna::v1alpha1::{FederatedLearningJob, JointInferenceService};

    use super::*;

    #[test]
    fn only_that_gives_way_from_which_no_other_children_follow() {
        let (job, service) = (
            Driven::<FederatedLearningJob>::new(),
            Driven::<JointInferenceService>::new(),
        );
        for (driver, of, change, follows) in [
            // A trainer that has ended, and that this was recorded.
            (&job as &dyn Driver, ObjectKind::POD, Change::Status, Follows::Children),
            (&job, FederatedLearningJob::KIND, Change::Status, Follows::Children),
            // Trainers are made once the aggregator is.
            (&job, ObjectKind::POD, Change::Ours, Follows::Children),
            (&job, ObjectKind::SERVICE, Change::Ours, Follows::Told),
            (&job, ObjectKind::DATASET, Change::Any, Follows::Children),
            (&job, ObjectKind::DATASET, Change::Status, Follows::Told),
            (&service, ObjectKind::DEPLOYMENT, Change::Any, Follows::Children),
            (&service, ObjectKind::DEPLOYMENT, Change::Status, Follows::Told),
            // Those of its Deployments.
            (&service, ObjectKind::POD, Change::Any, Follows::Told),
        ] {
            assert_eq!(driver.follows(of, change), follows, "{} {change:?}", of.kind);
        }
    }
}
