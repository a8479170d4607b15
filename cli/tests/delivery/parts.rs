//! Managers and nodes as processes of the built binary, which can be killed at any moment.

mod manager;
mod node;
mod process;

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, ListParams, Patch, PatchParams},
    core::DynamicObject,
};
use serde_json::json;
use skerry_crds::sedna::v1alpha1::Dataset;

pub use manager::Manager;
pub use node::Node;
pub use process::{Counted, Link, Version, last_words};

/// The Lease of managers.
pub const LEASE: &str = "skerry-globalmanager";

/// What a node holds, or should: name to the Dataset's uid and url.
pub type Datasets = BTreeMap<String, (String, String)>;

/// Has the Lease of managers run out a second after it was renewed last, so that nobody waits for a quarter of a minute.
pub async fn expire(leases: &Api<Lease>) {
    let patch = Patch::Merge(json!({"spec": {"leaseDurationSeconds": 1}}));
    let patched = leases.patch(LEASE, &PatchParams::default(), &patch).await;
    patched.unwrap();
}

/// What is declared for a node.
pub async fn declared(datasets: &Api<Dataset>, node: &str) -> Datasets {
    // As JSON: one that does not parse is no reason not to see the others.
    let kind = ApiResource::erase::<Dataset>(&());
    let datasets: Api<DynamicObject> = Api::namespaced_with(datasets.clone().into_client(), "default", &kind);
    let listed = datasets.list(&ListParams::default()).await.unwrap();
    let placed = listed
        .into_iter()
        .filter(|dataset| dataset.data["spec"]["nodeName"] == node);
    placed
        .map(|dataset| {
            let url = dataset.data["spec"]["url"].as_str().unwrap_or_default();
            (dataset.name_any(), (dataset.uid().unwrap(), url.to_owned()))
        })
        .collect()
}

/// Where two differ, in numbers: objects that are missing or old, and objects too many.
pub fn differences(declared: &Datasets, held: &Datasets) -> (usize, usize) {
    let wrong = declared.iter().filter(|(name, what)| held.get(*name) != Some(what));
    let extra = held.keys().filter(|name| !declared.contains_key(*name));
    (wrong.count(), extra.count())
}
