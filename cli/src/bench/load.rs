//! What the bench declares: services and jobs as users write them, and how many children each has.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};
use skerry_workloads::{Child, Children, ObjectKind, Settings};
use tokio::time::Instant;

use super::children::Seen;
use crate::failure::Failure;

/// How much is declared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) services: u32,
    pub(super) jobs: u32,
}

impl Size {
    /// Twice as much.
    pub(super) fn doubled(self) -> Self {
        Self {
            services: self.services * 2,
            jobs: self.jobs * 2,
        }
    }
}

/// The kinds that are declared: their objects and everything that follows are awaited.
pub(super) const SERVICE: ObjectKind = ObjectKind::JOINT_INFERENCE_SERVICE;
pub(super) const JOB: ObjectKind = ObjectKind::FEDERATED_LEARNING_JOB;

/// How many children of each kind one resource has.
type Family = BTreeMap<ObjectKind, usize>;

/// The load of some namespaces: each has as much of it as any other, or one less.
pub(super) struct Load {
    pub(super) size: Size,
    namespaces: Vec<String>,
    cloud: String,
    edge: String,
}

impl Load {
    /// So much of it, in these namespaces, on these nodes.
    pub(super) fn new(size: Size, namespaces: Vec<String>, cloud: &str, edge: &str) -> Self {
        Self {
            size,
            namespaces,
            cloud: cloud.to_owned(),
            edge: edge.to_owned(),
        }
    }

    /// What services and jobs refer to, in each namespace.
    pub(super) fn shared(&self) -> impl Iterator<Item = (&str, ObjectKind, Value)> {
        let of = |namespace| shared(&self.edge).map(|(kind, object)| (namespace, kind, object));
        self.namespaces.iter().flat_map(move |namespace| of(namespace.as_str()))
    }

    /// All services and jobs, and the namespace of each.
    pub(super) fn resources(&self) -> impl Iterator<Item = (&str, ObjectKind, Value)> {
        let services = self
            .services()
            .map(|(namespace, number)| (namespace, SERVICE, self.service(number)));
        let jobs = self.in_turn(self.size.jobs);
        services.chain(jobs.map(|(namespace, number)| (namespace, JOB, self.job(number))))
    }

    /// The namespace of each service by its number, which no two of them share.
    pub(super) fn services(&self) -> impl Iterator<Item = (&str, u32)> {
        self.in_turn(self.size.services)
    }

    fn in_turn(&self, count: u32) -> impl Iterator<Item = (&str, u32)> {
        self.namespaces.iter().map(String::as_str).cycle().zip(0..count)
    }

    /// The name of a service.
    pub(super) fn name(number: u32) -> String {
        format!("service-{number:05}")
    }

    fn service(&self, number: u32) -> Value {
        service(number, &self.cloud, &self.edge)
    }

    /// An edit of a service that a user may make: another image at the edge.
    pub(super) fn edit(&self, image: &str) -> Value {
        service_edit(&self.edge, image)
    }

    fn job(&self, number: u32) -> Value {
        let trainer = json!({"dataset": {"name": "data"}, "template": template(&self.edge, "bench/trainer:1")});
        let spec = json!({
            "aggregationWorker": {
                "model": {"name": "learned"},
                "template": template(&self.cloud, "bench/aggregator:1"),
            },
            "trainingWorkers": [trainer.clone(), trainer],
        });
        object(JOB, &format!("job-{number:05}"), &spec)
    }

    /// The children of everything that is declared.
    pub(super) fn families(&self) -> Result<Families, Failure> {
        let mut wanted = BTreeMap::new();
        for (owner, family) in self.family_of_each()? {
            let owners = if owner == SERVICE {
                self.size.services
            } else {
                self.size.jobs
            };
            for (kind, number) in family {
                wanted.insert((owner.kind, kind), number * owners as usize);
            }
        }
        wanted.retain(|_, number| *number > 0);
        Ok(Families(wanted))
    }

    /// The children of one service and of one job, by the decision itself.
    fn family_of_each(&self) -> Result<BTreeMap<ObjectKind, Family>, Failure> {
        let mut families = BTreeMap::new();
        for (kind, resource) in [(SERVICE, self.service(0)), (JOB, self.job(0))] {
            let mut family = Family::new();
            for child in self.children(resource)? {
                *family.entry(child.kind).or_default() += 1;
            }
            families.insert(kind, family);
        }
        Ok(families)
    }

    /// The children of a service or a job, by the decision itself.
    pub(super) fn children(&self, resource: Value) -> Result<Vec<Child>, Failure> {
        let namespace = resource.pointer("/metadata/namespace").cloned();
        let shared = shared(&self.edge).into_iter().map(|(_, mut object)| {
            if let (Some(namespace), Some(metadata)) = (&namespace, object.pointer_mut("/metadata")) {
                metadata["namespace"] = namespace.clone();
            }
            object
        });
        let documents: Vec<Value> = shared.chain([resource]).collect();
        let plans = skerry_workloads::offline(&documents, &Settings::default()).map_err(Failure::defect)?;
        let children = plans.into_iter().filter_map(|(_, plan)| match plan.children {
            Children::Exactly(children) => Some(children),
            Children::Unchanged => None,
        });
        Ok(children.flatten().collect())
    }
}

