//! The engine against the in-memory API server, on paused time, with a kind of its own: what the engine promises to every
//! kind, whatever it decides.

// A set-up that fails is the test's verdict.
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, CustomResource, CustomResourceExt, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use skerry_globalmanager::{
    engine::{Credential, Engine, Kinds, NodeParts, Parts, ResourceKey},
    metrics::Metrics,
};
use skerry_sandbox::{
    ApiServer,
    api::{Fault, FaultHandle, Match, Verb},
};
use skerry_workloads::{
    Applied, Child, Children, Kind, Make, NodePart, Nodes, ObjectKind, Observed, Payload, Plan, Reference, References,
    Refusal, Report, Settings, StatusChange,
};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

const MANAGER: &str = "manager";

/// A kind that makes a Service with a port, and a pod where it is asked to.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, JsonSchema)]
#[kube(
    group = "sedna.io",
    version = "v1alpha1",
    kind = "Gadget",
    namespaced,
    status = "GadgetStatus"
)]
struct GadgetSpec {
    port: i32,
    #[serde(default)]
    pod: bool,
    #[serde(default)]
    secret: Option<String>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct GadgetStatus {
    children: Option<i32>,
    failure: Option<String>,
    secret_version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    samples: Option<u64>,
}

const GADGET: ObjectKind = ObjectKind {
    group: "sedna.io",
    version: "v1alpha1",
    kind: "Gadget",
    plural: "gadgets",
};

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
    const REPORTED: &'static [&'static str] = &["samples"];

    fn references(&self, _: &References) -> BTreeSet<Reference> {
        self.spec
            .secret
            .iter()
            .map(|name| Reference::new(ObjectKind::SECRET, name))
            .collect()
    }

    fn plan(&self, _: &Observed, _: &Settings) -> Plan {
        let service = self.child(
            ObjectKind::SERVICE,
            &self.name_any(),
            &json!({"ports": [{"port": self.spec.port}]}),
        );
        let mut children = vec![Child {
            kind: ObjectKind::SERVICE,
            name: self.name_any(),
            make: Make::Apply(service),
        }];
        if self.spec.pod {
            let pod = self.child(
                ObjectKind::POD,
                "pod",
                &json!({"containers": [{"name": "c", "image": "i"}]}),
            );
            children.push(Child {
                kind: ObjectKind::POD,
                name: "pod".into(),
                make: Make::Create(pod),
            });
        }
        let body = json!({"port": self.spec.port});
        let nodes = Nodes::Exactly([("edge-1".to_owned(), NodePart { body, credential: None })].into());
        Plan {
            children: Children::Exactly(children),
            nodes,
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
struct Held(Mutex<BTreeMap<ResourceKey, BTreeMap<String, Value>>>, Mutex<Vec<Told>>);

/// What the hub is told of the kind as a whole, and of what is not there.
#[derive(Clone, Debug, PartialEq)]
enum Told {
    Gone(String),
    Listed(Vec<String>),
    Unknown,
}

impl NodeParts for Held {
    fn set(&self, owner: &ResourceKey, _: &str, _: i64, parts: BTreeMap<String, (NodePart, Option<Credential>)>) {
        let parts = parts.into_iter().map(|(node, (part, _))| (node, part.body)).collect();
        self.0.lock().insert(owner.clone(), parts);
    }

    fn owner_gone(&self, owner: &ResourceKey) {
        self.0.lock().remove(owner);
        self.1.lock().push(Told::Gone(owner.name.clone()));
    }

    fn kind_listed(&self, _: ObjectKind, owners: Vec<(String, String)>) {
        let names = owners.into_iter().map(|(_, name)| name).collect();
        self.1.lock().push(Told::Listed(names));
    }

    fn kind_unknown(&self, _: ObjectKind) {
        self.1.lock().push(Told::Unknown);
    }
}

struct World {
    api: ApiServer,
    held: Arc<Held>,
    engine: Engine,
    leads: watch::Sender<bool>,
    stop: CancellationToken,
}

impl World {
    async fn start() -> Self {
        let world = Self::stopped().await;
        world.run();
        world
    }

    /// With a manager that has not begun to work.
    async fn stopped() -> Self {
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
        let parts = Parts {
            client: api.client_as(MANAGER),
            namespace: None,
            settings: Settings::default(),
            leader,
            nodes: held.clone(),
            metrics: Metrics::new(),
            instance: "test".into(),
            clock: Arc::new(move || clock.now()),
        };
        let engine = Engine::new(parts, Kinds::default().with::<Gadget>());
        Self {
            api,
            held,
            engine,
            leads,
            stop: CancellationToken::new(),
        }
    }

    fn run(&self) {
        let (engine, stop) = (self.engine.clone(), self.stop.clone());
        tokio::spawn(async move { engine.run(stop).await });
    }

    fn gadgets(&self) -> Api<Gadget> {
        Api::namespaced(self.api.client_as("user"), "default")
    }

    fn services(&self) -> Api<k8s_openapi::api::core::v1::Service> {
        Api::namespaced(self.api.client_as("user"), "default")
    }

    fn pods(&self) -> Api<k8s_openapi::api::core::v1::Pod> {
        Api::namespaced(self.api.client_as("user"), "default")
    }

    async fn create(&self, name: &str, spec: GadgetSpec) -> Gadget {
        let made = self
            .gadgets()
            .create(&PostParams::default(), &Gadget::new(name, spec))
            .await
            .unwrap();
        self.settle().await;
        made
    }

    /// Lets everything that follows from what was done happen: on paused time a minute passes at once.
    async fn settle(&self) {
        sleep(Duration::from_secs(60)).await;
    }

    /// What the manager wrote since `mark`, events apart: `verb resource/subresource name`.
    fn writes_since(&self, mark: skerry_sandbox::api::Mark) -> Vec<String> {
        let writes = self
            .api
            .requests()
            .writes_since(mark)
            .into_iter()
            .filter(|entry| entry.request.user == MANAGER);
        writes
            .filter(|entry| entry.request.resource != "events")
            .map(|entry| {
                let request = entry.request;
                format!(
                    "{:?} {} {} {}",
                    request.verb, request.resource, request.subresource, request.name
                )
                .to_lowercase()
            })
            .collect()
    }

    /// What the hub was told since this was last asked.
    fn told(&self) -> Vec<Told> {
        std::mem::take(&mut *self.held.1.lock())
    }

    async fn status(&self, name: &str) -> GadgetStatus {
        self.gadgets().get(name).await.unwrap().status.unwrap_or_default()
    }
}

fn gadget(port: i32) -> GadgetSpec {
    GadgetSpec {
        port,
        pod: false,
        secret: None,
    }
}

#[tokio::test(start_paused = true)]
async fn creation_costs_one_write_per_child_and_one_for_the_status_and_rest_costs_none() {
    let world = World::start().await;
    let mark = world.api.requests().mark();
    world
        .create(
            "a",
            GadgetSpec {
                pod: true,
                ..gadget(80)
            },
        )
        .await;
    assert_eq!(
        world.writes_since(mark),
        ["patch services  a", "create pods  pod", "patch gadgets status a"]
    );
    assert_eq!(world.status("a").await.children, Some(2));
    let mark = world.api.requests().mark();
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.writes_since(mark), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_edit_costs_one_write_and_drift_by_hand_is_put_back() {
    let world = World::start().await;
    world.create("a", gadget(80)).await;
    let mark = world.api.requests().mark();
    let edit = json!({"spec": {"port": 81}});
    world
        .gadgets()
        .patch("a", &PatchParams::default(), &Patch::Merge(edit))
        .await
        .unwrap();
    world.settle().await;
    assert_eq!(world.writes_since(mark), ["patch services  a"]);
    let drift = json!({"spec": {"ports": [{"port": 99}]}});
    world
        .services()
        .patch("a", &PatchParams::default(), &Patch::Merge(drift))
        .await
        .unwrap();
    world.settle().await;
    let ports: Vec<_> = world
        .services()
        .get("a")
        .await
        .unwrap()
        .spec
        .unwrap()
        .ports
        .unwrap()
        .iter()
        .map(|p| p.port)
        .collect();
    // A port more would be theirs, were it valid beside ours.
    assert_eq!(ports, [81]);
    let edit = json!({"spec": {"port": 82}});
    world
        .gadgets()
        .patch("a", &PatchParams::default(), &Patch::Merge(edit))
        .await
        .unwrap();
    world.settle().await;
    let service = world.services().get("a").await.unwrap();
    let ports: Vec<_> = service.spec.unwrap().ports.unwrap().iter().map(|p| p.port).collect();
    assert_eq!(ports, [82]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_child_is_made_again() {
    let world = World::start().await;
    world.create("a", gadget(80)).await;
    world.services().delete("a", &DeleteParams::default()).await.unwrap();
    world.settle().await;
    assert!(world.services().get_opt("a").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn what_is_planned_no_more_is_pruned_and_what_is_not_ours_stays() {
    let world = World::start().await;
    world
        .create(
            "a",
            GadgetSpec {
                pod: true,
                ..gadget(80)
            },
        )
        .await;
    let foreign: k8s_openapi::api::core::v1::Pod = serde_json::from_value(json!({"metadata": {"name": "foreign",
        "labels": {"gadget.sedna.io/name": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}))
    .unwrap();
    world.pods().create(&PostParams::default(), &foreign).await.unwrap();
    let edit = json!({"spec": {"pod": false}});
    world
        .gadgets()
        .patch("a", &PatchParams::default(), &Patch::Merge(edit))
        .await
        .unwrap();
    world.settle().await;
    let left: Vec<_> = world
        .pods()
        .list(&kube::api::ListParams::default())
        .await
        .unwrap()
        .into_iter()
        .map(|pod| pod.name_any())
        .collect();
    assert_eq!(left, ["foreign"]);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_taken_is_said_and_left_alone_and_heals() {
    let world = World::start().await;
    let theirs: k8s_openapi::api::core::v1::Service =
        serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 1}]}})).unwrap();
    world.services().create(&PostParams::default(), &theirs).await.unwrap();
    world.create("a", gadget(80)).await;
    let failure = world.status("a").await.failure.unwrap();
    assert!(failure.starts_with("NameTaken: Service a exists"), "{failure}");
    let kept = world.services().get("a").await.unwrap();
    assert_eq!(kept.spec.unwrap().ports.unwrap()[0].port, 1);
    world.services().delete("a", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(400)).await;
    assert_eq!(world.status("a").await.failure, None);
}

#[tokio::test(start_paused = true)]
async fn an_owner_on_its_way_out_gets_nothing_new() {
    let world = World::start().await;
    let mut made = Gadget::new("a", gadget(80));
    made.metadata.finalizers = Some(vec!["test/hold".into()]);
    world.gadgets().create(&PostParams::default(), &made).await.unwrap();
    world.settle().await;
    world.gadgets().delete("a", &DeleteParams::default()).await.unwrap();
    world.services().delete("a", &DeleteParams::default()).await.unwrap();
    world.settle().await;
    assert!(world.services().get_opt("a").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_appears_or_changes_is_noticed() {
    let world = World::start().await;
    world
        .create(
            "a",
            GadgetSpec {
                secret: Some("s".into()),
                ..gadget(80)
            },
        )
        .await;
    assert_eq!(world.status("a").await.secret_version, None);
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(world.api.client_as("user"), "default");
    let secret = serde_json::from_value(json!({"metadata": {"name": "s"}, "data": {"a": "b25l"}})).unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    world.settle().await;
    assert_eq!(world.status("a").await.secret_version.as_deref(), Some("b25l"));
    let patch = json!({"data": {"a": "dHdv"}});
    secrets
        .patch("s", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    world.settle().await;
    assert_eq!(world.status("a").await.secret_version.as_deref(), Some("dHdv"));
}

#[tokio::test(start_paused = true)]
async fn a_standby_writes_nothing_and_takes_over_all_of_it() {
    let world = World::start().await;
    world.leads.send_replace(false);
    let mark = world.api.requests().mark();
    world.create("a", gadget(80)).await;
    assert_eq!(world.writes_since(mark), Vec::<String>::new());
    world.leads.send_replace(true);
    world.settle().await;
    assert_eq!(
        world.writes_since(mark),
        ["patch services  a", "patch gadgets status a"]
    );
}

#[tokio::test(start_paused = true)]
async fn nodes_hold_a_resource_until_it_is_gone() {
    let world = World::start().await;
    world.create("a", gadget(80)).await;
    let key = ResourceKey {
        kind: GADGET,
        namespace: "default".into(),
        name: "a".into(),
    };
    assert_eq!(world.held.0.lock()[&key]["edge-1"], json!({"port": 80}));
    world.gadgets().delete("a", &DeleteParams::default()).await.unwrap();
    world.settle().await;
    assert!(!world.held.0.lock().contains_key(&key));
}

/// The manager's lists of `resource`, which fail.
fn lists_fail(world: &World, resource: &str) -> FaultHandle {
    let lists = Match::any().user(MANAGER).verb(Verb::List).resource(resource);
    world.api.faults().inject(lists, Fault::InternalError)
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_goes_while_another_kind_is_not_listed_is_told_to_be_gone() {
    let world = World::stopped().await;
    let fault = lists_fail(&world, "secrets");
    world.run();
    world.create("a", gadget(80)).await;
    world.told();
    world.gadgets().delete("a", &DeleteParams::default()).await.unwrap();
    world.settle().await;
    assert_eq!(world.told(), [Told::Gone("a".into())]);
    fault.remove();
}

#[tokio::test(start_paused = true)]
async fn a_kind_whose_list_fails_is_unknown_and_not_empty() {
    let world = World::stopped().await;
    let fault = lists_fail(&world, "gadgets");
    world.run();
    world.create("a", gadget(80)).await;
    let told = world.told();
    assert!(
        told.iter().all(|told| *told == Told::Unknown) && !told.is_empty(),
        "{told:?}"
    );
    fault.remove();
    world.settle().await;
    assert_eq!(world.told(), [Told::Listed(vec!["a".into()])]);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_there_is_unknown_and_not_empty() {
    let world = World::stopped().await;
    let crds: Api<CustomResourceDefinition> = Api::all(world.api.client());
    crds.delete("gadgets.sedna.io", &DeleteParams::default()).await.unwrap();
    world.run();
    world.settle().await;
    let told = world.told();
    assert!(
        told.iter().all(|told| *told == Told::Unknown) && !told.is_empty(),
        "{told:?}"
    );
    crds.create(&PostParams::default(), &Gadget::crd()).await.unwrap();
    world.settle().await;
    assert_eq!(world.told(), [Told::Listed(vec![])]);
}

/// What a standby knows may be old: its watch may have failed for as long as it stood by.
#[tokio::test(start_paused = true)]
async fn a_term_begins_with_a_list_of_its_own() {
    let world = World::stopped().await;
    world.leads.send_replace(false);
    world.create("a", gadget(80)).await;
    let watches = Match::any().user(MANAGER).verb(Verb::Watch).resource("gadgets");
    world.api.faults().inject(watches, Fault::InternalError);
    world.run();
    world.settle().await;
    world.create("b", gadget(81)).await;
    let lists = lists_fail(&world, "gadgets");
    world.told();
    world.leads.send_replace(true);
    world.settle().await;
    assert!(world.told().iter().all(|told| *told == Told::Unknown));
    lists.remove();
    world.settle().await;
    assert_eq!(world.told(), [Told::Listed(vec!["a".into(), "b".into()])]);
}

#[tokio::test(start_paused = true)]
async fn a_report_becomes_status_once_and_what_the_manager_writes_leaves_it_alone() {
    use skerry_globalmanager::engine::Taken;
    let world = World::start().await;
    let made = world.create("a", gadget(80)).await;
    let uid = made.uid().unwrap();
    let mark = world.api.requests().mark();
    for _ in 0..3 {
        let taken = world
            .engine
            .take_report("edge-1", "gadget", "default", "a", &uid, Payload::Samples(7))
            .await;
        assert_eq!(taken, Taken::Accepted);
    }
    assert_eq!(world.writes_since(mark), ["patch gadgets status a"]);
    world.services().delete("a", &DeleteParams::default()).await.unwrap();
    world.settle().await;
    assert_eq!(world.status("a").await.samples, Some(7));
    let refused = world
        .engine
        .take_report("edge-1", "gadget", "default", "a", "another", Payload::Samples(8))
        .await;
    assert!(matches!(refused, Taken::Refused(_)), "{refused:?}");
}

/// What is refused is lost; what a manager knows may be older than what its node holds.
#[tokio::test(start_paused = true)]
async fn a_report_on_a_resource_that_is_not_known_yet_is_taken() {
    use skerry_globalmanager::engine::Taken;
    let world = World::stopped().await;
    let watches = Match::any().user(MANAGER).verb(Verb::Watch).resource("gadgets");
    world.api.faults().inject(watches, Fault::InternalError);
    world.run();
    world.settle().await;
    let made = world.create("late", gadget(80)).await;
    let take = |name: &'static str, uid: String| {
        let engine = world.engine.clone();
        async move {
            let payload = Payload::Samples(7);
            engine
                .take_report("edge-1", "gadget", "default", name, &uid, payload)
                .await
        }
    };
    assert_eq!(take("late", made.uid().unwrap()).await, Taken::Accepted);
    assert_eq!(world.status("late").await.samples, Some(7));
    assert!(matches!(take("never", "u".into()).await, Taken::Refused(_)));
    let fault = Match::any().user(MANAGER).verb(Verb::Get).resource("gadgets");
    world.api.faults().inject(fault, Fault::InternalError);
    assert!(matches!(take("never", "u".into()).await, Taken::Later(_)));
}

#[tokio::test(start_paused = true)]
async fn stopping_finishes_what_is_under_way() {
    let world = World::start().await;
    world.create("a", gadget(80)).await;
    world.stop.cancel();
    let mark = world.api.requests().mark();
    world.create("b", gadget(80)).await;
    assert_eq!(world.writes_since(mark), Vec::<String>::new());
}
