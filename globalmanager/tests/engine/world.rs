//! A kind of its own, and the engine that drives it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, CustomResource, CustomResourceExt, ResourceExt, api::PostParams};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use skerry_globalmanager::{
    engine::{Engine, Kinds, NodeParts, Pace, Parts, Placement, ResourceKey},
    metrics::Metrics,
};
use skerry_sandbox::ApiServer;
use skerry_workloads::{
    Applied, Child, Children, Event, EventType, Kind, KindNames, Make, NodePart, Nodes, ObjectKind, Observed, Payload,
    Plan, REPORTED_UP_TO, Reference, References, Refusal, Report, Settings, StatusChange,
};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

pub(crate) const MANAGER: &str = "manager";

/// A kind that makes a Service with a port, and a pod where it is asked to.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, JsonSchema)]
#[kube(
    group = "sedna.io",
    version = "v1alpha1",
    kind = "Gadget",
    namespaced,
    status = "GadgetStatus"
)]
pub(crate) struct GadgetSpec {
    pub(crate) port: i32,
    #[serde(default)]
    pub(crate) pod: bool,
    #[serde(default)]
    pub(crate) secret: Option<String>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GadgetStatus {
    pub(crate) children: Option<i32>,
    pub(crate) failure: Option<String>,
    pub(crate) secret_version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) samples: Option<u64>,
}

pub(crate) const GADGET: ObjectKind = ObjectKind::new(&KindNames {
    group: "sedna.io",
    version: "v1alpha1",
    kind: "Gadget",
    plural: "gadgets",
});

impl Gadget {
    fn child(&self, kind: ObjectKind, name: &str, spec: &Value) -> Value {
        json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {
            "name": name, "namespace": self.namespace(),
            "labels": {"gadget.sedna.io/name": self.name_any(), "gadget.sedna.io/uid": self.uid()},
            "ownerReferences": [{"apiVersion": "sedna.io/v1alpha1", "kind": "Gadget", "name": self.name_any(),
                "uid": self.uid(), "controller": true, "blockOwnerDeletion": true}]}, "spec": spec})
    }
}

impl Kind for Gadget {
    const KIND: ObjectKind = GADGET;
    type Status = GadgetStatus;
    const CHILDREN: &'static [ObjectKind] = &[ObjectKind::SERVICE, ObjectKind::POD];
    const DECIDED_BY: &'static [ObjectKind] = &[];
    const REPORTED: &'static [&'static str] = &["samples", REPORTED_UP_TO];

    fn references(&self, _: &References) -> BTreeSet<Reference> {
        self.spec
            .secret
            .iter()
            .map(|name| Reference::new(ObjectKind::SECRET, name))
            .collect()
    }

    fn plan(&self, seen: &Observed, _: &Settings) -> Plan {
        let service = self.child(
            ObjectKind::SERVICE,
            &self.name_any(),
            &json!({"ports": [{"port": self.spec.port}]}),
        );
        let mut events = vec![];
        let mut children = vec![Child {
            kind: ObjectKind::SERVICE,
            name: self.name_any(),
            make: Make::Apply(service),
        }];
        if self.spec.pod {
            let pod = self.child(
                ObjectKind::POD,
                &self.name_any(),
                &json!({"containers": [{"name": "c", "image": "i"}]}),
            );
            children.push(Child {
                kind: ObjectKind::POD,
                name: self.name_any(),
                make: Make::Create(pod),
            });
            if seen.child(ObjectKind::POD, &self.name_any()).is_none() {
                events.push(Event {
                    type_: EventType::Normal,
                    reason: "PodCreated",
                    message: "makes its pod".to_owned(),
                });
            }
        }
        let body = json!({"port": self.spec.port});
        let nodes = Nodes::Exactly([("edge-1".to_owned(), NodePart { body, credential: None })].into());
        Plan {
            children: Children::Exactly(children),
            nodes,
            events,
            ..Plan::default()
        }
    }

    fn status(&self, seen: &Observed, _: &Plan, applied: &Applied, _: Timestamp) -> GadgetStatus {
        let secret = self
            .spec
            .secret
            .as_ref()
            .and_then(|name| seen.references.get(ObjectKind::SECRET, name));
        GadgetStatus {
            children: i32::try_from(applied.children.len()).ok(),
            failure: applied
                .failures
                .first()
                .map(|failure| format!("{}: {}", failure.reason, failure.message)),
            secret_version: secret.and_then(|secret| secret.pointer("/data/a")?.as_str().map(str::to_owned)),
            samples: None,
        }
    }

    fn report(&self, report: &Report, _: Timestamp) -> Result<Vec<StatusChange>, Refusal> {
        match &report.payload {
            Payload::Samples(samples) => Ok(vec![StatusChange {
                kind: GADGET,
                name: self.name_any(),
                status: json!({"samples": samples}).as_object().unwrap().clone(),
            }]),
            other => Err(Refusal::Form {
                kind: "Gadget",
                found: format!("{other:?}"),
            }),
        }
    }
}

/// What the hub would hold.
#[derive(Default)]
pub(crate) struct Held {
    pub(crate) parts: Mutex<BTreeMap<ResourceKey, BTreeMap<String, Value>>>,
    told: Mutex<Vec<Told>>,
    /// How often it was told what a resource places.
    pub(crate) sets: AtomicUsize,
    /// Whether its nodes have no room for more, and keep what they have.
    pub(crate) full: AtomicBool,
}

