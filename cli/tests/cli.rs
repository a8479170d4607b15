//! The command line as a contract: what it prints, how it fails, and what a sandbox leaves behind.

#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod common;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use common::{SKERRY, Sandbox};
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Config,
    api::{ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::wait::await_condition,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The repository's root.
const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// What is printed, for files that are right and files that are not. `TRYCMD=overwrite` writes the snapshots anew.
#[test]
fn what_it_prints() {
    trycmd::TestCases::new().case("tests/cmd/*.trycmd");
}

#[test]
fn crds_are_those_in_the_chart() {
    let output = Command::new(SKERRY).arg("crds").output().unwrap();
    assert!(output.status.success());
    let printed: Vec<Value> = serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap();
    let by_name = |definitions: Vec<Value>| -> BTreeMap<String, Value> {
        let named = definitions
            .into_iter()
            .map(|crd| (crd["metadata"]["name"].as_str().unwrap().to_owned(), crd));
        named.collect()
    };
    let files = fs::read_dir(Path::new(REPOSITORY).join("charts/skerry/files/crds")).unwrap();
    let committed =
        files.map(|file| serde_saphyr::from_str(&fs::read_to_string(file.unwrap().path()).unwrap()).unwrap());
    let committed = by_name(committed.collect());
    let printed = by_name(printed);
    assert_eq!(
        printed.keys().collect::<Vec<_>>(),
        committed.keys().collect::<Vec<_>>(),
        "the same definitions"
    );
    for (name, definition) in &printed {
        assert!(*definition == committed[name], "{name} differs from the committed one");
    }
}

#[test]
fn images_that_cannot_be_read_end_it_with_a_hint() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("images.yaml");
    for (content, complaint) in [
        (None, "No such file"),
        (Some("pictures: {}"), "unknown field `pictures`"),
        (Some("images: {\"a:1\": {}}"), "command"),
    ] {
        let _ = content.map(|content| fs::write(&file, content).unwrap());
        let output = Command::new(SKERRY)
            .args(["sandbox", "--images"])
            .arg(&file)
            .env("XDG_STATE_HOME", home.path())
            .output()
            .unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.starts_with(&format!("error: {}: ", file.display())), "{told}");
        assert!(told.contains(complaint), "{told}");
        assert_eq!(told.lines().count(), 2, "{told}");
        assert!(
            told.ends_with(" hint: correct the file, or leave out --images\n"),
            "{told}"
        );
        assert!(!String::from_utf8(output.stdout).unwrap().contains("ready"));
        assert_eq!(left(home.path()), Vec::<String>::new());
    }
}

#[tokio::test]
async fn sigterm_ends_a_sandbox_and_all_that_it_started() {
    let home = TempDir::new().unwrap();
    let images = sleeper(home.path());
    let kubeconfig = home.path().join("my-kubeconfig");
    let sandbox = Sandbox::start(
        home.path(),
        &[
            "--nodes",
            "a,b:edge",
            "--images",
            images.to_str().unwrap(),
            "--kubeconfig",
            kubeconfig.to_str().unwrap(),
        ],
    );
    assert_eq!(sandbox.kubeconfig, kubeconfig);
    let client = client(&sandbox).await;

    let nodes = Api::<Node>::all(client.clone())
        .list(&ListParams::default())
        .await
        .unwrap();
    let nodes: Vec<_> = nodes.iter().filter_map(|node| node.metadata.name.as_deref()).collect();
    assert_eq!(nodes, ["a", "b"]);
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    assert_eq!(crds.list(&ListParams::default()).await.unwrap().items.len(), 12);
    run_sleeper(client, "b").await;
    for part in ["globalmanager --kubeconfig", "--node-name b ", "sleep 86400"] {
        assert!(
            left(home.path()).iter().any(|process| process.contains(part)),
            "{part} runs"
        );
    }
    assert!(
        !left(home.path())
            .iter()
            .any(|process| process.contains("--node-name a ")),
        "the node a is not at the edge"
    );

    let second = Command::new(SKERRY)
        .arg("sandbox")
        .env("XDG_STATE_HOME", home.path())
        .output()
        .unwrap();
    let told = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1), "{told}");
    assert!(
        told.contains("is in use by another sandbox\n hint: end that one"),
        "{told}"
    );
    assert!(!left(home.path()).is_empty(), "the first one goes on");

    assert_eq!(sandbox.end(Signal::SIGTERM).code(), Some(0));
    assert_eq!(left(home.path()), Vec::<String>::new());
    for log in fs::read_dir(home.path().join("skerry/sandbox/logs")).unwrap() {
        let log = log.unwrap().path();
        let said = fs::read_to_string(&log).unwrap();
        assert!(!said.contains('\u{1b}'), "{} has colours", log.display());
    }
}

