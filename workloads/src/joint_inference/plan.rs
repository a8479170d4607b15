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
    adoption,
    inputs::source::Source,
    judge::{conditions, pod},
    render::{
        child::{autoscaler, deployment, deployment_labels, once_free, service, service_host},
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

/// `JOB_NAME` where Sedna's worker library is told none.
const LIBRARY_JOB_NAME: &str = "sedna";

struct Making<'a> {
    ji: &'a JointInferenceService,
    owner: Owner,
    seen: &'a Observed,
    settings: &'a Settings,
}

impl Making<'_> {
    /// A worker's Deployment and autoscaler.
    fn worker(&self, role: Role, findings: &mut Vec<Finding>, events: &mut Vec<Event>) -> Vec<Child> {
        let live = self.live(role);
        let made = match role.sources(self.ji, &self.seen.references) {
            Ok(sources) => {
                let child = match self.sednas(role) {
                    Some(sednas) => self.adopted(role, &sources, sednas),
                    None => self.deployment(role, &sources, live, findings),
                };
                let child = once_free(child, self.seen, findings);
                events.extend(told(role, &child, live));
                child
            }
            Err(missing) => {
                findings.push(missing);
                Child {
                    kind: ObjectKind::DEPLOYMENT,
                    name: names::child::deployment(&self.owner.name, role.worker_type()),
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

    fn live(&self, role: Role) -> Option<&Live> {
        let name = names::child::deployment(&self.owner.name, role.worker_type());
        self.seen.child(ObjectKind::DEPLOYMENT, &name)
    }

    /// The worker's Deployment as long as its pods stay as Sedna made them: until what the worker is made from is
    /// something else than when it was adopted.
    fn sednas(&self, role: Role) -> Option<&Live> {
        let live = self.live(role).filter(|live| adoption::is_sednas(live))?;
        let adopted = live.annotation(annotation::ADOPTED_HASH);
        let same = match role.sources(self.ji, &self.seen.references) {
            Ok(sources) => adopted.is_none_or(|adopted| adopted == role.hash(self.ji, &sources)),
            Err(_) => true,
        };
        same.then_some(live)
    }

    fn adopted(&self, role: Role, sources: &[Source], live: &Live) -> Child {
        let labels = deployment_labels(&self.owner, role.worker_type());
        let hash = BTreeMap::from([(annotation::ADOPTED_HASH, role.hash(self.ji, sources))]);
        adoption::keep(&self.owner, live, &labels, &hash)
    }

    fn deployment(&self, role: Role, sources: &[Source], live: Option<&Live>, findings: &mut Vec<Finding>) -> Child {
        let mut storage = Storage::of(sources);
        findings.append(&mut storage.findings);
        let hash = role.hash(self.ji, sources);
        let worker = Worker {
            template: role.template(self.ji),
            labels: deployment_labels(&self.owner, role.worker_type()),
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
            EnvVar::value(env::JOB_NAME, self.meeting_point(role)),
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

    /// The name under which the worker meets its partner. One that Sedna made knows no other than the library's own, and
    /// would not be found under ours.
    fn meeting_point(&self, role: Role) -> &str {
        match self.sednas(role.partner()) {
            Some(partner) => template_var(partner, env::JOB_NAME).unwrap_or(LIBRARY_JOB_NAME),
            None => &self.owner.name,
        }
    }

    /// The name under which the edge worker reports.
    fn edge_worker(&self) -> String {
        let sednas = self
            .sednas(Role::Edge)
            .and_then(|live| template_var(live, env::WORKER_NAME));
        sednas.map_or_else(|| worker_name(&self.owner, Role::Edge), str::to_owned)
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
        let body = self.owner.body(&self.ji.spec, &[self.edge_worker()]);
        let part = NodePart { body, credential: None };
        Nodes::Exactly(nodes.into_iter().map(|node| (node.to_owned(), part.clone())).collect())
    }
}

/// The value of a variable of a Deployment's pods.
fn template_var<'a>(deployment: &'a Live, name: &str) -> Option<&'a str> {
    adoption::var(deployment.object.pointer("/spec/template/spec"), name)
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
    let is_marks_alone = body.get("spec").is_none();
    let (reason, message) = match live {
        None => (
            "WorkerCreated",
            format!("makes Deployment {} for {}", child.name, role.title()),
        ),
        Some(live) if is_marks_alone => {
            if live.annotation(annotation::ADOPTED_HASH).is_some() {
                return None;
            }
            (
                "WorkerAdopted",
                format!(
                    "adopts Deployment {} as it is: its pods are replaced when what {} is made from changes",
                    child.name,
                    role.title()
                ),
            )
        }
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
