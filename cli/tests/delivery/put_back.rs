//! A node's store that is replaced by a copy of before, while managers are killed and others lead: what was reported and
//! answered takes no effect again, and what is reported from then on does, whatever its number.

use std::{fmt::Debug, future::Future, time::Duration};

use k8s_openapi::{NamespaceResourceScope, api::core::v1::Pod};
use kube::{
    Api, Resource,
    api::{ListParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use skerry_crds::{
    names::env::WORKER_NAME,
    sedna::v1alpha1::{Dataset, FederatedLearningJob, Model, Round},
};
use skerry_sandbox::ApiServer;
use skerry_tests::{definitions::KINDS, loopback::serve};
use tempfile::TempDir;
use tokio::time::{interval, timeout};

use crate::{
    NODE,
    parts::{Manager, Node, PATIENCE, last_words},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_old_store_says_again_takes_no_effect_and_what_it_says_from_then_on_does() {
    let mut world = World::start().await;
    // While the manager is away, this waits in the store of which the copy is made.
    world.manager.kill();
    for round in 1..=4 {
        world.report("first", round).await;
    }
    let copy = world.node.copy();
    world.manager.start();
    world.node.start();
    world.rounds_are(&["1 first", "2 first", "3 first", "4 first"]).await;
    // A trainer that was made anew begins anew.
    world.report("second", 1).await;
    world.report("second", 2).await;
    world.rounds_are(&["1 second", "2 second"]).await;

    for _again in 0..2 {
        world.manager.kill();
        world.node.put_back(&copy);
        world.manager.start();
        world.node.start();
        world.all_is_answered().await;
        world.rounds_are(&["1 second", "2 second"]).await;
    }

    // Where the copy counts on from, these numbers were given before.
    world.report("second", 3).await;
    world.rounds_are(&["1 second", "2 second", "3 second"]).await;
}

struct World {
    manager: Manager,
    node: Node,
    api: ApiServer,
    /// The `WORKER_NAME` of the only trainer.
    trainer: String,
    _folder: TempDir,
}

impl World {
    /// With a job whose trainer is on the node, which has heard of it.
    async fn start() -> Self {
        // Another test may have been first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let api = serve(folder.path(), &KINDS).await;
        let mut manager = Manager::new(folder.path(), "manager", &folder.path().join("kubeconfig"));
        let mut node = Node::new(folder.path(), NODE, manager.port);
        manager.start();
        node.start();
        let mut world = Self {
            manager,
            node,
            api,
            trainer: String::new(),
            _folder: folder,
        };
        let template = |node: &str| json!({"spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}});
        let dataset = json!({"url": "/d.csv", "format": "csv", "nodeName": NODE});
        let job = json!({
            "aggregationWorker": {"model": {"name": "m"}, "template": template("cloud-1")},
            "trainingWorkers": [{"dataset": {"name": "d"}, "template": template(NODE)}],
        });
        world
            .create::<Model>("m", &json!({"url": "/m", "format": "ckpt"}))
            .await;
        world.create::<Dataset>("d", &dataset).await;
        world.create::<FederatedLearningJob>("job", &job).await;
        world.trainer = world.until("there is a trainer", || world.trainer_of_pod()).await;
        let there = world.manager.all_acknowledged(1, 2).await;
        assert!(there, "{}", world.words());
        world
    }

    async fn create<K>(&self, name: &str, spec: &Value)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let (api_version, kind) = (K::api_version(&()), K::kind(&()));
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
        let api: Api<K> = Api::namespaced(self.api.client(), "default");
        let object = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    async fn trainer_of_pod(&self) -> Option<String> {
        let pods: Api<Pod> = Api::namespaced(self.api.client(), "default");
        let pods = pods.list(&ListParams::default()).await.unwrap();
        let specs = pods.items.into_iter().filter_map(|pod| pod.spec);
        let on_node = specs.filter(|spec| spec.node_name.as_deref() == Some(NODE));
        let variables = on_node
            .flat_map(|spec| spec.containers)
            .filter_map(|container| container.env);
        let name = variables.flatten().find(|variable| variable.name == WORKER_NAME);
        name.and_then(|variable| variable.value)
    }

    /// The trainer that began at this time says that it is in this round.
    async fn report(&self, began: &str, round: u64) {
        let message = json!({
            "name": self.trainer, "namespace": "default", "ownerName": "job", "ownerKind": "federatedlearningjob",
            "kind": "train", "status": "running", "ownerInfo": {"currentRound": round, "startTime": began}, "results": [],
        });
        let taken = || async { self.node.post(&self.trainer, &message).await.then_some(()) };
        self.until("the node takes a report", taken).await;
    }

    /// Waits until the manager has answered all that the node has to say.
    async fn all_is_answered(&self) {
        let answered = || async {
            let accepted = self.manager.counted().await?.value("edge_reports_accepted_total")?;
            let waits = self.node.counted().await?.value("localcontroller_outbox_reports")?;
            (accepted > 0 && waits == 0).then_some(())
        };
        self.until("all reports are answered", answered).await;
    }

    /// Waits until these rounds stand in the job's status, each with when its trainer began.
    async fn rounds_are(&self, wanted: &[&str]) {
        let jobs: Api<FederatedLearningJob> = Api::namespaced(self.api.client(), "default");
        let stand = || async {
            let rounds = jobs.get("job").await.unwrap().status.unwrap_or_default().rounds;
            let of = |round: &Round| {
                let began = round.workers.first().and_then(|worker| worker.start_time.clone());
                format!("{} {}", round.round, began.unwrap_or_default())
            };
            let found: Vec<_> = rounds.iter().map(of).collect();
            (found == wanted).then_some(())
        };
        self.until(&format!("{wanted:?}"), stand).await;
    }

    /// Asks again and again: another process raises no event here.
    async fn until<T, F: Future<Output = Option<T>>>(&self, what: &str, mut ask: impl FnMut() -> F) -> T {
        let mut often = interval(Duration::from_millis(50));
        let waited = timeout(PATIENCE, async {
            loop {
                if let Some(answer) = ask().await {
                    return answer;
                }
                often.tick().await;
            }
        });
        let answer = waited.await;
        assert!(answer.is_ok(), "not yet: {what}\n{}", self.words());
        answer.unwrap()
    }

    fn words(&self) -> String {
        let (manager, node) = (last_words(&self.manager.log), last_words(&self.node.log));
        format!("manager:\n{manager}\nnode:\n{node}")
    }
}
