//! Real control planes for scenarios. `SKERRY_CONTROL_PLANES` names a file with their list; whoever runs the scenarios on
//! the real thing starts them. A scenario has one to itself, cleaned of what others left.

use std::{
    collections::BTreeMap,
    env, fs,
    path::PathBuf,
    sync::{Condvar, LazyLock, Mutex},
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{ApiResource, DeleteParams, ListParams, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::DynamicObject,
    runtime::{WatchStreamExt, watcher},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use skerry_sandbox::api::Wire;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    sync::watch,
    task::JoinSet,
    time::Instant,
};

use crate::{server::make_namespace, world::NAMESPACE};

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
}

impl Plane {
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
}

/// Whether control planes are lent to this process.
pub fn is_lent() -> bool {
    IDLE.is_some()
}

/// Control planes that nobody uses right now; nothing where scenarios run in memory.
static IDLE: LazyLock<Option<(Mutex<Vec<Plane>>, Condvar)>> = LazyLock::new(|| {
    let file = env::var_os(CONTROL_PLANES)?;
    let list = fs::read(&file).expect("the list of control planes can be read");
    let planes = serde_json::from_slice(&list).expect("the list of control planes is JSON");
    Some((Mutex::new(planes), Condvar::new()))
});

/// The kinds of objects that scenarios make, in the order in which they are cleaned away.
const KINDS: [(&str, &str, &str); 14] = [
    ("sedna.io/v1alpha1", "JointInferenceService", "jointinferenceservices"),
    ("sedna.io/v1alpha1", "FederatedLearningJob", "federatedlearningjobs"),
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
    ("discovery.k8s.io/v1", "EndpointSlice", "endpointslices"),
    ("events.k8s.io/v1", "Event", "events"),
];

/// What Kubernetes itself keeps in the namespace.
const KUBERNETES_OWN: &str = "kube-root-ca.crt";

/// Objects of these kinds change without end, or do not tell that anything is under way.
const RESTLESS: [&str; 4] = ["Event", "Lease", "ConfigMap", "Secret"];

/// A control plane for the time of a scenario.
pub struct Borrowed {
    /// The way to it.
    pub wire: Wire,
    /// A client whose requests are not counted.
    pub admin: Client,
    /// How it was lent.
    pub plane: Plane,
    last_change: watch::Receiver<Instant>,
    _watches: JoinSet<()>,
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some((idle, returned)) = IDLE.as_ref() {
            idle.lock().unwrap().push(self.plane.clone());
            returned.notify_one();
        }
    }
}

impl Borrowed {
    /// Waits for a control plane, and cleans it.
    pub async fn take() -> Option<Self> {
        let (idle, returned) = IDLE.as_ref()?;
        let plane = {
            let mut idle = returned
                .wait_while(idle.lock().unwrap(), |idle| idle.is_empty())
                .unwrap();
            idle.pop()?
        };
        // A scenario that failed may have left it down.
        plane.command("restore").await;
        // Another test may have been first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let kubeconfig = Kubeconfig::read_from(&plane.kubeconfig).expect("the kubeconfig can be read");
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let admin = Client::try_from(config.expect("the kubeconfig is one")).expect("a client can be made");
        clean(&admin).await;
        let (told, last_change) = watch::channel(Instant::now());
        let mut watches = JoinSet::new();
        for (version, kind, plural) in KINDS.into_iter().filter(|(_, kind, _)| !RESTLESS.contains(kind)) {
            let api = api(&admin, version, kind, plural);
            let told = told.clone();
            watches.spawn(async move {
                let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
                while let Some(_change) = events.next().await {
                    told.send_replace(Instant::now());
                }
            });
        }
        Some(Self {
            wire: Wire::new(admin.clone()),
            admin,
            plane,
            last_change,
            _watches: watches,
        })
    }

    /// A client that speaks as `user`, who may do everything.
    pub fn client_as(&self, user: &str) -> Client {
        self.wire.client_as(user, &["system:masters"])
    }

    /// Resolves when nothing has changed for so long, counted from now.
    pub async fn quiet(&self, time: Duration) {
        let begun = Instant::now();
        loop {
            let since = begun.max(*self.last_change.borrow());
            if since.elapsed() >= time {
                return;
            }
            tokio::time::sleep_until(since + time).await;
        }
    }

    /// Has etcd forget the history before a revision.
    pub async fn compact(&self, revision: u64) {
        let url = format!("{}/v3/kv/compaction", self.plane.etcd);
        let asked = json!({"revision": revision.to_string(), "physical": true});
        let answer = reqwest::Client::new().post(url).body(asked.to_string()).send().await;
        let answer = answer.expect("etcd answers");
        assert!(answer.status().is_success(), "{answer:?}");
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
async fn clean(admin: &Client) {
    let nodes: Api<Node> = Api::all(admin.clone());
    let all = DeleteParams::default();
    // Whoever has no kubelet any more would never go by itself.
    nodes
        .delete_collection(&all, &ListParams::default())
        .await
        .expect("nodes can be deleted");
    make_namespace(admin).await;
    let at_once = DeleteParams::background().grace_period(0);
    loop {
        let mut left = BTreeMap::new();
        for (version, kind, plural) in KINDS {
            let api = api(admin, version, kind, plural);
            // Of a kind that is not known there are none.
            let listed = api.list(&ListParams::default()).await;
            for object in listed.into_iter().flatten() {
                let name = object.name_any();
                if name == KUBERNETES_OWN {
                    continue;
                }
                if object.metadata.finalizers.is_some() {
                    let without = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                    let _ = api.patch(&name, &PatchParams::default(), &without).await;
                }
                // Gone meanwhile is as good.
                let _ = api.delete(&name, &at_once).await;
                left.insert((kind, name), object);
            }
        }
        if left.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Without it no pod is admitted.
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), NAMESPACE);
    while !matches!(accounts.get_opt("default").await, Ok(Some(_))) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
