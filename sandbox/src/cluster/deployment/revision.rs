//! The annotations that tie a Deployment's history together: which ReplicaSet is which revision, and for which size of
//! the Deployment a set was last scaled.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::ResourceExt;

pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const LIMIT: &str = "deployment.kubernetes.io/max-replicas";

/// What a set does not take over from its Deployment.
const OWN: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    LIMIT,
    "deprecated.deployment.rollback.to",
];

/// The longest list of past revisions that is kept, in characters.
const HISTORY_CHARS: usize = 2000;

/// A set's revision; zero where it has none that can be read.
pub(super) fn of(set: &ReplicaSet) -> i64 {
    set.annotations()
        .get(REVISION)
        .and_then(|revision| revision.parse().ok())
        .unwrap_or_default()
}

/// Notes on a Deployment which revision it is at.
pub(super) fn set_revision(deployment: &mut Deployment, revision: &str) {
    put(
        deployment.metadata.annotations.get_or_insert_default(),
        REVISION,
        revision,
    );
}

/// Copies the Deployment's annotations to its new set and raises that set's revision to `revision`, keeping the former
/// one in the history. Whether that changed anything.
pub(super) fn annotate(deployment: &Deployment, set: &mut ReplicaSet, revision: i64) -> bool {
    let annotations = set.metadata.annotations.get_or_insert_default();
    let mut changed = false;
    for (key, value) in deployment.annotations() {
        if !OWN.contains(&key.as_str()) {
            changed |= put(annotations, key, value);
        }
    }
    let former = annotations.get(REVISION).cloned();
    let current: i64 = former
        .as_deref()
        .and_then(|former| former.parse().ok())
        .unwrap_or_default();
    if current >= revision {
        return changed;
    }
    put(annotations, REVISION, &revision.to_string());
    if let Some(former) = former {
        let history = annotations.get(HISTORY).cloned().unwrap_or_default();
        annotations.insert(HISTORY.to_owned(), append(&history, &former));
    }
    true
}

/// Notes the Deployment's size on a set. Whether that changed anything.
pub(super) fn set_replicas(set: &mut ReplicaSet, desired: i32, limit: i32) -> bool {
    let annotations = set.metadata.annotations.get_or_insert_default();
    let desired = put(annotations, DESIRED, &desired.to_string());
    put(annotations, LIMIT, &limit.to_string()) || desired
}

/// The size of the Deployment when the set was last scaled.
pub(super) fn desired(set: &ReplicaSet) -> Option<i32> {
    set.annotations()
        .get(DESIRED)?
        .parse()
        .ok()
        .filter(|desired| *desired >= 0)
}

/// The most pods that the Deployment could have when the set was last scaled.
pub(super) fn limit(set: &ReplicaSet) -> Option<i32> {
    set.annotations().get(LIMIT)?.parse().ok().filter(|limit| *limit > 0)
}

fn put(annotations: &mut std::collections::BTreeMap<String, String>, key: &str, value: &str) -> bool {
    let changed = annotations.get(key).is_none_or(|known| known != value);
    if changed {
        annotations.insert(key.to_owned(), value.to_owned());
    }
    changed
}

/// The oldest revisions go when the list becomes too long.
fn append(history: &str, revision: &str) -> String {
    let mut revisions: Vec<&str> = history.split(',').filter(|revision| !revision.is_empty()).collect();
    revisions.push(revision);
    while revisions.len() > 1 && revisions.join(",").len() > HISTORY_CHARS {
        revisions.remove(0);
    }
    revisions.join(",")
}
