//! `skerry bench` against a sandbox: it measures all that it promises, prints it as programs read it, and leaves nothing.

#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use common::{SKERRY, Sandbox};
use k8s_openapi::api::{
    core::v1::{Namespace, Node},
    rbac::v1::ClusterRoleBinding,
};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{ApiResource, ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{DynamicObject, GroupVersionKind},
};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use serde_json::{Value, json};

#[tokio::test]
async fn a_bench_of_the_control_plane_prints_each_figure_and_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::start(home.path(), &["--control-plane-only"]);
    let lines = bench_control_plane(&sandbox, &["--rounds=3"]);
    let mut rounds: BTreeMap<String, Vec<(u64, f64)>> = BTreeMap::new();
    for line in &lines {
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
        assert_eq!(services, [2, 4, 2], "{name}");
        let growth = format!("control_plane.{name}.growth");
        let grown = lines.iter().find(|line| line["name"] == growth.as_str());
        let ratio = grown.unwrap_or_else(|| panic!("{growth} is not printed"))["value"]
            .as_f64()
            .unwrap();
        assert!(
            (ratio - found[1].1 / f64::midpoint(found[0].1, found[2].1)).abs() < 1e-9,
            "{growth}: {ratio} of {found:?}"
        );
    }
    // Two Deployments of each service, made twice, and edited once each at the edge.
    assert!(rounds["api_calls.patch"][0].1 >= 10.0, "{rounds:?}");
    for none in ["api_calls_throttled", "nodes_given_up"] {
        assert!(
            rounds[none].iter().all(|(_, value)| *value == 0.0),
            "{none}: {rounds:?}"
        );
    }

    assert_nothing_is_left(client(&sandbox).await).await;
    sandbox.end(Signal::SIGTERM);
}

#[tokio::test]
async fn a_bench_of_the_control_plane_that_is_interrupted_in_its_last_round_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::start(home.path(), &["--control-plane-only"]);
    let processors = processors_of(std::process::id());
    let one = processors.split([',', '-']).next().unwrap();
    let mut bench = Command::new(SKERRY)
        .args(["bench", "control-plane", "--services=1", "--jobs=0", "--rounds=3"])
        .args(["--processors", one])
        .arg("--kubeconfig")
        .arg(&sandbox.kubeconfig)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(bench.stderr.take().unwrap()).lines().map(Result::unwrap);
    let begun = told.by_ref().any(|line| line.ends_with("round 3: editing"));
    assert!(begun, "the last round has begun");
    let on: Vec<_> = children(bench.id()).into_iter().map(processors_of).collect();
    assert_eq!(on, [one], "the manager has the processors that are named");
    let pid = Pid::from_raw(bench.id().try_into().unwrap());
    signal::kill(pid, Signal::SIGINT).unwrap();
    let told: Vec<_> = told.collect();
    assert!(!bench.wait().unwrap().success(), "{told:?}");
    assert!(told.iter().any(|line| line.contains("interrupted")), "{told:?}");
    assert_nothing_is_left(client(&sandbox).await).await;
    sandbox.end(Signal::SIGTERM);
}

#[tokio::test]
async fn a_bench_of_the_control_plane_without_a_manager_writes_the_children_itself() {
    let home = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::start(home.path(), &["--control-plane-only"]);
    let lines = bench_control_plane(&sandbox, &["--unmanaged"]);
    let names = lines.iter().map(|line| line["name"].as_str().unwrap().to_owned());
    let told: BTreeSet<_> = names.collect();
    let figures = [
        "children_present_seconds",
        "children_settled_seconds",
        "emptied_settled_seconds",
    ];
    let figures = figures.map(|figure| format!("control_plane.unmanaged_{figure}"));
    let grown = figures.iter().map(|figure| format!("{figure}.growth"));
    let wanted: BTreeSet<_> = figures.iter().cloned().chain(grown).collect();
    assert_eq!(told, wanted);

    assert_nothing_is_left(client(&sandbox).await).await;
    sandbox.end(Signal::SIGTERM);
}

#[tokio::test]
async fn a_bench_of_two_control_planes_has_twice_the_load_on_the_other_and_leaves_nothing_on_either() {
    let homes = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let sandboxes = homes
        .each_ref()
        .map(|home| Sandbox::start(home.path(), &["--control-plane-only"]));
    let [first, other] = &sandboxes;
    let beside = format!("--beside={}", other.kubeconfig.display());
    let lines = bench_control_plane(first, &["--unmanaged", "--rounds=4", &beside]);
    let present = lines
        .iter()
        .filter(|line| line["name"] == "control_plane.unmanaged_children_present_seconds");
    let conditions: Vec<_> = present.map(|line| &line["conditions"]).collect();
    let loads: Vec<_> = conditions.iter().map(|of| of["services"].as_u64().unwrap()).collect();
    assert_eq!(loads, [2, 4, 2, 4]);
    assert!(conditions.iter().all(|of| of["beside"] == 1), "{conditions:?}");
    let growth = "control_plane.unmanaged_children_present_seconds.growth";
    assert!(lines.iter().any(|line| line["name"] == growth), "{lines:?}");
    for sandbox in sandboxes {
        assert_nothing_is_left(client(&sandbox).await).await;
        sandbox.end(Signal::SIGTERM);
    }
}

