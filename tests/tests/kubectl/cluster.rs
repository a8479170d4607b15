//! A cluster and the `kubectl` that talks to it: a sandbox, or a real control plane where one is lent.

use std::{collections::BTreeMap, ops::Deref, time::Duration};

use jiff::Timestamp;
use skerry_sandbox::{
    api::{Clock, Verb},
    cluster::{Behaviour, FakeKubelet, Image, Images, NodeSpec, Options, Sandbox},
};
use skerry_tests::{
    NAMESPACE,
    cluster::Borrowed,
    kubectl::{Kubectl, PATIENCE},
    tools::kubectl_is_there,
    world::BEAT,
};
use tempfile::TempDir;
use tokio::time::timeout;

/// A deployment of two pods that come up, and the service before them.
pub const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: main, image: 'sleeper:1', ports: [{containerPort: 80}], env: [{name: COLOUR, value: red}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
";

/// Two nodes; images `sleeper:1` and `sleeper:2` do nothing, `ticker:1` prints a line ten times a second, `ender:1`
/// fails. On a real control plane the nodes are stand-ins, which run nothing and have no logs.
pub struct Cluster {
    kubectl: Kubectl,
    /// The namespace of whoever names none.
    pub namespace: &'static str,
    backend: Backend,
}

enum Backend {
    Sandbox {
        sandbox: Box<Sandbox>,
        _state: TempDir,
    },
    Real {
        _plane: Box<Borrowed>,
        _kubelets: FakeKubelet,
    },
}

impl Deref for Cluster {
    type Target = Kubectl;

    fn deref(&self) -> &Kubectl {
        &self.kubectl
    }
}

impl Cluster {
    /// Starts one; `None` where there is no `kubectl` to talk to it.
    pub async fn start() -> Option<Self> {
        if !kubectl_is_there() {
            return None;
        }
        match Borrowed::take(&nodes()).await {
            Some(plane) => Some(Self::real(plane).await),
            None => Some(Self::sandbox().await),
        }
    }

    async fn sandbox() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut options = Options::new(folder.path().join("state"));
        options.nodes = nodes().into();
        options.images = images();
        let sandbox = Sandbox::start(options).await.unwrap();
        Self {
            kubectl: Kubectl::new(&sandbox.kubeconfig(), "default"),
            namespace: "default",
            backend: Backend::Sandbox {
                sandbox: Box::new(sandbox),
                _state: folder,
            },
        }
    }

    async fn real(plane: Borrowed) -> Self {
        let kubeconfig = std::fs::read_to_string(&plane.plane.kubeconfig).unwrap();
        let kubectl = Kubectl::new(&kubeconfig, NAMESPACE);
        let clock = Clock::starting_at(Timestamp::now());
        let kubelets = FakeKubelet::spawn(plane.admin.clone(), clock, nodes()).await.unwrap();
        kubelets.beat_every(BEAT);
        kubelets.behave(|pod| match pod.spec.as_ref()?.containers.first()?.image.as_deref()? {
            "nowhere:1" => Some(Behaviour::BadImage),
            "ender:1" => Some(Behaviour::Exit {
                after: Duration::from_secs(1),
                code: 3,
            }),
            _ => None,
        });
        Self {
            kubectl,
            namespace: NAMESPACE,
            backend: Backend::Real {
                _plane: Box::new(plane),
                _kubelets: kubelets,
            },
        }
    }

    /// How many watches of configuration maps there have been, or are: one more when a new one is open.
    pub async fn watches_of_config_maps(&self) -> usize {
        match &self.backend {
            Backend::Sandbox { sandbox, .. } => {
                let all = sandbox.server().requests().all();
                let requests = all.iter().map(|entry| &entry.request);
                requests
                    .filter(|asked| asked.verb == Verb::Watch && asked.resource == "configmaps")
                    .count()
            }
            Backend::Real { .. } => {
                let metrics = self.ok(&["get", "--raw", "/metrics"]).await;
                let watches = metrics.lines().filter(|line| {
                    line.starts_with("apiserver_longrunning_requests{")
                        && line.contains("resource=\"configmaps\"")
                        && line.contains("verb=\"WATCH\"")
                });
                let count = |line: &str| line.rsplit(' ').next()?.parse::<usize>().ok();
                watches.filter_map(count).sum()
            }
        }
    }

    /// Waits until there are more of them.
    pub async fn another_watch(&self, before: usize) {
        let waiting = async {
            let mut look = tokio::time::interval(Duration::from_millis(20));
            while self.watches_of_config_maps().await <= before {
                look.tick().await;
            }
        };
        timeout(PATIENCE, waiting).await.expect("the resource is watched");
    }

    /// Whether pods are processes, which they are not on stand-ins.
    pub fn has_processes(&self) -> bool {
        matches!(self.backend, Backend::Sandbox { .. })
    }

    /// Ends it.
    pub async fn end(self) {
        if let Backend::Sandbox { sandbox, .. } = self.backend {
            sandbox.shutdown().await;
        }
    }
}

fn nodes() -> [NodeSpec; 2] {
    [NodeSpec::cloud("cloud-1"), NodeSpec::edge("edge-1")]
}

fn images() -> Images {
    let run = |command: &[&str]| Image {
        command: command.iter().map(|&word| word.to_owned()).collect(),
        env: BTreeMap::new(),
        ..Image::default()
    };
    let mut images = Images::default();
    images.add("sleeper:1", run(&["sleep", "3600"]));
    images.add("sleeper:2", run(&["sleep", "3601"]));
    images.add("ender:1", run(&["sh", "-c", "echo the end; exit 3"]));
    images.add("ticker:1", run(&["sh", "-c", "while :; do echo tick; sleep 0.1; done"]));
    images
}