#[tokio::test]
async fn what_a_killed_sandbox_leaves_the_next_start_clears() {
    let home = TempDir::new().unwrap();
    let images = sleeper(home.path());
    let args = [
        "--control-plane-only",
        "--nodes",
        "edge-7:edge",
        "--images",
        images.to_str().unwrap(),
    ];
    let sandbox = Sandbox::start(home.path(), &args);
    run_sleeper(client(&sandbox).await, "edge-7").await;
    assert!(
        !left(home.path())
            .iter()
            .any(|process| process.contains("globalmanager") || process.contains("localcontroller")),
        "only a control plane"
    );

    // Without its guard, nobody is left to clear up.
    kill(processes(home.path(), "skerry-sandbox-guard")[0], Signal::SIGKILL).unwrap();
    assert_eq!(sandbox.end(Signal::SIGKILL).code(), None);
    let orphan = processes(home.path(), "sleep 86400")[0];

    let sandbox = Sandbox::start(home.path(), &args);
    assert_eq!(processes(home.path(), "sleep 86400"), [], "{orphan} is gone");
    let pods = Api::<Pod>::all(client(&sandbox).await);
    assert_eq!(
        pods.list(&ListParams::default()).await.unwrap().items.len(),
        0,
        "a new cluster"
    );

    // With its guard, nothing waits for the next start.
    run_sleeper(client(&sandbox).await, "edge-7").await;
    assert_eq!(sandbox.end(Signal::SIGKILL).code(), None);
    let cleared = async {
        // Neither the guard nor the processes are ours: no event of their end can be had.
        let mut look = tokio::time::interval(Duration::from_millis(50));
        while !left(home.path()).is_empty() {
            look.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), cleared).await.unwrap();
}

#[test]
fn sigint_ends_a_sandbox_too() {
    let home = TempDir::new().unwrap();
    let sandbox = Sandbox::start(home.path(), &["--control-plane-only", "--nodes", "a"]);
    assert_eq!(sandbox.end(Signal::SIGINT).code(), Some(0));
    assert_eq!(left(home.path()), Vec::<String>::new());
}

async fn client(sandbox: &Sandbox) -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(&sandbox.kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

/// A file of images with one that only sleeps.
fn sleeper(home: &Path) -> PathBuf {
    let file = home.join("images.yaml");
    fs::write(&file, "images: {\"sleeper:1\": {command: [/bin/sleep, \"86400\"]}}").unwrap();
    file
}

/// A pod of that image, up and running.
async fn run_sleeper(client: Client, node: &str) {
    let pods = Api::<Pod>::namespaced(client, "default");
    let pod = json!({"metadata": {"name": "sleeper"},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "sleeper:1"}]}});
    let pod = serde_json::from_value(pod).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let running = |pod: Option<&Pod>| {
        let phase = pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref());
        phase == Some("Running")
    };
    await_condition(pods, "sleeper", running).await.unwrap();
}

/// Command lines of the processes that belong to a sandbox of this state folder.
fn left(home: &Path) -> Vec<String> {
    carriers(home).into_iter().map(|(_, command)| command).collect()
}

/// Those of them whose command line contains `what`.
fn processes(home: &Path, what: &str) -> Vec<Pid> {
    let found = carriers(home).into_iter().filter(|(_, command)| command.contains(what));
    found.map(|(pid, _)| pid).collect()
}

/// All processes but this one that name the state folder in their environment or on their command line.
fn carriers(home: &Path) -> Vec<(Pid, String)> {
    let folder = home.canonicalize().unwrap().display().to_string();
    let read = |pid: Pid, file: &str| {
        // It may have ended in between, or be somebody else's.
        let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', " ")
    };
    let pids = fs::read_dir("/proc").unwrap();
    let pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().map(Pid::from_raw));
    pids.filter(|pid| *pid != Pid::this())
        .map(|pid| (pid, read(pid, "cmdline"), read(pid, "environ")))
        .filter(|(_, command, environment)| format!("{command}{environment}").contains(&folder))
        .map(|(pid, command, _)| (pid, command))
        .collect()
}
