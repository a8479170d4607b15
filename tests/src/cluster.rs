//! Real control planes for scenarios. `SKERRY_CONTROL_PLANES` names a file with their list; whoever runs the scenarios on
//! the real thing starts them. A scenario has one to itself, cleaned of what others left.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use futures::{StreamExt, future::join_all, stream};
use hyper_util::rt::TokioExecutor;
use k8s_openapi::{
    api::core::v1::{Namespace, Node, ServiceAccount},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{ApiResource, DeleteParams, ListParams, Patch, PatchParams, PostParams},
    client::{ConfigExt, retry::RetryPolicy},
    config::{KubeConfigOptions, Kubeconfig},
    core::DynamicObject,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use skerry_sandbox::{api::Wire, cluster::NodeSpec};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    sync::{Semaphore, watch},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tower::{BoxError, ServiceBuilder, retry::RetryLayer};

use crate::{
    calm::{Awaited, Objects},
    definitions::is_served,
    look::text,
    loopback::HTTP,
    server::make_namespace,
    world::NAMESPACE,
};

/// The variable that names the file with the list of control planes.
pub const CONTROL_PLANES: &str = "SKERRY_CONTROL_PLANES";

/// A control plane, as the list has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plane {
    /// The kubeconfig of a user who may do everything and impersonate everybody.
    pub kubeconfig: PathBuf,
    /// Where etcd's HTTP interface is.
    pub etcd: String,
    /// The socket of its control, which takes it down and up again.
    pub control: PathBuf,
    /// The kubeconfig of managers: of a user who has the chart's role, and nothing more.
    pub manager: Option<PathBuf>,
    /// The definitions that were made known here last, by name: their specs, and the generations that these got.
    #[serde(skip)]
    defined: Arc<Mutex<BTreeMap<String, (Value, i64)>>>,
    /// Locked by the process that uses it: several programs are lent the same.
    #[serde(skip)]
    lock: Option<Arc<File>>,
}

impl Plane {
    /// Whether no other process uses it; then this one does, until [`Plane::give_back`].
    fn claim(&mut self) -> bool {
        let lock = self.lock.get_or_insert_with(|| {
            let beside = self.control.with_extension("lock");
            Arc::new(File::create(beside).expect("the plane's folder can be written"))
        });
        lock.try_lock().is_ok()
    }

    fn give_back(&self) {
        if let Some(lock) = &self.lock {
            lock.unlock().expect("the plane's lock is held");
        }
    }

    /// Has its control do something: `kill the API server`, `stop the API server`, `stop etcd`, `restore`; until it is done.
    pub async fn command(&self, command: &str) {
        let mut control = UnixStream::connect(&self.control)
            .await
            .expect("the plane has a control");
        control
            .write_all(format!("{command}\n").as_bytes())
            .await
            .expect("the control takes commands");
        let mut answer = String::new();
        control.read_to_string(&mut answer).await.expect("the control answers");
        assert_eq!(answer.trim(), "ok", "{command}");
    }

    /// Has etcd forget the history before a revision.
    pub async fn compact(&self, revision: u64) {
        self.ask_etcd(
            "compaction",
            json!({"revision": revision.to_string(), "physical": true}),
        )
        .await;
    }

    /// The kinds, by their plurals, of which there is anything in the namespace of the scenarios but Kubernetes' own. By the
    /// names of all that etcd keeps: one question instead of a list of each kind, most of which are empty.
    async fn left_in_namespace(&self) -> BTreeSet<String> {
        let all =
            json!({"key": BASE64.encode("/registry/"), "range_end": BASE64.encode("/registry0"), "keys_only": true});
        let answer = self.ask_etcd("range", all).await;
        let keys = answer["kvs"].as_array().into_iter().flatten();
        let keys = keys.map(|entry| BASE64.decode(text(entry, "/key")).expect("etcd's keys are base64"));
        keys.filter_map(|key| kind_of_key(&String::from_utf8_lossy(&key)))
            .collect()
    }

