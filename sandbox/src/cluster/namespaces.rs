//! Namespaces: a new one gets its default service account; one that is deleted is emptied first, pods before all else.
//!
//! While something remains, its conditions say what and which finalizers hold it, in Kubernetes' words.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition, NamespaceStatus, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt};
use tokio::time::Instant;

use super::clock::{Times, until};
use super::meta::deleting;
use super::queue::Queue;
use super::served::{Served, discover};
use super::watching::watch_all;
use crate::api::Clock;

/// How long after a pass that left something behind the next one comes.
const AGAIN: Duration = Duration::from_secs(1);

/// The finalizer that stands for this controller's work.
const FINALIZER: &str = "kubernetes";

/// Looks after namespaces until it is dropped.
pub(crate) async fn run(client: Client, clock: Clock) {
    let mut events = watch_all(Api::<Namespace>::all(client.clone()));
    let mut queue = Queue::default();
    loop {
        let due = queue.next_due();
        let wake = until(due);
        tokio::select! {
            biased;
            Some(event) = events.next() => {
                if let Event::Apply(namespace) | Event::InitApply(namespace) = event {
                    queue.add(namespace.name_any(), Instant::now());
                }
            }
            () = wake => {
                let Some(name) = queue.pop(Instant::now()) else { continue };
                match look_at(&client, &clock, &name).await {
                    Ok(Emptied::Partly) => queue.add(name, Instant::now() + AGAIN),
                    Ok(Emptied::Done) => queue.succeeded(&name),
                    Err(error) => {
                        tracing::debug!(namespace = name, %error, "tried again later");
                        queue.failed(name, Instant::now());
                    }
                }
            }
        }
    }
}

enum Emptied {
    Done,
    Partly,
}

async fn look_at(client: &Client, clock: &Clock, name: &str) -> Result<Emptied, kube::Error> {
    let namespaces = Api::<Namespace>::all(client.clone());
    let Some(namespace) = namespaces.get_opt(name).await? else {
        return Ok(Emptied::Done);
    };
    if !deleting(&namespace) {
        return default_account(client, name).await.map(|()| Emptied::Done);
    }
    let finalizers = namespace
        .spec
        .as_ref()
        .and_then(|spec| spec.finalizers.clone())
        .unwrap_or_default();
    if finalizers.is_empty() {
        return Ok(Emptied::Done);
    }
    let remains = empty(client, name).await?;
    if let Some(status) = status(&namespace, &remains, &clock.time()) {
        let namespace = Namespace {
            status: Some(status),
            ..namespace.clone()
        };
        namespaces
            .replace_status(name, &PostParams::default(), &namespace)
            .await?;
    }
    if !remains.kinds.is_empty() {
        return Ok(Emptied::Partly);
    }
    let mut namespace = namespaces.get(name).await?;
    namespace.spec.get_or_insert_default().finalizers = Some(
        finalizers
            .into_iter()
            .filter(|finalizer| finalizer != FINALIZER)
            .collect(),
    );
    namespaces
        .replace_subresource("finalize", name, &PostParams::default(), &namespace)
        .await?;
    Ok(Emptied::Done)
}

async fn default_account(client: &Client, namespace: &str) -> Result<(), kube::Error> {
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    if accounts.get_opt("default").await?.is_some() {
        return Ok(());
    }
    let mut account = ServiceAccount::default();
    account.metadata.name = Some("default".to_owned());
    match accounts.create(&PostParams::default(), &account).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        other => other.map(|_| ()),
    }
}

/// What a pass left behind.
#[derive(Debug, Default)]
struct Remains {
    /// By `resource.group`: how many objects.
    kinds: BTreeMap<String, usize>,
    /// By finalizer: how many objects.
    finalizers: BTreeMap<String, usize>,
}

/// Deletes all that a namespace holds, as far as it goes at once.
async fn empty(client: &Client, namespace: &str) -> Result<Remains, kube::Error> {
    let mut remains = Remains::default();
    let served: Vec<Served> = discover(client)
        .await?
        .into_iter()
        .filter(|served| served.namespaced)
        .collect();
    let is_pod = |served: &&Served| served.is("v1", "Pod");
    for served in served.iter().filter(is_pod) {
        empty_of(client, served, namespace, &mut remains).await?;
    }
    if remains.kinds.is_empty() {
        for served in served.iter().filter(|served| !is_pod(served)) {
            empty_of(client, served, namespace, &mut remains).await?;
        }
    }
    Ok(remains)
}

async fn empty_of(client: &Client, served: &Served, namespace: &str, remains: &mut Remains) -> Result<(), kube::Error> {
    let found = served.list(client, namespace).await?;
    if found.is_empty() {
        return Ok(());
    }
    if served.delete_collection {
        served.delete_all(client, namespace).await?;
    } else {
        for meta in found {
            served
                .delete(
                    client,
                    &(namespace.to_owned(), meta.name_any()),
                    &DeleteParams::background(),
                )
                .await?;
        }
    }
    let left = served.list(client, namespace).await?;
    if !left.is_empty() {
        remains.kinds.insert(
            format!("{}.{}", served.resource.plural, served.resource.group),
            left.len(),
        );
    }
    for finalizer in left.iter().flat_map(ResourceExt::finalizers) {
        *remains.finalizers.entry(finalizer.clone()).or_default() += 1;
    }
    Ok(())
}

/// Type of the condition, reason and message when all is well.
const CONDITIONS: [(&str, &str, &str); 5] = [
    (
        "NamespaceDeletionDiscoveryFailure",
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    (
        "NamespaceContentRemaining",
        "ContentRemoved",
        "All content successfully removed",
    ),
    (
        "NamespaceFinalizersRemaining",
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
];

/// The status after a pass; nothing if it says so already.
fn status(namespace: &Namespace, remains: &Remains, now: &Time) -> Option<NamespaceStatus> {
    let known = namespace.status.clone().unwrap_or_default();
    let listed = |what: &BTreeMap<String, usize>, text: &str| {
        what.iter()
            .map(|(name, count)| format!("{name} {text} {count} resource instances"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let conditions = CONDITIONS.into_iter().map(|(of, reason, message)| {
        let trouble = match of {
            "NamespaceContentRemaining" if !remains.kinds.is_empty() => Some((
                "SomeResourcesRemain",
                format!("Some resources are remaining: {}", listed(&remains.kinds, "has")),
            )),
            "NamespaceFinalizersRemaining" if !remains.finalizers.is_empty() => Some((
                "SomeFinalizersRemain",
                format!(
                    "Some content in the namespace has finalizers remaining: {}",
                    listed(&remains.finalizers, "in")
                ),
            )),
            _ => None,
        };
        let (status, reason, message) = match trouble {
            Some((reason, message)) => ("True", reason, message),
            None => ("False", reason, message.to_owned()),
        };
        let before = known
            .conditions
            .iter()
            .flatten()
            .find(|known| known.type_ == of && known.status == status);
        NamespaceCondition {
            type_: of.to_owned(),
            status: status.to_owned(),
            last_transition_time: before.map_or(Some(now.clone()), |before| before.last_transition_time.clone()),
            reason: Some(reason.to_owned()),
            message: Some(message),
        }
    });
    let fresh = NamespaceStatus {
        phase: Some("Terminating".to_owned()),
        conditions: Some(conditions.collect()),
    };
    (fresh != known).then_some(fresh)
}
