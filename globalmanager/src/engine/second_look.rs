//! The second look at the owner of what is about to be made, re-owned or deleted.

use kube::{Api, core::PartialObjectMeta};
use skerry_workloads::Kind;

use super::{
    Engine, ResourceKey,
    pass::{Error, at},
};

/// What the second look showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outdated {
    /// The owner is gone or on its way out.
    OwnerGone,
    /// The owner is not any more what the plan was made from; a watch will tell.
    OwnerNewer,
}

/// Looks at the owner itself, straight at the API server: what the plan was made from may be older.
pub(crate) async fn second_look<K: Kind>(
    engine: &Engine,
    key: &ResourceKey,
    planned: &K,
) -> Result<Option<Outdated>, Error> {
    let api: Api<PartialObjectMeta<K>> = Api::namespaced(engine.shared.parts.client.clone(), &key.namespace);
    let found = api
        .get_opt(&key.name)
        .await
        .map_err(at("taking a second look at the owner"))?;
    let planned = planned.meta();
    Ok(match found.map(|owner| owner.metadata) {
        None => Some(Outdated::OwnerGone),
        Some(owner) if owner.uid != planned.uid || owner.deletion_timestamp.is_some() => Some(Outdated::OwnerGone),
        Some(owner) if owner.resource_version != planned.resource_version => Some(Outdated::OwnerNewer),
        Some(_) => None,
    })
}
