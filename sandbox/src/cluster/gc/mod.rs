//! The garbage collector: deletes what has lost all its owners, and carries out foreground and orphan deletion.
//!
//! ```text
//! background: owner gone ──▶ dependents without another owner are deleted
//! foreground: owner waits (finalizer) ──▶ dependents deleted ──▶ none left that blocks ──▶ finalizer removed
//! orphan:     owner waits (finalizer) ──▶ references to it removed ──▶ finalizer removed
//! ```
//!
//! It follows the metadata of every kind that is served, custom kinds as they come and go. An owner that the watches
//! do not show is looked up before anything is deleted for its absence; so is the object itself. It never looks at
//! anything but metadata.

mod graph;
mod judge;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, PropagationPolicy};
use kube::core::params::Preconditions;
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::clock::until;
use super::queue::Queue;
use super::served::{Meta, Served, discover};
use super::watching::watch_all;
use graph::{Graph, Item, KindKey, Uid};
use judge::{Owner, Verdict, judge};

/// How long after a change of the custom resource definitions the kinds are read again.
const SETTLE: Duration = Duration::from_millis(20);
/// How long after a failure to read them.
const RETRY: Duration = Duration::from_secs(1);

/// Collects until it is dropped.
pub(crate) async fn run(client: Client) {
    let (sender, changes) = mpsc::unbounded_channel();
    Collector {
        client,
        graph: Graph::default(),
        queue: Queue::default(),
        kinds: BTreeMap::new(),
        sender,
        changes,
        rediscover: Some(Instant::now()),
    }
    .run()
    .await;
}

/// A kind that is followed.
struct Followed {
    served: Served,
    /// Stops the watch when it is dropped.
    _watch: JoinSet<()>,
    listed: bool,
    /// During a new list: what it has brought so far.
    listing: BTreeSet<Uid>,
}

struct Collector {
    client: Client,
    graph: Graph,
    queue: Queue<Uid>,
    kinds: BTreeMap<KindKey, Followed>,
    sender: mpsc::UnboundedSender<(KindKey, Event<Meta>)>,
    changes: mpsc::UnboundedReceiver<(KindKey, Event<Meta>)>,
    rediscover: Option<Instant>,
}

impl Collector {
    async fn run(mut self) {
        loop {
            let due = self.next_due();
            let wake = until(due);
            tokio::select! {
                biased;
                Some((kind, event)) = self.changes.recv() => self.watched(&kind, event),
                () = wake => self.work().await,
            }
        }
    }

    /// Nothing is collected before every kind was listed: a dependent that is not known yet may block.
    fn complete(&self) -> bool {
        !self.kinds.is_empty() && self.kinds.values().all(|kind| kind.listed)
    }

    fn next_due(&self) -> Option<Instant> {
        let item = self.queue.next_due().filter(|_| self.complete());
        [self.rediscover, item].into_iter().flatten().min()
    }

    async fn work(&mut self) {
        let now = Instant::now();
        if self.rediscover.is_some_and(|at| at <= now) {
            self.rediscover = self.follow_served().await.err().map(|error| {
                tracing::debug!(%error, "the kinds that are served cannot be read");
                now + RETRY
            });
            return;
        }
        let Some(uid) = self.queue.pop(now) else { return };
        match self.look_at(&uid).await {
            Ok(()) => self.queue.succeeded(&uid),
            Err(error) => {
                tracing::debug!(%uid, %error, "collected again later");
                self.queue.failed(uid, Instant::now());
            }
        }
    }

    /// Follows every kind that is served, and no other.
    async fn follow_served(&mut self) -> Result<(), kube::Error> {
        let served: BTreeMap<KindKey, Served> = discover(&self.client)
            .await?
            .into_iter()
            .map(|served| (KindKey::of(&served), served))
            .collect();
        let former: Vec<KindKey> = self
            .kinds
            .iter()
            .filter(|(key, kind)| served.get(*key) != Some(&kind.served))
            .map(|(key, _)| key.clone())
            .collect();
        for key in former {
            self.kinds.remove(&key);
            if !served.contains_key(&key) {
                for uid in self.graph.of_kind(&key) {
                    let ask = self.graph.forget(&uid);
                    self.ask_for(ask);
                }
            }
        }
        for (key, served) in served {
            let (client, sender) = (self.client.clone(), self.sender.clone());
            self.kinds.entry(key.clone()).or_insert_with(|| {
                let mut task = JoinSet::new();
                task.spawn(follow(client, key, served.clone(), sender));
                Followed {
                    served,
                    _watch: task,
                    listed: false,
                    listing: BTreeSet::new(),
                }
            });
        }
        Ok(())
    }

