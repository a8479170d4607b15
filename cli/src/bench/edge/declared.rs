//! What the bench declares for nodes, and how it edits it.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::DynamicObject,
};
use serde_json::{Value, json};
use skerry_crds::names::{child, env, worker_type};
use skerry_workloads::ObjectKind;
use tokio::sync::{Notify, watch};

use super::{
    super::{
        load::{self, Load},
        place::{Plane, refused},
    },
    clock,
    listener::Listener,
    matched::Edit,
    orders::{Held, node},
};
use crate::failure::Failure;

/// Requests of the bench at once: about what many users together send.
const AT_ONCE: usize = 32;

/// What is declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Dataset,
    Service,
}

impl Kind {
    /// As Kubernetes has it.
    pub(super) fn object_kind(self) -> ObjectKind {
        match self {
            Self::Dataset => ObjectKind::DATASET,
            Self::Service => load::SERVICE,
        }
    }

    fn name(self, number: u32) -> String {
        match self {
            Self::Dataset => format!("dataset-{number:05}"),
            Self::Service => Load::name(number),
        }
    }
}

/// Resources of one kind in a namespace, spread evenly over nodes.
pub(super) struct Declared<'a> {
    plane: &'a Plane,
    api: Api<DynamicObject>,
    namespace: String,
    kind: Kind,
    count: u32,
    nodes: u32,
    /// Edits that may be made in all.
    allowed: watch::Sender<u32>,
    /// Edits that were begun so far.
    begun: AtomicU32,
    /// Edits that the API server has taken so far.
    edited: AtomicU32,
    progress: Notify,
}

impl<'a> Declared<'a> {
    /// So many of them on so many nodes; nothing is declared yet.
    pub(super) fn new(plane: &'a Plane, namespace: &str, kind: Kind, count: u32, nodes: u32) -> Self {
        Self {
            plane,
            api: plane.api(kind.object_kind(), namespace),
            namespace: namespace.to_owned(),
            kind,
            count,
            nodes: nodes.max(1),
            allowed: watch::Sender::new(u32::MAX),
            begun: AtomicU32::new(0),
            edited: AtomicU32::new(0),
            progress: Notify::new(),
        }
    }

    /// Declares all of them; what they refer to before.
    pub(super) async fn declare(&self) -> Result<(), Failure> {
        if self.kind == Kind::Service {
            for (kind, object) in load::shared(&self.plane.edge) {
                create(&self.plane.api(kind, &self.namespace), object).await?;
            }
        }
        stream::iter(0..self.count)
            .map(|number| create(&self.api, self.resource(number)))
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await
    }

    /// Deletes all of them, what they refer to, and what the manager made of them.
    pub(super) async fn withdraw(&self) -> Result<(), Failure> {
        let mut kinds = vec![self.kind.object_kind()];
        if self.kind == Kind::Service {
            kinds.extend([
                ObjectKind::MODEL,
                ObjectKind::DATASET,
                ObjectKind::DEPLOYMENT,
                ObjectKind::SERVICE,
            ]);
        }
        let (how, all) = (DeleteParams::background(), ListParams::default());
        for kind in kinds {
            let api = self.plane.api(kind, &self.namespace);
            api.delete_collection(&how, &all).await.map_err(refused)?;
        }
        Ok(())
    }

    fn place(&self, number: u32) -> String {
        node(number % self.nodes)
    }

    fn resource(&self, number: u32) -> Value {
        let place = self.place(number);
        match self.kind {
            Kind::Dataset => {
                let spec = json!({"url": "/data/0", "format": "txt", "nodeName": place});
                load::object(ObjectKind::DATASET, &self.kind.name(number), &spec)
            }
            Kind::Service => load::service(number, &self.plane.cloud, &place),
        }
    }

    /// Edits each of these resources so many times, one edit of a resource after the other, different resources at once.
    pub(super) async fn edit(&self, numbers: impl IntoIterator<Item = u32>, times: u32) -> Result<Vec<Edit>, Failure> {
        let edits: Vec<Vec<Edit>> = stream::iter(numbers)
            .map(async |number| {
                let mut edits = Vec::new();
                for _ in 0..times {
                    edits.push(self.edit_one(number).await?);
                }
                Ok::<_, Failure>(edits)
            })
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await?;
        Ok(edits.into_iter().flatten().collect())
    }

