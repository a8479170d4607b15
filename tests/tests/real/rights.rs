//! What the manager's account may not do. What it may is shown by all other scenarios: their managers speak as it.

use std::fs;

use skerry_tests::{NAMESPACE, kubectl::Kubectl, server::Server};

use crate::{CLOUD, Cluster};

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn the_managers_account_may_do_what_the_chart_says_and_nothing_more() {
    let cluster = Cluster::at_work().await;
    let Server::Cluster(borrowed) = &cluster.api else {
        panic!("no control plane is lent");
    };
    let kubeconfig = borrowed.plane.manager.as_ref().unwrap();
    let manager = Kubectl::new(&fs::read_to_string(kubeconfig).unwrap(), NAMESPACE);
    let whoami = manager
        .ok(&["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"])
        .await;
    assert_eq!(
        whoami,
        format!("system:serviceaccount:{NAMESPACE}:skerry-globalmanager")
    );
    // It reads what users declare, and neither changes nor deletes it.
    manager.ok(&["get", "ji", "helmet"]).await;
    for (refused, told) in [
        (["annotate", "ji", "helmet", "a=b"].as_slice(), "cannot patch resource"),
        (&["delete", "fl", "surface"], "cannot delete resource"),
        (
            &["create", "secret", "generic", "another", "--namespace=default"],
            "cannot create resource \"secrets\"",
        ),
        (
            &["delete", "secret", "skerry-edge-authority"],
            "cannot delete resource \"secrets\"",
        ),
        // Of what is made for it, it has no more than it needs.
        (
            &["scale", "deployment", CLOUD, "--replicas=2"],
            "cannot patch resource \"deployments/scale\"",
        ),
        (&["get", "replicasets"], "cannot list resource \"replicasets\""),
        (&["get", "configmaps"], "cannot list resource \"configmaps\""),
        (&["get", "leases"], "cannot list resource \"leases\""),
        (&["get", "nodes"], "cannot list resource \"nodes\""),
        // Of namespaces, it may read the one that tells the cluster.
        (&["get", "namespace", NAMESPACE], "cannot get resource \"namespaces\""),
        // And it cannot give itself more.
        (
            &[
                "create",
                "clusterrolebinding",
                "more",
                "--clusterrole=cluster-admin",
                "--user=me",
            ],
            "cannot create resource \"clusterrolebindings\"",
        ),
    ] {
        let error = manager.fails(refused).await;
        assert!(
            error.contains("is forbidden") && error.contains(told),
            "{refused:?}: {error}"
        );
    }
    // What it makes may hold up the deletion of what it looks after, and of nothing else.
    for (owner, is_taken) in [
        ("JointInferenceService", true),
        ("FederatedLearningJob", true),
        ("Model", false),
    ] {
        let held_up = format!(
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: another\n  ownerReferences:\n    - {{apiVersion: \
             sedna.io/v1alpha1, kind: {owner}, name: owner, uid: u, blockOwnerDeletion: true}}\nspec: {{ports: [{{port: 80}}]}}\n"
        );
        let file = cluster.kubectl.file("held-up.yaml", &held_up);
        let create = ["create", "--dry-run=server", "-f", &file];
        if is_taken {
            manager.ok(&create).await;
        } else {
            let error = manager.fails(&create).await;
            assert!(error.contains("cannot set blockOwnerDeletion"), "{error}");
        }
    }
    cluster.is_well().await;
}
