//! Which kinds the API server serves, custom ones included, and requests about objects whose kind is known only then.

use kube::api::{DeleteParams, GetParams, ListParams, Patch, PatchParams};
use kube::client::Client;
use kube::core::discovery::Scope;
use kube::core::discovery::verbs;
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta, Request, Resource};
use kube::discovery::Discovery;
use serde_json::Value;

use super::meta::Id;

/// A kind that can be listed, watched and deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) resource: ApiResource,
    pub(crate) namespaced: bool,
    pub(crate) delete_collection: bool,
}

/// The metadata of any object.
pub(crate) type Meta = PartialObjectMeta<DynamicObject>;

/// All kinds that can be listed, watched and deleted, each once, in the version that its group prefers. Events are left
/// out: nothing depends on them.
pub(crate) async fn discover(client: &Client) -> Result<Vec<Served>, kube::Error> {
    let discovery = Discovery::new(client.clone()).run().await?;
    let mut served = vec![];
    for group in discovery.groups_alphabetical() {
        for (resource, capabilities) in group.recommended_resources() {
            let able = |verb| capabilities.supports_operation(verb);
            if resource.kind != "Event" && able(verbs::LIST) && able(verbs::WATCH) && able(verbs::DELETE) {
                served.push(Served {
                    namespaced: capabilities.scope == Scope::Namespaced,
                    delete_collection: able(verbs::DELETE_COLLECTION),
                    resource,
                });
            }
        }
    }
    Ok(served)
}

impl Served {
    /// Whether this is the kind that an owner reference names.
    pub(crate) fn is(&self, api_version: &str, kind: &str) -> bool {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        self.resource.group == group && self.resource.kind == kind
    }

    /// The object's metadata now; nothing if there is none.
    pub(crate) async fn get(&self, client: &Client, id: &Id) -> Result<Option<Meta>, kube::Error> {
        let request = self
            .at(&id.0)
            .get_metadata(&id.1, &GetParams::default())
            .map_err(kube::Error::BuildRequest)?;
        match client.request(request).await {
            Ok(meta) => Ok(Some(meta)),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The metadata of all objects in a namespace.
    pub(crate) async fn list(&self, client: &Client, namespace: &str) -> Result<Vec<Meta>, kube::Error> {
        let request = self
            .at(namespace)
            .list_metadata(&ListParams::default())
            .map_err(kube::Error::BuildRequest)?;
        client
            .request::<kube::core::ObjectList<Meta>>(request)
            .await
            .map(|list| list.items)
    }

    /// Deletes an object; one that is gone is as good as deleted.
    pub(crate) async fn delete(&self, client: &Client, id: &Id, params: &DeleteParams) -> Result<(), kube::Error> {
        let request = self
            .at(&id.0)
            .delete(&id.1, params)
            .map_err(kube::Error::BuildRequest)?;
        accept_absence(client.request::<Value>(request).await)
    }

    /// Deletes all objects in a namespace.
    pub(crate) async fn delete_all(&self, client: &Client, namespace: &str) -> Result<(), kube::Error> {
        let (params, all) = (DeleteParams::background(), ListParams::default());
        let request = self
            .at(namespace)
            .delete_collection(&params, &all)
            .map_err(kube::Error::BuildRequest)?;
        accept_absence(client.request::<Value>(request).await)
    }

    /// Merges something into an object; one that is gone needs it no more.
    pub(crate) async fn merge(&self, client: &Client, id: &Id, patch: &Value) -> Result<(), kube::Error> {
        let params = PatchParams::default();
        let request = self
            .at(&id.0)
            .patch(&id.1, &params, &Patch::Merge(patch))
            .map_err(kube::Error::BuildRequest)?;
        accept_absence(client.request::<Value>(request).await)
    }

    fn at(&self, namespace: &str) -> Request {
        let namespace = (self.namespaced && !namespace.is_empty()).then_some(namespace);
        Request::new(DynamicObject::url_path(&self.resource, namespace))
    }
}

fn accept_absence(result: Result<Value, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other.map(|_| ()),
    }
}
