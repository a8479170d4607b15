//! The children that kinds have in common: a Service in front of a worker, a Deployment with its autoscaler, a pod.

use std::collections::BTreeMap;

use serde_json::{Map, json};
use skerry_crds::{names, names::label, sedna::v1alpha1::Autoscaling};

use super::{owner::Owner, template::Worker};
use crate::{Child, Finding, Impact, Make, ObjectKind, Observed, Settings};

/// The Service in front of the workers of a type: one port, the same on both sides.
pub(crate) fn service(owner: &Owner, worker_type: &str, port: u16) -> Child {
    let name = names::child::service(&owner.name, worker_type);
    let labels = owner.labels(worker_type);
    let body = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owner.metadata(&name, &labels),
        "spec": {
            "selector": labels,
            "ports": [{"name": names::port::NAME, "protocol": "TCP", "port": port, "targetPort": port}],
        },
    });
    Child {
        kind: ObjectKind::SERVICE,
        name,
        make: Make::Apply(body),
    }
}

/// The host name of that Service, as workers get it.
pub(crate) fn service_host(owner: &Owner, worker_type: &str) -> String {
    format!(
        "{}.{}",
        names::child::service(&owner.name, worker_type),
        owner.namespace
    )
}

/// The labels that a Deployment, its selector and its pods share.
pub(crate) fn deployment_labels(owner: &Owner, worker_type: &str) -> BTreeMap<String, String> {
    let mut labels = owner.labels(worker_type);
    labels.insert(label::APP.to_owned(), label::app_value(&owner.name, worker_type));
    labels
}

/// The Deployment of a worker; without `replicas` where another manager sets them.
pub(crate) fn deployment(
    owner: &Owner,
    worker_type: &str,
    worker: Worker<'_>,
    replicas: Option<i64>,
    settings: &Settings,
) -> Child {
    let name = names::child::deployment(&owner.name, worker_type);
    let labels = deployment_labels(owner, worker_type);
    let (metadata, pod) = worker.render(settings);
    let mut spec = Map::new();
    if let Some(replicas) = replicas {
        spec.insert("replicas".to_owned(), replicas.into());
    }
    // Nothing goes back to an earlier template: one that was rolled back by hand would be rolled forward again. If they were
    // kept, that of an adopted worker would tell Sedna's keys in clear for ever.
    spec.insert("revisionHistoryLimit".to_owned(), 0.into());
    spec.insert("selector".to_owned(), json!({"matchLabels": labels}));
    spec.insert("template".to_owned(), json!({"metadata": metadata, "spec": pod}));
    let body = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": owner.metadata(&name, &labels),
        "spec": spec,
    });
    Child {
        kind: ObjectKind::DEPLOYMENT,
        name,
        make: Make::Apply(body),
    }
}

/// The autoscaler of a worker's Deployment.
pub(crate) fn autoscaler(owner: &Owner, worker_type: &str, scaling: &Autoscaling) -> Child {
    let deployment = names::child::deployment(&owner.name, worker_type);
    let name = names::child::autoscaler(&deployment);
    let mut spec = Map::new();
    spec.insert(
        "scaleTargetRef".to_owned(),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment}),
    );
    if let Some(least) = scaling.min_replicas {
        spec.insert("minReplicas".to_owned(), least.into());
    }
    spec.insert("maxReplicas".to_owned(), scaling.max_replicas.into());
    if !scaling.metrics.is_empty() {
        spec.insert("metrics".to_owned(), json!(scaling.metrics));
    }
    if let Some(behavior) = &scaling.behavior {
        spec.insert("behavior".to_owned(), json!(behavior));
    }
    let body = json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": owner.metadata(&name, &owner.labels(worker_type)),
        "spec": spec,
    });
    Child {
        kind: ObjectKind::AUTOSCALER,
        name,
        make: Make::Apply(body),
    }
}

/// The pod of a worker, under a name of our choice.
pub(crate) fn pod(owner: &Owner, name: &str, worker: Worker<'_>, settings: &Settings) -> Child {
    let (theirs, spec) = worker.render(settings);
    let mut metadata = owner.metadata(name, &BTreeMap::new());
    metadata.extend(theirs);
    let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
    Child {
        kind: ObjectKind::POD,
        name: name.to_owned(),
        make: Make::Create(body),
    }
}

/// The child, unless an object of its name is still on its way out: then it waits, which the finding tells.
pub(crate) fn once_free(child: Child, seen: &Observed, findings: &mut Vec<Finding>) -> Child {
    match seen.child(child.kind, &child.name) {
        Some(live) if live.terminating() => {
            findings.push(awaiting_deletion(child.kind, &child.name, ""));
            Child {
                make: Make::Keep,
                ..child
            }
        }
        _ => child,
    }
}

/// An object is on its way out, and what takes its place has to wait. `detail` goes on where the name ends.
pub(crate) fn awaiting_deletion(kind: ObjectKind, name: &str, detail: &str) -> Finding {
    Finding {
        impact: Impact::Waiting,
        reason: "AwaitingDeletion",
        message: format!(
            "{} {name} is being deleted{detail}; it is made again once it is gone",
            kind.kind
        ),
    }
}