    async fn ask_etcd(&self, what: &str, with: Value) -> Value {
        let url = format!("{}/v3/kv/{what}", self.etcd);
        let answer = HTTP.post(url).body(with.to_string()).send().await;
        let answer = answer.expect("etcd answers");
        assert!(answer.status().is_success(), "{answer:?}");
        let answer = answer.bytes().await.expect("etcd answers to the end");
        serde_json::from_slice(&answer).expect("etcd answers in JSON")
    }
}

/// The kind of an object in the namespace of the scenarios, by its key in etcd: `/registry/pods/scenario/surface-train-0`, or
/// `/registry/sedna.io/models/scenario/small`.
fn kind_of_key(key: &str) -> Option<String> {
    let (kind, object) = key.split_once(&format!("/{NAMESPACE}/"))?;
    let plural = match kind.rsplit_once('/')?.1 {
        "specs" => "services",
        "configmaps" if object == KUBERNETES_OWN => return None,
        plural => plural,
    };
    Some(plural.to_owned())
}

/// Whether control planes are lent to this process.
pub fn is_lent() -> bool {
    IDLE.is_some()
}

/// Control planes that nobody uses right now; nothing where scenarios run in memory.
static IDLE: LazyLock<Option<Idle>> = LazyLock::new(|| {
    let file = env::var_os(CONTROL_PLANES)?;
    let list = fs::read(&file).expect("the list of control planes can be read");
    let planes: Vec<Plane> = serde_json::from_slice(&list).expect("the list of control planes is JSON");
    Some(Idle {
        all: planes.len(),
        free: Semaphore::new(planes.len()),
        planes: Mutex::new(planes),
        turn: Semaphore::new(1),
    })
});

struct Idle {
    all: usize,
    planes: Mutex<Vec<Plane>>,
    /// As many as this process does not use; waits in order.
    free: Semaphore,
    /// Whoever looks for one that no other process uses.
    turn: Semaphore,
}

impl Idle {
    /// How often it is looked whether another process has given one back.
    const LOOK: Duration = Duration::from_millis(20);

    async fn take(&self) -> Option<Plane> {
        self.free.acquire().await.ok()?.forget();
        let _turn = self.turn.acquire().await.ok()?;
        loop {
            {
                let mut planes = self.planes.lock().unwrap();
                if let Some(unused) = planes.iter_mut().position(Plane::claim) {
                    return Some(planes.swap_remove(unused));
                }
            }
            sleep(Self::LOOK).await;
        }
    }

    fn give_back(&self, plane: Plane) {
        plane.give_back();
        self.planes.lock().unwrap().push(plane);
        self.free.add_permits(1);
    }
}

/// Does the same with each of these: side by side, with a control plane each, or one after the other in memory, where
/// their time would be one.
pub async fn side_by_side<T, R>(each: impl IntoIterator<Item = T>, act: impl AsyncFn(T) -> R) -> Vec<R> {
    let at_once = IDLE.as_ref().map_or(1, |idle| idle.all);
    stream::iter(each).map(|one| act(one)).buffered(at_once).collect().await
}

