//! What should exist for a service, and what its edge node holds.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use skerry_crds::{
    names::{self, annotation, env, label, port, worker_type},
    sedna::v1alpha1::JointInferenceService,
};

use super::inputs::{ROLES, Role};
use crate::{
    Child, Children, Event, EventType, Finding, Live, Make, NodePart, Nodes, ObjectKind, Observed, Plan, Settings,
    inputs::source::Source,
    judge::{conditions, pod},
    render::{
        child::{autoscaler, deployment, once_free, service, service_host},
        env::{EnvVar, local_controller},
        owner::{Owner, paused, terminating},
        storage::Storage,
        template::Worker,
    },
};

/// What should exist.
pub(crate) fn plan(ji: &JointInferenceService, seen: &Observed, settings: &Settings) -> Plan {
    if terminating(ji) {
        return Plan::default();
    }
    if paused(ji) {
        return Plan {
            findings: vec![conditions::paused()],
            ..Plan::default()
        };
    }
    let making = Making {
        ji,
        owner: Owner::of(ji),
        seen,
        settings,
    };
    let mut findings = Vec::new();
    let mut events = Vec::new();
    let mut children = vec![once_free(
        service(&making.owner, worker_type::CLOUD, port::BIG_MODEL),
        seen,
        &mut findings,
    )];
    for role in ROLES {
        children.extend(making.worker(role, &mut findings, &mut events));
    }
    Plan {
        children: Children::Exactly(children),
        nodes: making.nodes(),
        findings,
        events,
        again: None,
    }
}

/// The stable name of a worker, the same in all its pods.
pub(crate) fn worker_name(owner: &Owner, role: Role) -> String {
    let worker_type = role.worker_type().to_ascii_lowercase();
    format!("{worker_type}worker-{}", owner.hash(&worker_type))
}

struct Making<'a> {
    ji: &'a JointInferenceService,
    owner: Owner,
    seen: &'a Observed,
    settings: &'a Settings,
}

impl Making<'_> {
    /// A worker's Deployment and autoscaler.
    fn worker(&self, role: Role, findings: &mut Vec<Finding>, events: &mut Vec<Event>) -> Vec<Child> {
        let name = names::child::deployment(&self.owner.name, role.worker_type());
        let live = self.seen.child(ObjectKind::DEPLOYMENT, &name);
        let made = match role.sources(self.ji, &self.seen.references) {
            Ok(sources) => {
                let child = self.deployment(role, &sources, live, findings);
                let child = once_free(child, self.seen, findings);
                events.extend(told(role, &child, live));
                child
            }
            Err(missing) => {
                findings.push(missing);
                Child {
                    kind: ObjectKind::DEPLOYMENT,
                    name,
                    make: Make::Keep,
                }
            }
        };
        let scaler = role.scaling(self.ji).map(|scaling| {
            let scaler = autoscaler(&self.owner, role.worker_type(), scaling);
            // One without a Deployment to scale would only complain.
            if made.make == Make::Keep && live.is_none() {
                Child {
                    make: Make::Keep,
                    ..scaler
                }
            } else {
                once_free(scaler, self.seen, findings)
            }
        });
        std::iter::once(made).chain(scaler).collect()
    }

    fn deployment(&self, role: Role, sources: &[Source], live: Option<&Live>, findings: &mut Vec<Finding>) -> Child {
        let mut storage = Storage::of(sources);
        findings.append(&mut storage.findings);
        let hash = role.hash(self.ji, sources);
        let worker = Worker {
            template: role.template(self.ji),
            labels: crate::render::child::deployment_labels(&self.owner, role.worker_type()),
            annotations: BTreeMap::from([(annotation::INPUTS_HASH.to_owned(), hash)]),
            env: self.env(role),
            storage,
            force_host_network: false,
            restart_policy: None,
        };
        let replicas = replicas(role.scaling(self.ji).is_some(), live);
        deployment(&self.owner, role.worker_type(), worker, replicas, self.settings)
    }

    fn env(&self, role: Role) -> Vec<EnvVar> {
        let mut vars = vec![
            EnvVar::value(env::NAMESPACE, &self.owner.namespace),
            EnvVar::value(env::SERVICE_NAME, &self.owner.name),
            // Sedna leaves it out, and its worker library then reports as "sedna". Both workers need it: the library
            // makes it part of the path on which they meet.
            EnvVar::value(env::JOB_NAME, &self.owner.name),
            EnvVar::value(env::WORKER_NAME, worker_name(&self.owner, role)),
        ];
        match role {
            Role::Cloud => vars.push(EnvVar::value(env::BIG_MODEL_BIND_PORT, port::BIG_MODEL.to_string())),
            Role::Edge => {
                let filter = &self.ji.spec.edge_worker.hard_example_mining;
                let parameters = match filter.parameters.as_slice() {
                    [] => "null".to_owned(),
                    parameters => serde_json::to_string(parameters).unwrap_or_default(),
                };
                vars.extend([
                    EnvVar::value(env::BIG_MODEL_IP, service_host(&self.owner, worker_type::CLOUD)),
                    EnvVar::value(env::BIG_MODEL_PORT, port::BIG_MODEL.to_string()),
                    EnvVar::value(env::HEM_NAME, &filter.name),
                    EnvVar::value(env::HEM_PARAMETERS, parameters),
                ]);
                vars.extend(local_controller(self.settings, role.template(self.ji).host_network()));
            }
        }
        vars
    }

    /// The edge worker's node, or its nodes where the scheduler placed its pods.
    fn nodes(&self) -> Nodes {
        let nodes: BTreeSet<&str> = match Role::Edge.template(self.ji).node_name() {
            Some(node) => BTreeSet::from([node]),
            None => of_role(self.seen, Role::Edge)
                .into_iter()
                .filter(|pod| runs(pod))
                .filter_map(pod::node)
                .collect(),
        };
        let body = self.owner.body(&self.ji.spec, &[worker_name(&self.owner, Role::Edge)]);
        let part = NodePart { body, credential: None };
        Nodes::Exactly(nodes.into_iter().map(|node| (node.to_owned(), part.clone())).collect())
    }
}

