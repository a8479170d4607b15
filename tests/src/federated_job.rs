//! A federated job with one trainer, which a test speaks for: what nodes report of, where managers and local controllers are
//! processes of their own.

use std::fmt::Debug;

use k8s_openapi::{NamespaceResourceScope, api::core::v1::Pod};
use kube::{
    Api, Client, Resource,
    api::{ListParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use skerry_crds::{
    names::env::WORKER_NAME,
    sedna::v1alpha1::{Dataset, FederatedLearningJob, Model, Round},
};

use crate::loopback::{HTTP, asked_again};

/// A job; there is one in a test.
pub struct FederatedJob {
    client: Client,
    /// The `WORKER_NAME` of its only trainer.
    trainer: String,
}

impl FederatedJob {
    /// Declares one, with a Dataset, a Model and its trainer on this node; nothing where the manager makes no trainer.
    pub async fn declare(client: Client, node: &str) -> Option<Self> {
        let template = |node: &str| json!({"spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}});
        let dataset = json!({"url": "/d.csv", "format": "csv", "nodeName": node});
        let job = json!({
            "aggregationWorker": {"model": {"name": "m"}, "template": template("cloud-1")},
            "trainingWorkers": [{"dataset": {"name": "d"}, "template": template(node)}],
        });
        create::<Model>(&client, "m", &json!({"url": "/m", "format": "ckpt"})).await;
        create::<Dataset>(&client, "d", &dataset).await;
        create::<FederatedLearningJob>(&client, "job", &job).await;
        let trainer = asked_again(|| trainer_of_pod(&client, node)).await?;
        Some(Self { client, trainer })
    }

    /// The trainer that began at this time says on this port, where workers report, that it is in this round; whether that
    /// was ever taken.
    pub async fn report(&self, port: u16, began: &str, round: u64) -> bool {
        let message = json!({
            "name": self.trainer, "namespace": "default", "ownerName": "job", "ownerKind": "federatedlearningjob",
            "kind": "train", "status": "running", "ownerInfo": {"currentRound": round, "startTime": began}, "results": [],
        });
        let url = format!("http://127.0.0.1:{port}/sedna/workers/{}/info", self.trainer);
        let taken = || async {
            let posted = HTTP
                .post(&url)
                .header("Content-Type", "application/json")
                .body(message.to_string());
            (posted.send().await.ok()?.status() == 200).then_some(())
        };
        asked_again(taken).await.is_some()
    }

    /// Waits until these rounds stand in its status, each with when its trainer began; whether they ever did.
    pub async fn rounds_are(&self, wanted: &[String]) -> bool {
        let stand = || async { (self.rounds().await == wanted).then_some(()) };
        asked_again(stand).await.is_some()
    }

    async fn rounds(&self) -> Vec<String> {
        let jobs: Api<FederatedLearningJob> = Api::namespaced(self.client.clone(), "default");
        let rounds = jobs.get("job").await.unwrap().status.unwrap_or_default().rounds;
        let of = |round: &Round| {
            let began = round.workers.first().and_then(|worker| worker.start_time.clone());
            format!("{} {}", round.round, began.unwrap_or_default())
        };
        rounds.iter().map(of).collect()
    }
}

async fn create<K>(client: &Client, name: &str, spec: &Value)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned,
{
    let (api_version, kind) = (K::api_version(&()), K::kind(&()));
    let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
    let api: Api<K> = Api::namespaced(client.clone(), "default");
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

async fn trainer_of_pod(client: &Client, node: &str) -> Option<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let pods = pods.list(&ListParams::default()).await.unwrap();
    let specs = pods.items.into_iter().filter_map(|pod| pod.spec);
    let on_node = specs.filter(|spec| spec.node_name.as_deref() == Some(node));
    let variables = on_node
        .flat_map(|spec| spec.containers)
        .filter_map(|container| container.env);
    let name = variables.flatten().find(|variable| variable.name == WORKER_NAME);
    name.and_then(|variable| variable.value)
}
