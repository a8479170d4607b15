//! A real control plane for the time of a scenario, which has it to itself, cleaned of what others left.

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt, future::join_all};
use hyper_util::rt::TokioExecutor;
use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{GetParams, PostParams},
    client::{ConfigExt, retry::RetryPolicy},
    config::{KubeConfigOptions, Kubeconfig},
    core::DynamicObject,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use skerry_sandbox::{api::Wire, cluster::NodeSpec};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tower::{BoxError, ServiceBuilder, retry::RetryLayer};

use crate::{
    calm::{Awaited, Objects},
    cleaning::{KINDS, api, clean},
    definitions::is_served,
    planes::{self, Plane},
    world::NAMESPACE,
};

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
        planes::give_back(self.plane.clone());
    }
}

impl Borrowed {
    /// Waits for a control plane, and cleans it. These nodes stay, where nobody did anything to them.
    pub async fn take(nodes: &[NodeSpec]) -> Option<Self> {
        let plane = planes::take().await?;
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
    pub async fn define(&self, definitions: impl IntoIterator<Item = &CustomResourceDefinition>) {
        let defining = definitions.into_iter().map(|definition| self.define_one(definition));
        join_all(defining).await;
    }

    /// Whether this definition was the last one that was made known here under its name, and got this generation.
    fn is_defined(&self, name: &str, definition: &CustomResourceDefinition, generation: i64) -> bool {
        let defined = self.plane.defined.lock().unwrap();
        // Compared where it is: it has thousands of fields, and each scenario begins with this.
        defined
            .get(name)
            .is_some_and(|(spec, last)| *last == generation && *spec == definition.spec)
    }

    async fn define_one(&self, definition: &CustomResourceDefinition) {
        let api: Api<CustomResourceDefinition> = Api::all(self.admin.clone());
        let name = definition.name_any();
        loop {
            // As the API server remembers it: otherwise it reads all of it anew.
            let known = api.get_metadata_opt_with(&name, &GetParams::any()).await;
            let known = known.expect("definitions can be read");
            let generation = known.as_ref().and_then(|known| known.metadata.generation);
            if generation.is_some_and(|generation| self.is_defined(&name, definition, generation)) {
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
                    let defined = (definition.spec.clone(), generation);
                    self.plane.defined.lock().unwrap().insert(name, defined);
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