/// The kinds of objects that scenarios make.
const KINDS: [(&str, &str, &str); 14] = [
    ("sedna.io/v1alpha1", "JointInferenceService", "jointinferenceservices"),
    ("sedna.io/v1alpha1", "FederatedLearningJob", "federatedlearningjobs"),
    ("sedna.io/v1alpha1", "VideoAnalyticsJob", "videoanalyticsjobs"),
    ("sedna.io/v1alpha1", "Dataset", "datasets"),
    ("sedna.io/v1alpha1", "Model", "models"),
    ("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
    ("apps/v1", "Deployment", "deployments"),
    ("apps/v1", "ReplicaSet", "replicasets"),
    ("v1", "Pod", "pods"),
    ("v1", "Service", "services"),
    ("v1", "Secret", "secrets"),
    ("v1", "ConfigMap", "configmaps"),
    ("coordination.k8s.io/v1", "Lease", "leases"),
    ("events.k8s.io/v1", "Event", "events"),
];

/// What Kubernetes itself keeps in the namespace.
const KUBERNETES_OWN: &str = "kube-root-ca.crt";

/// Objects of these kinds change without end, or do not tell that anything is under way.
const RESTLESS: [&str; 4] = ["Event", "Lease", "ConfigMap", "Secret"];

/// The pause between two looks at a control plane; with a round trip to its API server and to etcd, unless it is plain that
/// somebody is at work.
const LOOK: Duration = Duration::from_millis(40);
/// What a round trip counts for at most, where it takes long: an API server that is down may never answer.
const LONGEST: Duration = Duration::from_millis(250);
/// So many looks without a change tell that nothing more is to come, where nothing is under way.
const CALM: u32 = 4;
/// And so many, where something is that may never come to an end. On a busy machine its next step may take seconds.
const STUCK: u32 = 60;
/// A manager that is at work for so long without a change of anything tries again and again what fails for good: here that
/// is after a second, and a watch that was lost is there again after five.
const IN_VAIN: Duration = Duration::from_secs(8);
/// A connection that nobody used for so long is closed by us. The API server closes it after 90 s, as kube's own client
/// does: then a user's request may be on its way while it is closed, and ends without an answer.
const UNUSED: Duration = Duration::from_secs(45);
/// How long is waited for what is sure to come to an end: when definitions have come or gone, the garbage collector stops
/// until it knows all kinds, for half a minute at a time.
const SURELY: Duration = Duration::from_secs(90);

/// A control plane for the time of a scenario.
pub struct Borrowed {
    /// The way to it.
    pub wire: Wire,
    /// A client whose requests are not counted.
    pub admin: Client,
    manager: Option<Client>,
    /// How it was lent.
    pub plane: Plane,
    seen: watch::Receiver<u64>,
    objects: Arc<Mutex<Objects>>,
    _watches: JoinSet<()>,
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(idle) = IDLE.as_ref() {
            idle.give_back(self.plane.clone());
        }
    }
}

impl Borrowed {
    /// Waits for a control plane, and cleans it. These nodes stay, where nobody did anything to them.
    pub async fn take(nodes: &[NodeSpec]) -> Option<Self> {
        let idle = IDLE.as_ref()?;
        let plane = idle.take().await?;
        // A scenario that failed may have left it down.
        plane.command("restore").await;
        // Another test may have been first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let admin = client(&plane.kubeconfig).await;
        let manager = match &plane.manager {
            Some(kubeconfig) => Some(client(kubeconfig).await),
            None => None,
        };
        clean(&plane, &admin, nodes).await;
        let (told, seen) = watch::channel(0);
        let objects = Arc::<Mutex<Objects>>::default();
        let mut watches = JoinSet::new();
        for (version, kind, plural) in KINDS.into_iter().filter(|(_, kind, _)| !RESTLESS.contains(kind)) {
            let api = api(&admin, version, kind, plural);
            watches.spawn(follow(api, kind, objects.clone(), told.clone()));
        }
        Some(Self {
            wire: Wire::new(admin.clone()),
            admin,
            manager,
            plane,
            seen,
            objects,
            _watches: watches,
        })
    }

    /// A client that speaks as `user`, who may do everything.
    pub fn client_as(&self, user: &str) -> Client {
        self.wire.client_as(user, &["system:masters"])
    }

    /// A client that speaks as the manager does that the chart installs. Faults and the log know it as `name`.
    pub fn manager(&self, name: &str) -> Client {
        let manager = self.manager.clone().expect("the plane has an account for managers");
        self.wire.client_over(manager, name)
    }

