//! Whether a control plane is the bench's alone: its manager looks after all namespaces, so nobody else's resources may be
//! there, and no other manager may look after the bench's.

use k8s_openapi::{
    api::coordination::v1::Lease, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, ListParams},
    core::{DynamicObject, GroupVersionKind},
};
use skerry_globalmanager::run::LEASE;

use super::place::refused;
use crate::failure::Failure;

/// Fails where there is a resource of any kind of ours, or a manager that leads, and says which.
pub(super) async fn check(client: &Client) -> Result<(), Failure> {
    for definition in skerry_crds::all() {
        let kind = kind(definition);
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
        let one = match all.list_metadata(&ListParams::default().limit(1)).await {
            // Of a kind that is not known there is nothing.
            Err(kube::Error::Api(status)) if status.code == 404 => continue,
            one => one.map_err(refused)?,
        };
        if let Some(found) = one.items.first() {
            let namespace = found.namespace().unwrap_or_default();
            let found = format!("the {} {namespace}/{}", kind.kind, found.name_any());
            return Err(in_use(&found));
        }
    }
    let leases: Api<Lease> = Api::all(client.clone());
    let named = ListParams::default().fields(&format!("metadata.name={LEASE}"));
    for lease in leases.list(&named).await.map_err(refused)? {
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
        if let Some(holder) = holder.filter(|holder| !holder.is_empty()) {
            let namespace = lease.namespace().unwrap_or_default();
            return Err(in_use(&format!("the manager {holder}, by its Lease in {namespace}")));
        }
    }
    Ok(())
}

fn kind(definition: &CustomResourceDefinition) -> ApiResource {
    let spec = &definition.spec;
    let version = spec
        .versions
        .first()
        .map(|version| version.name.as_str())
        .unwrap_or_default();
    let kind = GroupVersionKind::gvk(&spec.group, version, &spec.names.kind);
    ApiResource::from_gvk_with_plural(&kind, &spec.names.plural)
}

fn in_use(found: &str) -> Failure {
    Failure::new(
        format!("somebody else uses this control plane: there is {found}"),
        "the bench has a manager of all namespaces: name another control plane with --kubeconfig, or take that away",
    )
}
