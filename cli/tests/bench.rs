//! `skerry bench` against a sandbox: it measures all that it promises, prints it as programs read it, and leaves nothing.

#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod common;

use std::{collections::BTreeMap, process::Command};

use common::{SKERRY, Sandbox};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::{
    Api, Client, Config, ResourceExt,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use nix::sys::signal::Signal;
use serde_json::Value;

#[tokio::test]
async fn a_bench_of_the_control_plane_prints_each_figure_and_leaves_nothing() {
    // Another test may have been first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let home = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::start(home.path(), &["--control-plane-only"]);
    let kubeconfig = Kubeconfig::read_from(&sandbox.kubeconfig).unwrap();
    let told = Command::new(SKERRY)
        .args([
            "bench",
            "control-plane",
            "--services=2",
            "--jobs=1",
            "--json",
            "--kubeconfig",
        ])
        .arg(&sandbox.kubeconfig)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&told.stderr);
    assert!(told.status.success(), "{errors}");

    let lines: Vec<Value> = String::from_utf8_lossy(&told.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut rounds: BTreeMap<String, Vec<(u64, f64)>> = BTreeMap::new();
    for line in &lines {
        assert!(line["unit"].is_string(), "{line}");
        if let Some(services) = line["conditions"]["services"].as_u64() {
            let name = line["name"].as_str().unwrap().strip_prefix("control_plane.").unwrap();
            let value = line["value"].as_f64().unwrap();
            rounds.entry(name.to_owned()).or_default().push((services, value));
        }
    }
    for name in [
        "children_present_seconds",
        "edits_per_second",
        "recreate_seconds",
        "manager_cpu_seconds",
        "manager_rss_bytes",
        "api_calls.patch",
        "api_calls.watch",
    ] {
        let found = rounds
            .get(name)
            .unwrap_or_else(|| panic!("{name} is not printed: {lines:?}"));
        assert!(found.iter().all(|(_, value)| *value > 0.0), "{name}: {found:?}");
        let services: Vec<_> = found.iter().map(|(services, _)| *services).collect();
        assert_eq!(services, [2, 4], "{name}");
        let growth = format!("control_plane.{name}.growth");
        let grown = lines.iter().find(|line| line["name"] == growth.as_str());
        let ratio = grown.unwrap_or_else(|| panic!("{growth} is not printed"))["value"]
            .as_f64()
            .unwrap();
        assert!(
            (ratio - found[1].1 / found[0].1).abs() < 1e-9,
            "{growth}: {ratio} of {found:?}"
        );
    }
    // Two Deployments of each service, made twice, and edited once each at the edge.
    assert!(rounds["api_calls.patch"][0].1 >= 10.0, "{rounds:?}");
    assert!(rounds["api_calls_throttled"].iter().all(|(_, value)| *value == 0.0));

    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let client = Client::try_from(config.unwrap()).unwrap();
    let namespaces = Api::<Namespace>::all(client.clone()).list(&ListParams::default()).await;
    let nodes = Api::<Node>::all(client).list(&ListParams::default()).await;
    let names = namespaces.unwrap().into_iter().map(|namespace| namespace.name_any());
    let names: Vec<_> = names
        .chain(nodes.unwrap().into_iter().map(|node| node.name_any()))
        .collect();
    assert!(!names.iter().any(|name| name.contains("bench")), "{names:?}");
    sandbox.end(Signal::SIGTERM);
}

#[test]
fn a_kubeconfig_that_is_not_there_is_named() {
    let told = Command::new(SKERRY)
        .args(["bench", "control-plane", "--kubeconfig", "nowhere/kubeconfig"])
        .output()
        .unwrap();
    assert_eq!(told.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&told.stderr);
    assert!(
        errors.contains("nowhere/kubeconfig") && errors.contains("--kubeconfig"),
        "{errors}"
    );
}