    fn watched(&mut self, key: &KindKey, event: Event<Meta>) {
        let Some(kind) = self.kinds.get_mut(key) else { return };
        if key.kind == "CustomResourceDefinition" && matches!(event, Event::Apply(_) | Event::Delete(_)) {
            self.rediscover.get_or_insert(Instant::now() + SETTLE);
        }
        let ask = match event {
            Event::Init => {
                kind.listing.clear();
                return;
            }
            Event::InitApply(meta) => {
                kind.listing.insert(meta.uid().unwrap_or_default());
                self.graph.observe(Item::new(key.clone(), &meta))
            }
            Event::Apply(meta) => self.graph.observe(Item::new(key.clone(), &meta)),
            Event::Delete(meta) => self.graph.forget(&meta.uid().unwrap_or_default()),
            Event::InitDone => {
                kind.listed = true;
                let listed = std::mem::take(&mut kind.listing);
                let gone = self.graph.of_kind(key).into_iter().filter(|uid| !listed.contains(uid));
                gone.collect::<Vec<_>>()
                    .iter()
                    .flat_map(|uid| self.graph.forget(uid))
                    .collect()
            }
        };
        self.ask_for(ask);
    }

    fn ask_for(&mut self, uids: BTreeSet<Uid>) {
        let now = Instant::now();
        for uid in uids {
            self.queue.add(uid, now);
        }
    }

    async fn look_at(&mut self, uid: &str) -> Result<(), Error> {
        let Some(item) = self.graph.get(uid).cloned() else {
            return Ok(());
        };
        let Some(served) = self.kinds.get(&item.kind).map(|kind| kind.served.clone()) else {
            return Ok(());
        };
        let Some(live) = served
            .get(&self.client, &item.id)
            .await?
            .filter(|live| live.uid().as_deref() == Some(uid))
        else {
            let ask = self.graph.forget(uid);
            self.ask_for(ask);
            return Ok(());
        };
        let item = Item::new(item.kind, &live);
        let mut owners = vec![];
        if !item.deleting {
            for reference in &item.owners {
                match self.owner(&item, reference).await? {
                    Some(owner) => owners.push(owner),
                    // A cluster-wide object that names an owner in a namespace is in error; it is never collected.
                    None => return Ok(()),
                }
            }
        }
        let dependents: Vec<Item> = self.graph.dependents(uid).cloned().collect();
        let verdict = judge(&item, &owners, &dependents.iter().collect::<Vec<_>>());
        self.carry_out(&served, &item, &live, verdict).await
    }

    /// How an owner is doing, by the graph where that shows it, else by asking for it.
    async fn owner(&self, item: &Item, reference: &OwnerReference) -> Result<Option<Owner>, Error> {
        if let Some(owner) = self
            .graph
            .get(&reference.uid)
            .filter(|owner| owner.is_meant_by(reference, &item.id.0))
        {
            return Ok(Some(if owner.deletes_dependents() {
                Owner::Waiting
            } else {
                Owner::Solid
            }));
        }
        let mut kinds = self.kinds.values();
        let kind = kinds.find(|kind| kind.served.is(&reference.api_version, &reference.kind));
        let Some(kind) = kind.map(|kind| &kind.served) else {
            return Err(Error::UnknownKind {
                kind: reference.kind.clone(),
                api_version: reference.api_version.clone(),
            });
        };
        if kind.namespaced && item.id.0.is_empty() {
            return Ok(None);
        }
        let namespace = if kind.namespaced {
            item.id.0.clone()
        } else {
            String::new()
        };
        let live = kind.get(&self.client, &(namespace, reference.name.clone())).await?;
        let live = live.filter(|live| live.uid().as_ref() == Some(&reference.uid));
        Ok(Some(match live.map(|live| Item::new(KindKey::of(kind), &live)) {
            None => Owner::Absent,
            Some(owner) if owner.deletes_dependents() => Owner::Waiting,
            Some(_) => Owner::Solid,
        }))
    }

