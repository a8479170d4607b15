//! The assembled sandbox: starting, several beside each other, and what is left after the end.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::json;
use skerry_sandbox::cluster::{Image, NodeSpec, Options, Sandbox};

use crate::support::{phase, pod, pod_when, soon};

fn options(folder: &std::path::Path) -> Options {
    let mut options = Options::new(folder);
    options.nodes = vec![NodeSpec::edge("edge-1")];
    let shell = Image {
        command: ["/bin/sh", "-c"].map(str::to_owned).to_vec(),
        ..Image::default()
    };
    options.images.add("sh", shell);
    options
}

async fn start_pod(client: &Client) -> Pod {
    let mut object = pod("sleeper", &json!({"nodeName": "edge-1"}));
    object["spec"]["containers"] = json!([{"name": "main", "image": "sh", "args": ["echo up; exec sleep 300"]}]);
    let object: Pod = serde_json::from_value(object).unwrap();
    Api::<Pod>::namespaced(client.clone(), "default")
        .create(&PostParams::default(), &object)
        .await
        .unwrap();
    pod_when(client, "sleeper", |pod| phase(pod) == "Running").await
}

/// The processes of this machine that carry a sandbox's mark.
fn marked(folder: &std::path::Path) -> usize {
    let mark = format!("SKERRY_SANDBOX={}", folder.canonicalize().unwrap().display());
    let environments = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read(entry.ok()?.path().join("environ")).ok());
    environments
        .filter(|variables| {
            variables
                .split(|byte| *byte == 0)
                .any(|variable| variable == mark.as_bytes())
        })
        .count()
}

#[tokio::test]
async fn the_kubeconfig_leads_to_it() {
    let state = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::start(options(state.path())).await.unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&sandbox.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    let client = Client::try_from(config).unwrap();
    let nodes = Api::<Node>::all(client)
        .list(&ListParams::default())
        .await
        .unwrap()
        .items;
    assert_eq!(nodes.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["edge-1"]);
    assert!(nodes[0].labels().contains_key("node-role.kubernetes.io/edge"));
    sandbox.shutdown().await;
}

#[tokio::test]
async fn two_run_beside_each_other_and_leave_nothing() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = Sandbox::start(options(one.path())).await.unwrap();
    let second = Sandbox::start(options(two.path())).await.unwrap();
    let address = |sandbox: &Sandbox| sandbox.node("edge-1").unwrap().address();
    assert_ne!(address(&first), address(&second));
    let clients = [first.client(), second.client()];
    let (a, b) = tokio::join!(start_pod(&clients[0]), start_pod(&clients[1]));
    assert_ne!(a.status.unwrap().pod_ip, b.status.unwrap().pod_ip);
    // While a process becomes another one, nobody can read its environment.
    soon(async || match (marked(one.path()), marked(two.path())) {
        (1, 1) => Ok(()),
        found => Err(format!("{found:?} processes")),
    })
    .await;
    first.shutdown().await;
    assert_eq!((marked(one.path()), marked(two.path())), (0, 1));
    drop(second);
    assert_eq!(marked(two.path()), 0);
}

#[tokio::test]
async fn one_state_folder_is_for_one_sandbox() {
    let state = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::start(options(state.path())).await.unwrap();
    let error = Sandbox::start(options(state.path())).await.err().unwrap().to_string();
    assert!(error.contains("is in use by another sandbox"), "{error}");
    sandbox.shutdown().await;
    Sandbox::start(options(state.path())).await.unwrap().shutdown().await;
}

#[tokio::test]
async fn what_cannot_be_is_refused_in_words() {
    let state = tempfile::tempdir().unwrap();
    let mut twice = options(state.path());
    twice.nodes.push(NodeSpec::cloud("edge-1"));
    assert_eq!(
        Sandbox::start(twice).await.err().unwrap().to_string(),
        "there are two nodes named edge-1"
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut busy = options(state.path());
    busy.listen = Some(taken.local_addr().unwrap());
    let error = Sandbox::start(busy).await.err().unwrap().to_string();
    assert!(error.starts_with("cannot listen on 127.0.0.1:"), "{error}");
}