#[tokio::test]
async fn a_bench_of_two_control_planes_needs_two() {
    let home = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::start(home.path(), &["--control-plane-only"]);
    for (beside, code, why) in [
        (sandbox.kubeconfig.as_path(), 2, "name the same control plane"),
        (Path::new("nowhere/kubeconfig"), 1, "nowhere/kubeconfig"),
    ] {
        let planes = [("--kubeconfig", sandbox.kubeconfig.as_path()), ("--beside", beside)];
        assert_refused(&planes, code, &[why, "--beside"]);
        assert_nothing_is_left(client(&sandbox).await).await;
    }
    sandbox.end(Signal::SIGTERM);
}

#[test]
fn a_manager_is_put_on_no_processors_that_are_not_there() {
    let home = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::start(home.path(), &["--control-plane-only"]);
    let planes = [
        ("--kubeconfig", sandbox.kubeconfig.as_path()),
        ("--processors", Path::new("none")),
    ];
    assert_refused(&planes, 1, &["--processors none: taskset: "]);
    sandbox.end(Signal::SIGTERM);
}

#[tokio::test]
async fn a_bench_of_the_control_plane_lets_alone_what_others_declared() {
    let home = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::start(home.path(), &["--control-plane-only"]);
    let client = client(&sandbox).await;
    let model = json!({
        "apiVersion": "sedna.io/v1alpha1",
        "kind": "Model",
        "metadata": {"name": "precious"},
        "spec": {"url": "/models/precious.pb", "format": "pb"},
    });
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("sedna.io", "v1alpha1", "Model"));
    let models: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &kind);
    let model = serde_json::from_value(model).unwrap();
    models.create(&PostParams::default(), &model).await.unwrap();
    let planes = [("--kubeconfig", sandbox.kubeconfig.as_path())];
    assert_refused(&planes, 1, &["the Model default/precious", "--kubeconfig"]);
    assert_nothing_is_left(client).await;
    sandbox.end(Signal::SIGTERM);
}

/// The processors that a process may use.
fn processors_of(process: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.unwrap().trim().to_owned()
}

/// What a process has started and not seen to its end.
fn children(process: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let of_each = threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("children")).unwrap());
    let all: Vec<String> = of_each.collect();
    let all = all.iter().flat_map(|of_one| of_one.split_whitespace());
    all.map(|child| child.parse().unwrap()).collect()
}

async fn client(sandbox: &Sandbox) -> Client {
    // Another test may have been first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(&sandbox.kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.unwrap()).unwrap()
}

async fn assert_nothing_is_left(client: Client) {
    let all = ListParams::default();
    let namespaces = Api::<Namespace>::all(client.clone()).list(&all).await.unwrap();
    let nodes = Api::<Node>::all(client.clone()).list(&all).await.unwrap();
    let bindings = Api::<ClusterRoleBinding>::all(client).list(&all).await.unwrap();
    let names = namespaces.into_iter().map(|namespace| namespace.name_any());
    let names = names.chain(nodes.into_iter().map(|node| node.name_any()));
    let names: Vec<_> = names
        .chain(bindings.into_iter().map(|binding| binding.name_any()))
        .collect();
    assert!(!names.iter().any(|name| name.contains("bench")), "{names:?}");
}

/// Runs `skerry bench` with these arguments; the lines that it prints.
fn bench(arguments: &[&str]) -> Vec<Value> {
    let told = Command::new(SKERRY)
        .arg("bench")
        .args(arguments)
        .arg("--json")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&told.stderr);
    assert!(told.status.success(), "{errors}");
    let lines = String::from_utf8_lossy(&told.stdout);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().all(|line| line["unit"].is_string()), "{lines:?}");
    lines
}

/// Runs `skerry bench control-plane` with two services and a job, and with these arguments.
fn bench_control_plane(sandbox: &Sandbox, arguments: &[&str]) -> Vec<Value> {
    let kubeconfig = sandbox.kubeconfig.to_str().unwrap();
    let load = ["control-plane", "--services=2", "--jobs=1", "--kubeconfig", kubeconfig];
    bench(&[&load, arguments].concat())
}

