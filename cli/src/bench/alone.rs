//! Whether a control plane is the bench's alone: its manager looks after all namespaces, so nobody else's resources may be
//! there, and no other manager may look after the bench's.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Namespace},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, ListParams},
    core::{DynamicObject, GroupVersionKind},
};
use skerry_globalmanager::run::LEASE;

use super::place::{Plane, refused};
use crate::failure::Failure;

/// Fails where one is there twice, or has a resource of any kind of ours, or a manager that leads, and says which.
pub(super) async fn check(planes: &[Plane]) -> Result<(), Failure> {
    let mut known = BTreeMap::new();
    for plane in planes {
        // Of all that a cluster has, this is there from its first moment on.
        let namespaces: Api<Namespace> = Api::all(plane.client.clone());
        let system = namespaces.get("kube-system").await.map_err(refused)?;
        if let Some(other) = known.insert(system.uid(), plane.option) {
            return Err(Failure::usage(
                format!("{other} and {} name the same control plane", plane.option),
                "name two, each with half of the machine",
            ));
        }
        unused(plane).await?;
    }
    Ok(())
}

/// Fails where this one is somebody else's, too.
async fn unused(plane: &Plane) -> Result<(), Failure> {
    let client = &plane.client;
    let in_use = |found: &str| {
        Failure::new(
            format!("somebody else uses this control plane: there is {found}"),
            format!(
                "the bench has a manager of all namespaces: name another control plane with {}, or take that away",
                plane.option
            ),
        )
    };
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