    /// Resolves when nothing more is to come: nothing changes, nobody here or there is at work. Counted in round trips
    /// rather than in seconds, so that a busy machine is waited for. After `limit` nothing is waited for that may never
    /// come: what fails for good is tried again for ever.
    pub async fn calm(&self, limit: Duration, is_idle: impl Fn() -> bool) {
        let begun = Instant::now();
        let namespaces: Api<Namespace> = Api::all(self.admin.clone());
        let (mut still, mut seen) = (0, *self.seen.borrow());
        let mut changed = begun;
        let mut round_trip = Duration::ZERO;
        loop {
            // Where an answer takes long, so does what it is asked after: the machine is busy.
            sleep(LOOK.max(2 * round_trip)).await;
            if still > 0 {
                let asked = Instant::now();
                // Down or not: that is what the scenario is about.
                let _ = timeout(limit, namespaces.get_metadata(NAMESPACE)).await;
                round_trip = asked.elapsed().min(LONGEST);
            }
            let newest = *self.seen.borrow();
            let is_still = newest == seen && !self.wire.is_asked() && is_idle();
            still = if is_still { still + 1 } else { 0 };
            if newest != seen {
                changed = Instant::now();
            }
            seen = newest;
            let (enough, limit) = match self.objects.lock().unwrap().under_way() {
                None if changed.elapsed() >= IN_VAIN => {
                    eprintln!("not waited for any longer: a manager that tries in vain");
                    return;
                }
                None => (CALM, limit),
                Some(Awaited::Perhaps(_)) => (STUCK, limit),
                Some(Awaited::Surely(_)) => (u32::MAX, limit.max(SURELY)),
            };
            if still >= enough || begun.elapsed() >= limit {
                return;
            }
        }
    }

    /// Makes definitions known as these are, whatever they were before, unless nothing has changed since this was last
    /// done. None is ever deleted: the garbage collector needs half a minute to learn of a new kind, and the API server
    /// much time for each change.
    pub async fn define(&self, definitions: &[CustomResourceDefinition]) {
        let defining = definitions.iter().map(|definition| self.define_one(definition));
        join_all(defining).await;
    }

    async fn define_one(&self, definition: &CustomResourceDefinition) {
        let api: Api<CustomResourceDefinition> = Api::all(self.admin.clone());
        let name = definition.name_any();
        let spec = serde_json::to_value(&definition.spec).expect("a definition is JSON");
        loop {
            let known = api.get_metadata_opt(&name).await.expect("definitions can be read");
            let generation = known.as_ref().and_then(|known| known.metadata.generation);
            let last = self.plane.defined.lock().unwrap().get(&name).cloned();
            if generation.is_some() && last == generation.map(|generation| (spec.clone(), generation)) {
                return;
            }
            let mut wanted = definition.clone();
            let made = match known {
                None => api.create(&PostParams::default(), &wanted).await,
                Some(known) => {
                    wanted.metadata.resource_version = known.metadata.resource_version;
                    // As if nobody had ever applied it.
                    wanted.metadata.managed_fields = Some(vec![]);
                    api.replace(&name, &PostParams::default(), &wanted).await
                }
            };
            match made {
                Ok(made) => {
                    let generation = made.metadata.generation.unwrap_or_default();
                    self.plane.defined.lock().unwrap().insert(name, (spec, generation));
                    return is_served(&self.admin, definition).await;
                }
                // Its controllers write, too.
                Err(error) if matches!(&error, kube::Error::Api(status) if status.code == 409) => {}
                Err(error) => panic!("the definition {name} is refused: {error}"),
            }
        }
    }
}

/// A client of whoever the kubeconfig is for, which is as kube makes it but for [`UNUSED`].
async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("the kubeconfig can be read");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let config = config.expect("the kubeconfig is one");
    let connector = config
        .rustls_https_connector()
        .expect("the kubeconfig has certificates");
    let connections = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .pool_idle_timeout(UNUSED)
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        // What the API server asks to be tried again, while it takes a definition over say, is.
        .layer(RetryLayer::new(RetryPolicy::server_retry()))
        .option_layer(config.auth_layer().expect("the kubeconfig has credentials"))
        .map_err(BoxError::from)
        .service(connections);
    Client::new(service, config.default_namespace)
}

/// Keeps up with the objects of a kind.
async fn follow(api: Api<DynamicObject>, kind: &'static str, objects: Arc<Mutex<Objects>>, told: watch::Sender<u64>) {
    let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        {
            let mut objects = objects.lock().unwrap();
            match event {
                Ok(Event::Apply(object)) => {
                    objects.seen(kind, object);
                    objects.heard(kind);
                }
                Ok(Event::Delete(object)) => {
                    objects.gone(kind, &object);
                    objects.heard(kind);
                }
                Ok(Event::Init) => objects.listed_anew(kind),
                Ok(Event::InitApply(object)) => objects.seen(kind, object),
                Ok(Event::InitDone) => objects.heard(kind),
                Err(_) => objects.lost(kind),
            }
        }
        told.send_modify(|seen| *seen += 1);
    }
}