/// Runs `skerry bench edge` with these arguments; what it prints: name, conditions, value.
fn bench_edge(arguments: &[&str]) -> Vec<(String, Value, f64)> {
    let read = |line: &Value| {
        let name = line["name"].as_str().unwrap().strip_prefix("edge.").unwrap();
        (
            name.to_owned(),
            line["conditions"].clone(),
            line["value"].as_f64().unwrap(),
        )
    };
    bench(&[&["edge"], arguments].concat()).iter().map(read).collect()
}

/// The values of a figure, one a round.
fn values(printed: &[(String, Value, f64)], wanted: &str) -> Vec<f64> {
    let found = printed.iter().filter(|(name, ..)| name == wanted);
    let values: Vec<_> = found.map(|(_, _, value)| *value).collect();
    assert!(!values.is_empty(), "{wanted} is not printed: {printed:?}");
    values
}

/// Each of these figures is printed, and there is something to it.
fn are_there(printed: &[(String, Value, f64)], names: &[&str]) {
    for name in names {
        let values = values(printed, name);
        assert!(values.iter().all(|value| *value > 0.0), "{name}: {values:?}");
    }
}

#[test]
fn a_bench_of_the_edge_prints_what_edits_and_connections_cost() {
    let printed = bench_edge(&[
        "--only=edits,connections",
        "--nodes=4",
        "--rounds=3",
        "--connections=40",
    ]);
    assert_eq!(values(&printed, "edits_unacked"), [0.0, 0.0]);
    are_there(
        &printed,
        &[
            "acked_edits_per_second",
            "edit_sent_to_ack_p99_seconds",
            "api_server_alone_edits_per_second",
            "share_of_api_server_watched",
            "writes_share_of_api_server_alone",
            "bodies_per_edit",
            "connected_rss_bytes.plain",
            "connected_rss_bytes.tls",
        ],
    );
    // With so little of everything these may be nought.
    for name in [
        "edit_to_ack_p99_seconds",
        "cores_busy.all",
        "cores_busy.manager",
        "rss_per_connection_bytes.plain",
        "rss_per_connection_bytes.tls",
    ] {
        values(&printed, name);
    }
    let mut rounds = printed.iter().filter(|(name, ..)| name == "acked_edits_per_second");
    let (_, conditions, _) = rounds.next().unwrap();
    assert_eq!(
        (conditions["nodes"].as_u64(), conditions["edits"].as_u64()),
        (Some(2), Some(6))
    );
}

#[test]
fn a_bench_of_the_edge_loses_nothing() {
    let printed = bench_edge(&[
        "--only=burst,kind-again",
        "--nodes=4",
        "--objects=20",
        "--quick-edits=3",
        "--disturbances=6",
    ]);
    for name in ["lost", "stale_final_versions", "out_of_order", "held_in_excess"] {
        assert_eq!(values(&printed, name), [0.0, 0.0], "{name}, undisturbed and disturbed");
        assert_eq!(values(&printed, &format!("kind_again_{name}")), [0.0], "{name}");
    }
    assert_eq!(values(&printed, "deleted"), [0.0, 0.0], "undisturbed and disturbed");
    assert_eq!(values(&printed, "missing_after_a_disturbance"), [0.0]);
    let meanwhile = values(&printed, "least_edits_while_disturbed");
    assert!(meanwhile[0] >= 1.0, "{meanwhile:?}");
    are_there(
        &printed,
        &["burst_acked_edits_per_second", "kind_again_settled_seconds"],
    );
}