/// The pods of a worker, in order of name.
pub(crate) fn of_role(seen: &Observed, role: Role) -> Vec<&Live> {
    let key = label::worker_type(ObjectKind::JOINT_INFERENCE_SERVICE.kind);
    let value = role.worker_type().to_ascii_lowercase();
    let mut pods: Vec<_> = seen.pods.iter().filter(|pod| pod.label(&key) == Some(&value)).collect();
    pods.sort_by_key(|pod| pod.name());
    pods
}

fn runs(pod: &Live) -> bool {
    matches!(pod::phase(pod), pod::Phase::Pending | pod::Phase::Running)
}

/// One replica; under an autoscaler what is there, until the autoscaler has taken the field over: then it is left out,
/// or every pass would scale back.
fn replicas(scaled: bool, live: Option<&Live>) -> Option<i64> {
    match live.filter(|_| scaled) {
        None => Some(1),
        Some(live) if live.replicas_owned_by_another(names::MANAGER) => None,
        Some(live) => live
            .object
            .pointer("/spec/replicas")
            .and_then(Value::as_i64)
            .or(Some(1)),
    }
}

/// What the user is told when a Deployment is made or rolls.
fn told(role: Role, child: &Child, live: Option<&Live>) -> Option<Event> {
    let Make::Apply(body) = &child.make else { return None };
    let pointer = format!(
        "/spec/template/metadata/annotations/{}",
        annotation::INPUTS_HASH.replace('/', "~1")
    );
    let hash = |object: &Value| object.pointer(&pointer).cloned();
    let (reason, message) = match live {
        None => (
            "WorkerCreated",
            format!("makes Deployment {} for {}", child.name, role.title()),
        ),
        Some(live) if hash(&live.object) != hash(body) => (
            "WorkerUpdated",
            format!(
                "rolls Deployment {}: what {} is made from changed",
                child.name,
                role.title()
            ),
        ),
        Some(_) => return None,
    };
    Some(Event {
        type_: EventType::Normal,
        reason,
        message,
    })
}