/// How many children of which kind all resources of a kind have together.
pub(super) struct Families(BTreeMap<(&'static str, ObjectKind), usize>);

impl Families {
    /// Whether a resource of this kind is among what is declared.
    pub(super) fn ours(owner: &str) -> bool {
        [SERVICE.kind, JOB.kind].contains(&owner)
    }

    /// How long after this the last child became as it is.
    pub(super) fn last_change(seen: &Seen, begun: Instant) -> Duration {
        let children = seen.values().filter(|child| Self::ours(&child.owner.0));
        let last = children.map(|child| child.since).max();
        last.unwrap_or(begun).saturating_duration_since(begun)
    }

    /// Whether all children are among what was seen.
    pub(super) fn complete(&self, seen: &Seen) -> bool {
        self.complete_among(seen.iter().map(|(key, child)| (key.kind, child.owner.0.as_str())))
    }

    /// Whether these children, by kind and kind of owner, are all.
    pub(super) fn complete_among<'a>(&self, children: impl Iterator<Item = (ObjectKind, &'a str)>) -> bool {
        let mut missing = self.0.clone();
        for (kind, owner) in children {
            let key = [SERVICE.kind, JOB.kind].into_iter().find(|known| *known == owner);
            if let Some(missing) = key.and_then(|owner| missing.get_mut(&(owner, kind))) {
                *missing = missing.saturating_sub(1);
            }
        }
        missing.values().all(|number| *number == 0)
    }
}

/// What all services and jobs of a namespace refer to.
pub(super) fn shared(edge: &str) -> [(ObjectKind, Value); 4] {
    let model = |name: &str| {
        let spec = json!({"url": format!("/var/lib/skerry/bench/{name}.json"), "format": "json"});
        (ObjectKind::MODEL, object(ObjectKind::MODEL, name, &spec))
    };
    let dataset = json!({"url": "/var/lib/skerry/bench/data.csv", "format": "csv", "nodeName": edge});
    [
        model("small"),
        model("large"),
        model("learned"),
        (ObjectKind::DATASET, object(ObjectKind::DATASET, "data", &dataset)),
    ]
}

/// A service with a worker on each of two nodes.
pub(super) fn service(number: u32, cloud: &str, edge: &str) -> Value {
    let spec = json!({
        "edgeWorker": {
            "model": {"name": "small"},
            "hardExampleMining": {
                "name": "CrossEntropy",
                "parameters": [{"key": "threshold_cross_entropy", "value": "0.8"}],
            },
            "template": template(edge, "bench/edge:1"),
        },
        "cloudWorker": {"model": {"name": "large"}, "template": template(cloud, "bench/cloud:1")},
    });
    object(SERVICE, &Load::name(number), &spec)
}

/// An edit of a service whose worker at the edge is there: another image.
pub(super) fn service_edit(edge: &str, image: &str) -> Value {
    json!({"spec": {"edgeWorker": {"template": template(edge, image)}}})
}

/// A resource as a user writes it.
pub(super) fn object(kind: ObjectKind, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": name}, "spec": spec})
}

fn template(node: &str, image: &str) -> Value {
    let resources = json!({"limits": {"cpu": "100m", "memory": "64Mi"}});
    json!({"spec": {
        "nodeName": node,
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "worker", "image": image, "resources": resources}],
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(services: u32, jobs: u32) -> Load {
        let namespaces = vec!["one".to_owned(), "two".to_owned()];
        Load::new(Size { services, jobs }, namespaces, "cloud", "edge")
    }

    #[test]
    fn a_service_has_two_deployments_and_a_job_three_pods() {
        let families = load(1, 1).family_of_each().unwrap();
        assert_eq!(families[&SERVICE][&ObjectKind::DEPLOYMENT], 2);
        assert_eq!(families[&JOB][&ObjectKind::POD], 3);
    }

    #[test]
    fn each_namespace_has_its_share_and_what_that_refers_to() {
        let load = load(5, 2);
        let of = |wanted: &str, kind: ObjectKind| {
            let resources = load.shared().chain(load.resources());
            resources
                .filter(|(namespace, found, _)| *namespace == wanted && *found == kind)
                .count()
        };
        assert_eq!((of("one", SERVICE), of("two", SERVICE)), (3, 2));
        assert_eq!((of("one", JOB), of("two", JOB)), (1, 1));
        assert_eq!((of("one", ObjectKind::MODEL), of("two", ObjectKind::MODEL)), (3, 3));
    }

    #[test]
    fn children_of_others_do_not_count() {
        let families = load(1, 0).families().unwrap();
        let mut children: Vec<_> = families
            .0
            .iter()
            .flat_map(|((owner, kind), number)| vec![(*kind, *owner); *number])
            .collect();
        assert!(families.complete_among(children.iter().copied()));
        children.pop();
        children.push((ObjectKind::POD, "ReplicaSet"));
        assert!(!families.complete_among(children.into_iter()));
    }
}