    async fn carry_out(&self, served: &Served, item: &Item, live: &Meta, verdict: Verdict) -> Result<(), Error> {
        match verdict {
            Verdict::Keep => {}
            Verdict::Strip(owners) => self.strip(served, item, live, &owners).await?,
            Verdict::Delete(policy) => self.delete(served, item, live, policy).await?,
            Verdict::UnblockAndDelete => {
                let unblock = |owner: &OwnerReference| OwnerReference {
                    block_owner_deletion: Some(false),
                    ..owner.clone()
                };
                let owners: Vec<_> = item.owners.iter().map(unblock).collect();
                let patch = json!({"metadata": {"uid": item.uid, "ownerReferences": owners}});
                served.merge(&self.client, &item.id, &patch).await?;
                self.delete_any_version(served, item, PropagationPolicy::Foreground)
                    .await?;
            }
            Verdict::RemoveFinalizer(finalizer) => self.let_go(served, item, live, finalizer).await?,
            Verdict::SetFree(dependents) => {
                for dependent in dependents {
                    self.set_free(&dependent, &item.uid).await?;
                }
                self.let_go(served, item, live, graph::ORPHAN).await?;
            }
        }
        Ok(())
    }

    async fn set_free(&self, dependent: &str, owner: &str) -> Result<(), Error> {
        let Some(item) = self.graph.get(dependent) else {
            return Ok(());
        };
        let Some(served) = self.kinds.get(&item.kind).map(|kind| &kind.served) else {
            return Ok(());
        };
        let live = served.get(&self.client, &item.id).await?;
        let Some(live) = live.filter(|live| live.uid().as_deref() == Some(dependent)) else {
            return Ok(());
        };
        let item = Item::new(item.kind.clone(), &live);
        self.strip(served, &item, &live, &[owner.to_owned()]).await
    }

    async fn strip(&self, served: &Served, item: &Item, live: &Meta, owners: &[Uid]) -> Result<(), Error> {
        let left: Vec<_> = item
            .owners
            .iter()
            .filter(|owner| !owners.contains(&owner.uid))
            .collect();
        let left = (!left.is_empty()).then_some(left);
        let patch = json!({"metadata": {"resourceVersion": live.resource_version(), "ownerReferences": left}});
        Ok(served.merge(&self.client, &item.id, &patch).await?)
    }

    async fn let_go(&self, served: &Served, item: &Item, live: &Meta, finalizer: &str) -> Result<(), Error> {
        let left: Vec<_> = item.finalizers.iter().filter(|known| *known != finalizer).collect();
        let left = (!left.is_empty()).then_some(left);
        let patch = json!({"metadata": {"resourceVersion": live.resource_version(), "finalizers": left}});
        Ok(served.merge(&self.client, &item.id, &patch).await?)
    }

    async fn delete(&self, served: &Served, item: &Item, live: &Meta, policy: PropagationPolicy) -> Result<(), Error> {
        let same = Preconditions {
            uid: Some(item.uid.clone()),
            resource_version: live.resource_version(),
        };
        self.delete_if(served, item, same, policy).await
    }

    async fn delete_any_version(&self, served: &Served, item: &Item, policy: PropagationPolicy) -> Result<(), Error> {
        self.delete_if(
            served,
            item,
            Preconditions {
                uid: Some(item.uid.clone()),
                resource_version: None,
            },
            policy,
        )
        .await
    }

    async fn delete_if(
        &self,
        served: &Served,
        item: &Item,
        same: Preconditions,
        policy: PropagationPolicy,
    ) -> Result<(), Error> {
        let params = DeleteParams {
            preconditions: Some(same),
            propagation_policy: Some(policy),
            ..DeleteParams::default()
        };
        Ok(served.delete(&self.client, &item.id, &params).await?)
    }
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{0}")]
    Server(#[from] kube::Error),
    #[error("the owner's kind {kind} of {api_version} is not served")]
    UnknownKind { kind: String, api_version: String },
}

/// Passes on what a watch of a kind's metadata brings.
async fn follow(client: Client, key: KindKey, served: Served, sender: mpsc::UnboundedSender<(KindKey, Event<Meta>)>) {
    let mut events = watch_all(Api::<Meta>::all_with(client, &served.resource));
    while let Some(event) = events.next().await {
        if sender.send((key.clone(), event)).is_err() {
            return;
        }
    }
}