    /// Edits all of them once, one round after another, so that no resource is edited again while others were not.
    pub(super) async fn edit_in_rounds(&self, rounds: u32) -> Result<Vec<Edit>, Failure> {
        let mut edits = Vec::new();
        for _ in 0..rounds {
            edits.extend(self.edit(0..self.count, 1).await?);
        }
        Ok(edits)
    }

    /// Somebody who hears of every change from now on.
    pub(super) async fn listener(&self) -> Result<Listener, Failure> {
        Listener::start(&self.api).await
    }

    async fn edit_one(&self, number: u32) -> Result<Edit, Failure> {
        // No two edits are the same, so each makes a generation.
        let serial = self.begun.fetch_add(1, Relaxed);
        // Who allows them is there as long as this is.
        let _ = self.allowed.subscribe().wait_for(|allowed| serial < *allowed).await;
        let name = self.kind.name(number);
        let change = match self.kind {
            Kind::Dataset => json!({"spec": {"url": format!("/data/{serial}-{}", rand::random::<u32>())}}),
            Kind::Service => load::service_edit(
                &self.place(number),
                &format!("bench/edge:{serial}-{}", rand::random::<u32>()),
            ),
        };
        let sent = clock::now();
        let patched = self
            .api
            .patch(&name, &PatchParams::default(), &Patch::Merge(change))
            .await
            .map_err(refused)?;
        let answered = clock::now();
        self.edited.fetch_add(1, Relaxed);
        self.progress.notify_one();
        Ok(Edit {
            name,
            generation: patched.metadata.generation.unwrap_or_default(),
            sent,
            answered,
        })
    }

    /// Lets so many edits be made since the beginning, where they are as many as anybody asks for otherwise. What is beyond
    /// waits until more are allowed.
    pub(super) fn allow(&self, edits: u32) {
        self.allowed.send_replace(edits);
    }

    /// Waits until the API server has taken so many edits since the beginning; how many it has.
    pub(super) async fn edited(&self, number: u32) -> u32 {
        loop {
            let edited = self.edited.load(Relaxed);
            if edited >= number {
                return edited;
            }
            self.progress.notified().await;
        }
    }

    /// What nodes should hold, as the API server has it now.
    pub(super) async fn wanted(&self) -> Result<Vec<Held>, Failure> {
        let listed = self.api.list(&ListParams::default()).await.map_err(refused)?;
        let places: BTreeMap<String, String> = (0..self.count)
            .map(|number| (self.kind.name(number), self.place(number)))
            .collect();
        let wanted = listed.into_iter().filter_map(|resource| {
            let name = resource.name_any();
            Some(Held {
                node: places.get(&name)?.clone(),
                uid: resource.uid().unwrap_or_default(),
                generation: resource.metadata.generation.unwrap_or_default(),
                name,
            })
        });
        Ok(wanted.collect())
    }

    /// The name under which the worker of a service reports that is at the edge; there has to be one.
    pub(super) async fn edge_worker(&self, number: u32) -> Result<String, Failure> {
        let deployments: Api<Deployment> = Api::namespaced(self.plane.client.clone(), &self.namespace);
        let name = child::deployment(&self.kind.name(number), worker_type::EDGE);
        let pod = deployments.get(&name).await.map_err(refused)?.spec;
        let containers = pod.and_then(|spec| spec.template.spec).map(|pod| pod.containers);
        let variables = containers
            .into_iter()
            .flatten()
            .filter_map(|container| container.env)
            .flatten();
        let worker = variables
            .filter(|variable| variable.name == env::WORKER_NAME)
            .find_map(|variable| variable.value);
        worker.ok_or_else(|| Failure::defect(format!("{name} names no worker")))
    }

    /// The generations that nodes should hold, by name.
    pub(super) async fn generations(&self) -> Result<BTreeMap<String, i64>, Failure> {
        let wanted = self.wanted().await?.into_iter();
        Ok(wanted.map(|wanted| (wanted.name, wanted.generation)).collect())
    }
}

async fn create(api: &Api<DynamicObject>, object: Value) -> Result<(), Failure> {
    let object = serde_json::from_value(object).map_err(Failure::defect)?;
    let created = api.create(&PostParams::default(), &object).await;
    created.map(drop).map_err(refused)
}