#[test]
fn a_bench_of_the_edge_weighs_the_manager_and_the_local_controller() {
    let folder = tempfile::tempdir().unwrap();
    // That of this build: the one that is shipped takes minutes to build.
    let program = folder.path().join("localcontroller");
    let text = folder.path().join("localcontroller.text");
    std::fs::write(&text, format!("#!/bin/sh\nexec '{SKERRY}' localcontroller \"$@\"\n")).unwrap();
    // Open for writing in this process, it would be so for a moment in what other tests start, and could not be run.
    let mut install = Command::new("install");
    let installed = install.arg("--mode=755").args([&text, &program]).status().unwrap();
    assert!(installed.success());
    let printed = bench_edge(&[
        "--only=service-edits,services,local-controller",
        "--nodes=1",
        "--rounds=3",
        "--services=1",
        "--kept=5",
        "--reports=20",
        &format!("--local-controller={}", program.display()),
    ]);
    let size = std::fs::metadata(&program).unwrap().len();
    let size = Value::from(size).as_f64().unwrap();
    assert_eq!(values(&printed, "localcontroller_binary_bytes"), [size, size]);
    let weighed = printed
        .iter()
        .filter(|(name, ..)| name.starts_with("localcontroller_rss") && !name.ends_with(".growth"));
    for (name, conditions, _) in weighed {
        assert_eq!(conditions["binary"], program.to_str().unwrap(), "{name}");
        assert_eq!(conditions["binary_kind"], "as it was named", "{name}");
    }
    are_there(
        &printed,
        &[
            "acked_edits_per_second.services",
            "manager_rss_bytes.plain",
            "manager_rss_bytes.tls",
            "localcontroller_rss_bytes",
            "localcontroller_rss_after_load_bytes",
            "localcontroller_rss_peak_bytes",
            "localcontroller_rss_bytes.tls",
            "localcontroller_rss_after_load_bytes.tls",
            "localcontroller_rss_peak_bytes.tls",
        ],
    );
    // With so little of everything these may be nought.
    for name in [
        "localcontroller_cpu_seconds_per_change",
        "localcontroller_cpu_seconds_per_report",
        "localcontroller_cpu_seconds_per_change.tls",
        "localcontroller_cpu_seconds_per_report.tls",
    ] {
        values(&printed, name);
    }
    // Whoever hears of success relies on the disk.
    let syncs = ["localcontroller_fsyncs_per_change", "localcontroller_fsyncs_per_report"];
    if may_trace() {
        are_there(&printed, &syncs);
    } else {
        eprintln!("syncs of the disk were not counted: strace is not there, or may not look at processes");
        let counted = |(name, ..): &(String, Value, f64)| syncs.contains(&name.as_str());
        assert!(!printed.iter().any(counted), "what was not counted is not printed");
    }
}

/// Whether `strace` is there and may attach to a process that is not its own: then it does so until it is ended.
fn may_trace() -> bool {
    let mut other = Command::new("sleep").arg("60").spawn().unwrap();
    let attached = Command::new("timeout")
        .args(["1", "strace", "-qq", "-o", "/dev/null", "-p", &other.id().to_string()])
        .status();
    other.kill().unwrap();
    other.wait().unwrap();
    attached.is_ok_and(|status| status.code() == Some(124))
}

#[test]
fn a_bench_of_the_edge_sends_what_changed_alone_and_feels_distance() {
    let printed = bench_edge(&[
        "--only=resume,distance",
        "--rounds=3",
        "--resumed=20",
        "--changed=0,5",
        "--delays=0,50",
        "--far=3",
    ]);
    for suffix in ["same_epoch", "new_epoch"] {
        let bodies = values(&printed, &format!("resume_bodies.{suffix}"));
        assert_eq!(bodies, [0.0, 5.0], "only what changed is sent: {suffix}");
        let bytes = values(&printed, &format!("resume_bytes.{suffix}"));
        assert!(bytes[0] > 0.0 && bytes[0] < bytes[1], "{bytes:?}");
    }
    let waits = values(&printed, "far_edit_to_ack_p50_seconds");
    // The API server's answer may come a little after its event.
    assert!(waits[1] > 0.04, "the delay is felt: {waits:?}");
    are_there(
        &printed,
        &[
            "far_acked_edits_per_second",
            "far_first_object_seconds",
            "far_filled_objects_per_second",
        ],
    );
    let edits = values(&printed, "far_acked_edits_per_second");
    let shares = values(&printed, "far_share.acked_edits");
    assert!(
        (shares[0] - edits[1] / edits[0]).abs() < 1e-9,
        "{shares:?} of {edits:?}"
    );
    assert_eq!(shares.len(), 1, "the nearest is not compared with itself");
}

#[test]
fn a_bench_of_the_edge_sees_all_nodes_come_back() {
    let printed = bench_edge(&["--only=storm", "--storm=1"]);
    are_there(
        &printed,
        &[
            "storm_all_back_seconds.restarted.plain",
            "storm_all_back_seconds.killed.plain",
            "storm_all_back_seconds.restarted.tls",
            "storm_all_back_seconds.killed.tls",
            "storm_dials_per_node.killed.tls",
        ],
    );
}

#[test]
fn a_kubeconfig_that_is_not_there_is_named() {
    let planes = [("--kubeconfig", Path::new("nowhere/kubeconfig"))];
    assert_refused(&planes, 1, &["nowhere/kubeconfig", "--kubeconfig"]);
}

/// The bench does nothing with these control planes, ends with this code, and says all of this.
fn assert_refused(planes: &[(&str, &Path)], code: i32, said: &[&str]) {
    let told = Command::new(SKERRY)
        .args(["bench", "control-plane", "--services=1", "--jobs=0"])
        .args(
            planes
                .iter()
                .flat_map(|(option, file)| [OsStr::new(option), file.as_os_str()]),
        )
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&told.stderr);
    assert_eq!(told.status.code(), Some(code), "{errors}");
    assert!(said.iter().all(|said| errors.contains(said)), "{errors}");
}
