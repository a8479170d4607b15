//! A manager of another cluster, in which nothing is declared, at the address of a node's own: it changes nothing at the node.

use kube::{Api, api::PostParams};
use skerry_crds::sedna::v1alpha1::{Dataset, DatasetSpec};
use skerry_tests::{definitions::KINDS, loopback::serve};

use crate::{
    NODE,
    parts::{Manager, Node, declared, differences, last_words},
};

const OBJECTS: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_of_another_cluster_is_refused_and_deletes_nothing() {
    // Another test may have been first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (api, _other) = tokio::join!(serve(folder.path(), &KINDS), serve(elsewhere.path(), &KINDS));
    let mut manager = Manager::new(folder.path(), "manager", &folder.path().join("kubeconfig"));
    let mut stranger = manager.replaced_by(elsewhere.path(), &elsewhere.path().join("kubeconfig"));
    let mut node = Node::new(folder.path(), NODE, manager.port);
    manager.start();
    node.start();
    let datasets: Api<Dataset> = Api::namespaced(api.client(), "default");
    for number in 0..OBJECTS {
        let spec = DatasetSpec {
            url: "/data/0".into(),
            format: "txt".into(),
            node_name: NODE.into(),
            ..DatasetSpec::default()
        };
        let dataset = Dataset::new(&format!("d{number}"), spec);
        datasets.create(&PostParams::default(), &dataset).await.unwrap();
    }
    assert!(
        manager.all_acknowledged(1, OBJECTS).await,
        "{}",
        last_words(&manager.log)
    );
    node.write_down();
    node.start();

    manager.kill();
    stranger.start();
    let refused = stranger
        .until(|counted| counted.value("edge_refused_total{reason=\"other_cluster\"}") > Some(1))
        .await;
    assert!(refused, "{}", last_words(&stranger.log));
    let (held, (came, _)) = (node.held(), node.came());
    let declared = declared(&datasets, NODE).await;
    assert_eq!((differences(&declared, &held), came), ((0, 0), 0));

    // It was lent to nobody: its own manager finds it as it left it.
    stranger.kill();
    manager.start();
    node.start();
    assert!(
        manager.all_acknowledged(1, OBJECTS).await,
        "{}",
        last_words(&manager.log)
    );
}
