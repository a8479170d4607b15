//! What users do, and that the manager has heard of it.

use std::fmt::Debug;

use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Resource,
    api::{ApiResource, DeleteParams, Patch, PatchParams},
    core::{DynamicObject, GroupVersionKind},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use skerry_globalmanager::{engine::ResourceKey, run::kinds};
use skerry_workloads::ObjectKind;

use super::{NAMESPACE, USER, World};

impl World {
    /// A typed view, as the user.
    pub fn view<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        Api::namespaced(self.api.client_as(USER), NAMESPACE)
    }

    /// What `kubectl apply --server-side` does with a file of one or more documents, strict as kubectl is; the first
    /// refusal is returned.
    pub async fn try_apply(&self, yaml: &str) -> Result<(), kube::Error> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).expect("the scenario's YAML parses");
        for document in documents {
            let object: DynamicObject = serde_json::from_value(document).expect("the scenario's object has a kind");
            let types = object.types.clone().expect("the scenario's object has a kind");
            let gvk = GroupVersionKind::try_from(&types).expect("the scenario's object has an apiVersion");
            let resource = ApiResource::from_gvk(&gvk);
            let api: Api<DynamicObject> = Api::namespaced_with(self.api.client_as(USER), NAMESPACE, &resource);
            let name = object.metadata.name.clone().expect("the scenario's object has a name");
            let how = PatchParams {
                field_validation: Some(kube::api::ValidationDirective::Strict),
                ..PatchParams::apply(USER).force()
            };
            let applied = api.patch(&name, &how, &Patch::Apply(&object)).await?;
            self.is_written(&resource.kind, &applied.metadata);
        }
        Ok(())
    }

    /// As [`World::try_apply`], accepted, and settled.
    pub async fn apply(&self, yaml: &str) {
        self.try_apply(yaml).await.expect("the manifest is accepted");
        self.settle().await;
    }

    /// A merge patch by the user (what `kubectl edit` sends for custom resources), settled.
    pub async fn edit<K>(&self, name: &str, patch: Value)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let edit = Patch::Merge(patch);
        let edited = self.view::<K>().patch(name, &PatchParams::default(), &edit).await;
        self.is_written(&K::kind(&()), edited.expect("the edit is accepted").meta());
        self.settle().await;
    }

    /// What `kubectl scale` does, settled.
    pub async fn scale<K>(&self, name: &str, replicas: i32)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let patch = serde_json::json!({"spec": {"replicas": replicas}});
        let scaling = Patch::Merge(patch);
        let resources = self.view::<K>();
        let scaled = resources.patch_scale(name, &PatchParams::default(), &scaling).await;
        self.is_written(&K::kind(&()), &scaled.expect("the new scale is accepted").metadata);
        self.settle().await;
    }

    /// A deletion by the user, settled.
    pub async fn delete<K>(&self, name: &str, how: &DeleteParams)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let deleted = self.view::<K>().delete(name, how).await;
        if let Some(object) = deleted.expect("the deletion is accepted").left() {
            // Somebody has to do something before it goes.
            self.is_written(&K::kind(&()), object.meta());
        } else {
            let of_it = |key: &ResourceKey| key.kind.kind == K::kind(&()) && key.name == name;
            self.unheard.borrow_mut().retain(|(key, _)| !of_it(key));
        }
        self.settle().await;
    }

    /// A user has written an object of this kind: where it is one of ours, the manager is not done before it has heard of
    /// that. Of others it may never hear.
    fn is_written(&self, kind: &str, written: &ObjectMeta) {
        let ours = |watched: &ObjectKind| watched.group == ObjectKind::MODEL.group && watched.kind == kind;
        let watched = kinds().watched().into_iter().find(ours);
        let version = written
            .resource_version
            .as_ref()
            .and_then(|version| version.parse().ok());
        let (Some(kind), Some(version)) = (watched, version) else {
            return;
        };
        let key = ResourceKey {
            kind,
            namespace: NAMESPACE.to_owned(),
            name: written.name.clone().unwrap_or_default(),
        };
        self.unheard.borrow_mut().push((key, version));
    }
}