fn bodies(placement: Placement) -> BTreeMap<String, Value> {
    placement
        .into_iter()
        .map(|(node, (part, _))| (node, part.body))
        .collect()
}

/// What the hub is told of the kind as a whole, and of what is not there.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Told {
    Gone(String),
    Listed(Vec<String>),
    Unknown,
}

impl NodeParts for Held {
    fn set(&self, owner: &ResourceKey, _: &str, _: i64, placement: Placement) {
        self.sets.fetch_add(1, Relaxed);
        if !self.full.load(Relaxed) {
            self.parts.lock().insert(owner.clone(), bodies(placement));
        }
    }

    fn holds(&self, owner: &ResourceKey, _: &str, _: i64, placement: Placement) -> bool {
        self.parts.lock().get(owner) == Some(&bodies(placement))
    }

    fn owner_gone(&self, owner: &ResourceKey) {
        self.parts.lock().remove(owner);
        self.told.lock().push(Told::Gone(owner.name.clone()));
    }

    fn kind_listed(&self, _: ObjectKind, owners: Vec<(String, String)>) {
        let names = owners.into_iter().map(|(_, name)| name).collect();
        self.told.lock().push(Told::Listed(names));
    }

    fn kind_unknown(&self, _: ObjectKind) {
        self.told.lock().push(Told::Unknown);
    }
}

pub(crate) struct World {
    pub(crate) api: ApiServer,
    pub(crate) held: Arc<Held>,
    pub(crate) engine: Engine,
    metrics: Arc<Metrics>,
    pub(crate) leads: watch::Sender<bool>,
    pub(crate) stop: CancellationToken,
}

impl World {
    pub(crate) async fn start() -> Self {
        let world = Self::stopped().await;
        world.run();
        world
    }

    /// With a manager that has not begun to work.
    pub(crate) async fn stopped() -> Self {
        let api = ApiServer::new();
        let crds: Api<CustomResourceDefinition> = Api::all(api.client());
        let named = skerry_crds::all()
            .iter()
            .filter(|crd| ["Model", "Dataset"].contains(&crd.spec.names.kind.as_str()));
        for crd in named.chain([&Gadget::crd()]) {
            crds.create(&PostParams::default(), crd).await.unwrap();
        }
        let (leads, leader) = watch::channel(true);
        let held = Arc::new(Held::default());
        let clock = api.clock();
        let metrics = Metrics::new();
        let parts = Parts {
            client: api.client_as(MANAGER),
            namespace: None,
            settings: Settings::default(),
            leader,
            nodes: held.clone(),
            metrics: metrics.clone(),
            instance: "test".into(),
            clock: Arc::new(move || clock.now()),
            pace: Pace::default(),
        };
        let engine = Engine::new(parts, Kinds::default().with::<Gadget>());
        Self {
            api,
            held,
            engine,
            metrics,
            leads,
            stop: CancellationToken::new(),
        }
    }

    pub(crate) fn run(&self) {
        let (engine, stop) = (self.engine.clone(), self.stop.clone());
        tokio::spawn(async move { engine.run(stop).await });
    }

    pub(crate) fn gadgets(&self) -> Api<Gadget> {
        Api::namespaced(self.api.client_as("user"), "default")
    }

    pub(crate) fn services(&self) -> Api<k8s_openapi::api::core::v1::Service> {
        Api::namespaced(self.api.client_as("user"), "default")
    }

    pub(crate) fn pods(&self) -> Api<k8s_openapi::api::core::v1::Pod> {
        Api::namespaced(self.api.client_as("user"), "default")
    }

    pub(crate) async fn create(&self, name: &str, spec: GadgetSpec) -> Gadget {
        let made = self
            .gadgets()
            .create(&PostParams::default(), &Gadget::new(name, spec))
            .await
            .unwrap();
        self.settle().await;
        made
    }

    /// Lets everything that follows from what was done happen: on paused time a minute passes at once.
    pub(crate) async fn settle(&self) {
        sleep(Duration::from_secs(60)).await;
    }

    /// What the manager wrote since `mark`, events apart: `verb resource subresource name`.
    pub(crate) fn writes_since(&self, mark: skerry_sandbox::api::Mark) -> Vec<String> {
        let mut writes = self.writes_and_events_since(mark);
        writes.retain(|write| !write.starts_with("create events"));
        writes
    }

    /// What the manager wrote since `mark`.
    pub(crate) fn writes_and_events_since(&self, mark: skerry_sandbox::api::Mark) -> Vec<String> {
        let writes = self.api.requests().writes_since(mark).into_iter();
        let ours = writes.filter(|entry| entry.request.user == MANAGER);
        ours.map(|entry| {
            let request = entry.request;
            format!(
                "{:?} {} {} {}",
                request.verb, request.resource, request.subresource, request.name
            )
            .to_lowercase()
        })
        .collect()
    }

    /// How many passes there were so far.
    pub(crate) fn passes(&self) -> u64 {
        let metrics = self.metrics.encode();
        let counts = metrics
            .lines()
            .filter(|line| line.starts_with("skerry_reconciles_total{"));
        counts
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .sum()
    }

    /// What the hub was told since this was last asked.
    pub(crate) fn told(&self) -> Vec<Told> {
        std::mem::take(&mut *self.held.told.lock())
    }

    pub(crate) async fn status(&self, name: &str) -> GadgetStatus {
        self.gadgets().get(name).await.unwrap().status.unwrap_or_default()
    }
}

pub(crate) fn gadget(port: i32) -> GadgetSpec {
    GadgetSpec {
        port,
        pod: false,
        secret: None,
    }
}
