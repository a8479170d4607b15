//! What a node without a certificate says that it holds, and how long that counts.

use serde_json::json;

use super::cluster::{Running, dataset, settle, world};

#[tokio::test(start_paused = true)]
async fn what_a_node_names_counts_until_the_manager_knows_it_and_not_while_its_session_lasts() {
    let (cluster, node) = world().await;
    let disk = node.kill();
    let url = json!({"spec": {"url": "/edited/meanwhile.csv"}});
    cluster.edit(&dataset(), &url).await;
    let cluster = cluster.another_manager();
    let node = Running::start_on(disk, 2, cluster.serve());
    settle().await;
    // It has named all of the chunk that differs.
    assert_eq!(
        (cluster.hub.snapshot().sessions, cluster.hub.shared.claims.taken()),
        (1, 0)
    );
    node.stop().await;
}
