//! Our definitions, made known to an API server.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{ApiResource, ListParams, Patch, PatchParams},
    core::{DynamicObject, GroupVersionKind},
    runtime::{conditions::is_crd_established, wait::await_condition},
};
use serde_json::json;
use tokio::time::sleep;

use crate::world::{NAMESPACE, USER};

/// The kinds that the manager looks after. Reading a definition takes longer than most scenarios do, and nobody here asks
/// for the others.
pub const KINDS: [&str; 4] = ["Dataset", "FederatedLearningJob", "JointInferenceService", "Model"];

/// Our CRDs of these kinds.
pub(crate) fn definitions(kinds: &[&str]) -> impl Iterator<Item = &'static CustomResourceDefinition> {
    let all = skerry_crds::all().iter();
    all.filter(|crd| kinds.contains(&crd.spec.names.kind.as_str()))
}

/// Installs our CRDs of these kinds as `kubectl apply --server-side --force-conflicts` does: over what there may be; until
/// they are served.
pub async fn install(client: &Client, kinds: &[&str]) {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in definitions(kinds) {
        let name = crd.metadata.name.as_deref().expect("a CRD has a name");
        crds.patch(name, &PatchParams::apply(USER).force(), &Patch::Apply(crd))
            .await
            .expect("the CRD is accepted");
        is_served(client, crd).await;
    }
}

/// Makes the API server take anything for a resource of this kind, as an older definition of it may have.
pub async fn accept_anything(client: &Client, plural: &str) {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let anything = json!([{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema", "value":
        {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}]);
    let patch = Patch::Json::<()>(serde_json::from_value(anything).expect("it is a patch"));
    let how = PatchParams::default();
    let patched = crds.patch(&format!("{plural}.sedna.io"), &how, &patch).await;
    patched.expect("the CRD is there");
}

/// Resolves when objects of the definition can be asked for.
pub(crate) async fn is_served(client: &Client, crd: &CustomResourceDefinition) {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = crd.metadata.name.as_deref().expect("a CRD has a name");
    await_condition(crds, name, is_crd_established())
        .await
        .expect("the CRD is established");
    let names = &crd.spec.names;
    let group = GroupVersionKind::gvk(&crd.spec.group, &crd.spec.versions[0].name, &names.kind);
    let resource = ApiResource::from_gvk_with_plural(&group, &names.plural);
    let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &resource);
    // Some time after it has said so.
    while objects.list(&ListParams::default()).await.is_err() {
        sleep(Duration::from_millis(50)).await;
    }
}