/// Scenarios are written for time that stands still while anybody works. Here others work, in other processes.
pub(crate) fn let_time_pass() {
    use std::cell::Cell;
    thread_local! { static RESUMED: Cell<Option<tokio::runtime::Id>> = const { Cell::new(None) }; }
    let runtime = tokio::runtime::Handle::current().id();
    if RESUMED.replace(Some(runtime)) != Some(runtime) {
        tokio::time::resume();
    }
}

fn api(client: &Client, version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let mut resource = ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(group, version, kind));
    plural.clone_into(&mut resource.plural);
    Api::namespaced_with(client.clone(), NAMESPACE, &resource)
}

/// Takes away what a scenario left, and makes our kinds known as they are to be.
async fn clean(plane: &Plane, admin: &Client, wanted: &[NodeSpec]) {
    let nodes: Api<Node> = Api::all(admin.clone());
    let known = nodes.list(&ListParams::default()).await.expect("nodes can be listed");
    let of_others = |node: &&Node| !wanted.iter().any(|wanted| wanted.is_as_made_known(node));
    for node in known.iter().filter(of_others) {
        // Whoever has no kubelet any more would never go by itself.
        match nodes.delete(&node.name_any(), &DeleteParams::default()).await {
            Err(error) if !matches!(&error, kube::Error::Api(status) if status.code == 404) => {
                panic!("nodes can be deleted: {error}")
            }
            _ => {}
        }
    }
    make_namespace(admin).await;
    // What one controller takes away, another may still make anew.
    loop {
        let left = plane.left_in_namespace().await;
        let kinds = KINDS.into_iter().filter(|(_, _, plural)| left.contains(*plural));
        let cleaning: Vec<_> = kinds.map(|kind| clean_of(admin, kind)).collect();
        if cleaning.is_empty() {
            break;
        }
        join_all(cleaning).await;
        sleep(Duration::from_millis(20)).await;
    }
    // Without it no pod is admitted.
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), NAMESPACE);
    while !matches!(accounts.get_opt("default").await, Ok(Some(_))) {
        sleep(Duration::from_millis(20)).await;
    }
}

/// Has all objects of a kind deleted.
async fn clean_of(admin: &Client, (version, kind, plural): (&str, &str, &str)) {
    let api = api(admin, version, kind, plural);
    let not_kubernetes_own = ListParams::default().fields(&format!("metadata.name!={KUBERNETES_OWN}"));
    // Of a kind that is not known any more there are none to be had.
    let listed = api.list_metadata(&not_kubernetes_own).await;
    for held in listed
        .into_iter()
        .flatten()
        .filter(|object| object.metadata.finalizers.is_some())
    {
        let without = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        // Gone meanwhile is as good.
        let _ = api.patch(&held.name_any(), &PatchParams::default(), &without).await;
    }
    let at_once = DeleteParams::background().grace_period(0);
    let _ = api.delete_collection(&at_once, &not_kubernetes_own).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_etcds_tells_the_kind_and_whether_it_is_the_scenarios() {
        let kind = |key| kind_of_key(key).unwrap_or_default();
        assert_eq!(kind("/registry/pods/scenario/surface-train-0"), "pods");
        assert_eq!(kind("/registry/services/specs/scenario/helmet-cloud"), "services");
        assert_eq!(kind("/registry/sedna.io/models/scenario/small"), "models");
        assert_eq!(kind("/registry/configmaps/scenario/of-a-user"), "configmaps");
        assert_eq!(kind("/registry/configmaps/scenario/kube-root-ca.crt"), "");
        assert_eq!(kind("/registry/pods/another/scenario"), "");
        assert_eq!(kind("/registry/namespaces/scenario"), "");
    }
}
