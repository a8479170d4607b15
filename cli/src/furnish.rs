//! What a sandbox is given before anything runs in it: images, definitions, and the examples' data on its nodes.

use std::path::Path;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, api::PostParams};
use skerry_sandbox::cluster::{Image, Images, SandboxNode};

use crate::{
    failure::Failure,
    stack::{refused, unusable},
};

/// Where the examples' manifests expect their data on a node.
const EXAMPLES: &str = "var/lib/skerry/examples";

/// The images that are ours, as commands of this binary, and those of a file.
pub(crate) fn images(file: Option<&Path>) -> Result<Images, Failure> {
    let binary = std::env::current_exe().map_err(|error| Failure::new(error, "start skerry by its path"))?;
    let ours = |role: &str| Image {
        command: vec![binary.display().to_string(), role.to_owned()],
        ..Image::default()
    };
    let mut images = Images::default();
    images.add("skerry/worker:latest", ours("worker"));
    images.add(
        &skerry_workloads::Settings::default().storage_initializer_image,
        ours("storage-initializer"),
    );
    if let Some(file) = file {
        images.extend(
            Images::load(file).map_err(|error| Failure::new(error, "correct the file, or leave out --images"))?,
        );
    }
    Ok(images)
}

/// Installs ours. What is there stays: the kubeconfig is written before, and whoever reads it may be faster.
pub(crate) async fn definitions(client: &Client) -> Result<(), Failure> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in skerry_crds::all() {
        match api.create(&PostParams::default(), crd).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            created => created.map(drop).map_err(refused)?,
        }
    }
    Ok(())
}

/// Makes a node as one is that no manager knew before, with the examples' data.
pub(crate) async fn node(node: &SandboxNode) -> Result<(), Failure> {
    join_anew(node)?;
    let args = skerry_workers::materials::DataArgs {
        to: node.host_folder().join(EXAMPLES),
        owner: None,
    };
    tokio::task::spawn_blocking(move || skerry_workers::materials::write_data(&args))
        .await
        .map_err(Failure::defect)?
        .map_err(|error| Failure::new(format!("{error:#}"), "see whether the disk is full"))
}

/// Takes what the node's local controller stored for an earlier sandbox off its disk: it heeds one cluster only.
fn join_anew(node: &SandboxNode) -> Result<(), Failure> {
    let store = node.host_folder().join("var/lib/skerry");
    match std::fs::remove_dir_all(&store) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(unusable(&store, &error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use kube::api::ListParams;
    use skerry_sandbox::ApiServer;

    use super::*;

    #[tokio::test]
    async fn definitions_that_somebody_installed_first_are_no_failure() {
        let client = ApiServer::new().client();
        let api: Api<CustomResourceDefinition> = Api::all(client.clone());
        api.create(&PostParams::default(), &skerry_crds::all()[0])
            .await
            .unwrap();
        definitions(&client).await.unwrap();
        let installed = api.list_metadata(&ListParams::default()).await.unwrap();
        assert_eq!(installed.items.len(), skerry_crds::all().len());
    }
}
