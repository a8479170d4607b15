//! The children of a load without a manager: how long the control plane takes for them by itself, and how that grows.

use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
    core::DynamicObject,
};
use skerry_crds::names;
use skerry_globalmanager::engine::PASSES_AT_ONCE;
use skerry_workloads::Make;
use tokio::time::Instant;

use super::{control_plane::Bench, place::refused};
use crate::failure::Failure;

impl Bench<'_> {
    /// Declares everything, writes what follows from it as a manager would that need neither watch nor look nor tell, and
    /// deletes it again. No manager may run meanwhile.
    pub(super) async fn unmanaged(&mut self) -> Result<(), Failure> {
        self.begin("writing all children without a manager").await;
        let begun = Instant::now();
        let owners = self.declare_all().await?;
        stream::iter(owners)
            .map(|owner| self.write_children(owner))
            .buffer_unordered(PASSES_AT_ONCE)
            .try_collect::<()>()
            .await?;
        self.present("unmanaged_children_present_seconds", begun).await?;
        self.still("unmanaged_children_settled_seconds", begun).await?;
        self.begin("deleting everything").await;
        let emptying = Instant::now();
        self.delete_all().await?;
        self.still("unmanaged_emptied_settled_seconds", emptying).await
    }

    /// Writes the children of one resource, one after the other, as the manager does.
    async fn write_children(&self, owner: DynamicObject) -> Result<(), Failure> {
        let namespace = owner.namespace().unwrap_or_default();
        let resource = serde_json::to_value(&owner).map_err(Failure::defect)?;
        for child in self.load.children(resource)? {
            match child.make {
                Make::Apply(body) => {
                    let how = PatchParams::apply(names::MANAGER).force();
                    let api = self.plane.api(child.kind, &namespace);
                    let applied = api.patch(&child.name, &how, &Patch::Apply(&body)).await;
                    applied.map(drop).map_err(refused)?;
                }
                Make::Create(body) => drop(self.create(&namespace, child.kind, body).await?),
                Make::Keep => {}
            }
        }
        Ok(())
    }
}
