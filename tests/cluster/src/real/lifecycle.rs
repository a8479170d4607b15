//! Upgrade, rollback, uninstall and what comes after, with workers that run on through all of it.

use std::{fs, os::unix::fs::symlink, time::Duration};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::{
    SEDNA, Tour,
    examples::{self, SERVICE},
    kubernetes::{array, copy, text},
    pages::INSTALLING,
};
use crate::{
    network::CLOUD,
    process::{Process, until},
    site::command,
};

/// How long the last pod may take to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// The definition that the newer chart changes, and the column that it adds.
const DEFINITION: &str = "jointinferenceservices.sedna.io";
const COLUMN: &str = "{jsonPath: .metadata.generation, name: Newer, type: integer}";

/// The release that is here, and the newer one, of the same programs.
const OURS: &str = env!("CARGO_PKG_VERSION");
const NEWER: &str = "99.0.0";
/// What a release consists of.
const PROGRAMS: [(&str, &str); 2] = [("deployment", "globalmanager"), ("daemonset", "localcontroller")];

/// The job that trains through all of it, and in how many rounds of how many seconds: it does not come to its end.
pub const JOB: &str = "learn-throughout";
const ROUNDS: &str = "value: \"1000\"";
const PERIOD: &str = "value: \"3\"";
/// How many of the newest rounds only one trainer may have told yet.
const ON_THE_WAY: usize = 3;

/// A node that joins in the namespace below.
const NODE_HERE: &str = "joins-here";

/// A namespace, and somebody who may do in it what its administrator may, with what the page says beside.
const HERE: &str = "edge";
const TENANCY: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: edge}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: edge}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: tenants-kinds, namespace: edge}
rules:
  - {apiGroups: [sedna.io, skerry.io], resources: ['*'], verbs: ['*']}
  - {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenants-kinds, namespace: edge}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenants-kinds}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant}]
";

/// Other values by the page's command, then a newer chart with newer images.
pub fn upgrade(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    tour.wait_for_round(JOB, 2)?;
    tour.workers = tour.running_workers()?;
    // The local controller then finds the manager at a node's address.
    tour.follow(INSTALLING, "globalManager.service.nodePort=30900")?;
    make_newer_chart(tour)?;
    ensure!(!has_column(tour)?, "the column is there already");
    tour.follow(INSTALLING, "--reset-then-reuse-values --wait")?;
    ensure!(has_column(tour)?, "the definitions were not upgraded");
    all_are_of(tour, NEWER)?;
    let service = tour.get(&["service", "skerry-globalmanager", "--namespace", SEDNA])?;
    ensure!(
        text(&service, "/spec/type") == "NodePort",
        "the values are kept: {service}"
    );
    tour.nothing_was_restarted()?;
    still_reports(tour)
}

pub fn roll_back(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    tour.follow(INSTALLING, "helm rollback")?;
    ensure!(!has_column(tour)?, "the definitions were not rolled back");
    all_are_of(tour, OURS)?;
    tour.nothing_was_restarted()?;
    still_reports(tour)
}

pub fn uninstall(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    tour.declared = tour.look_at_declared()?;
    let definitions = tour.kubectl(&["get", "crds", "--output", "name"])?;
    tour.follow(INSTALLING, "helm uninstall")?;
    ensure!(
        tour.kubectl(&["get", "crds", "--output", "name"])? == definitions,
        "definitions are gone"
    );
    let mut left = String::new();
    // Of a rollback, a pod may still be about to end.
    until(PATIENCE, || {
        left = tour.kubectl(&["get", "all", "--namespace", SEDNA, "--output", "name"])?;
        Ok(left.is_empty().then_some(()))
    })
    .with_context(|| format!("the chart leaves {left}"))?;
    tour.round = newest(&tour.rounds_of(JOB)?);
    tour.nothing_is_lost()?;
    tour.nothing_was_restarted()
}

/// With Roles only, and by somebody who has no right on the cluster.
pub fn one_namespace(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    let elsewhere = tour.get(&["jointinferenceservices"])?;
    tour.apply(TENANCY)?;
    let plane = &tour.hosts.plane;
    let tenant = plane.pki().kubeconfig(&plane.server(), "tenant", &[])?;
    let admin = std::mem::replace(&mut tour.kubeconfig, tenant);
    let token = install_and_invite(tour);
    tour.kubeconfig = admin;
    let token = token.context("as a tenant of the namespace")?;
    let of_the_release = ["--selector", "app.kubernetes.io/instance=skerry", "--output", "name"];
    let bound = tour.kubectl(&[&["get", "clusterroles,clusterrolebindings"], &of_the_release[..]].concat())?;
    ensure!(bound.is_empty(), "the release has {bound}");
    // Something to find, for a manager that looks where it should not.
    let edit = json!({"spec": {"cloudWorker": {"template": {"metadata": {"labels": {"edited": "yes"}}}}}});
    tour.patch(&["jointinferenceservice", SERVICE], &edit)?;
    let manifest = examples::job_in_the_cloud(tour, &[], 2)?;
    let file = tour.work.join("here.yaml");
    fs::write(&file, manifest)?;
    let file = file.to_str().context("a path is text")?;
    tour.kubectl(&["apply", "--namespace", HERE, "--filename", file])?;
    let node = join_here(tour, &token)?;
    tour.kubectl(&[
        "wait",
        "federatedlearningjob/learn-digits",
        "--namespace",
        HERE,
        "--for=jsonpath={.status.phase}=Succeeded",
        "--timeout=3m",
    ])?;
    drop(node);
    let now = tour.get(&["jointinferenceservices"])?;
    let status = |list: &Value| {
        let items = array(list, "/items").iter();
        items.map(|item| item["status"].clone()).collect::<Vec<_>>()
    };
    ensure!(
        status(&now) == status(&elsewhere),
        "services of another namespace were touched"
    );
    tour.nothing_was_restarted()?;
    let undo = json!({"spec": {"cloudWorker": {"template": {"metadata": null}}}});
    tour.patch(&["jointinferenceservice", SERVICE], &undo)?;
    tour.declared
        .edited("JointInferenceService default/read-in-the-cloud", 2);
    tour.nothing_is_lost()?;
    tour.shell(&format!("helm uninstall skerry --namespace {HERE} --wait"))?;
    tour.kubectl(&["delete", "namespace", HERE, "--wait=false"]).map(drop)
}

/// By the page's command, over mutual TLS as nobody else shares the namespace; a join token for one more node.
fn install_and_invite(tour: &mut Tour<'_>) -> anyhow::Result<String> {
    tour.follow_by(INSTALLING, "--set namespace=edge", |tour, line| {
        tour.shell(&format!("{line} --set globalManager.edgeTls.enabled=true"))
    })?;
    tour.rolled_out(HERE, "deployment", "skerry-globalmanager")?;
    tour.shell(&format!("skerry nodes join-token {NODE_HERE} --namespace {HERE}"))
}

/// A node that joins there, and has a session: on the cloud's host, where Services are to be found. That at the edge keeps what
/// it has told for the manager of all namespaces.
fn join_here(tour: &Tour<'_>, token: &str) -> anyhow::Result<Process> {
    let folder = tour.work.join(NODE_HERE);
    fs::create_dir_all(&folder)?;
    let file = folder.join("join.token");
    fs::write(&file, token)?;
    let service = tour.get(&["service", "skerry-globalmanager", "--namespace", HERE])?;
    let mut node = command(CLOUD.name, &tour.work.join("bin/skerry"));
    node.args(["localcontroller", "--node-name", NODE_HERE, "--gm-address"])
        .arg(format!("wss://{}:9000", text(&service, "/spec/clusterIP")))
        .args(["--bind-address", "127.0.0.1", "--bind-port", "0", "--join-token-file"])
        .arg(file)
        .arg("--rootfs-mount-dir")
        .arg(&folder);
    let mut node = Process::start(NODE_HERE, &folder, node)?;
    tour.wait_for_sessions_in(HERE, PATIENCE, 1)
        .with_context(|| format!("the node says:\n{}", node.last_words()))?;
    node.check()?;
    // The manager has noted it, by a Role of its own.
    tour.get(&["edgenode", NODE_HERE, "--namespace", HERE])?;
    Ok(node)
}

pub fn reinstall(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    tour.follow(INSTALLING, "--create-namespace --wait")?;
    tour.rolled_out(SEDNA, "daemonset", "skerry-localcontroller")?;
    for service in ["read-digits", SERVICE] {
        tour.wait_until_ready(&["jointinferenceservice", service])?;
    }
    still_reports(tour)?;
    tour.nothing_is_lost()?;
    tour.nothing_was_restarted()
}

/// A federated job on both nodes begins.
pub fn begin_to_train(tour: &Tour<'_>) -> anyhow::Result<()> {
    let mut job = tour.example("federated-learning/digits.yaml")?;
    for (there, here) in [
        ("name: learn-digits", format!("name: {JOB}").as_str()),
        // Another job may be at its end.
        ("digits-federated", "digits-throughout"),
        ("value: \"10\"", ROUNDS),
        ("value: \"1\"", PERIOD),
        // The nodes' two cores have to do for all.
        ("limits: {cpu: 500m, memory: 128Mi}", "limits: {memory: 128Mi}"),
    ] {
        ensure!(job.contains(there), "the example has no {there}");
        job = job.replace(there, here);
    }
    tour.apply(&job)
}

/// While there was no manager and no local controller, too.
pub fn trained_throughout(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    let mut rounds = vec![];
    until(PATIENCE, || {
        rounds = tour.rounds_of(JOB)?;
        let told = rounds.split_at(rounds.len().saturating_sub(ON_THE_WAY)).0;
        let whole = told.iter().all(|round| array(round, "/workers").len() == 2);
        Ok((whole && newest(told) > tour.round).then_some(()))
    })
    .with_context(|| format!("what both trainers told after round {}: {rounds:#?}", tour.round))?;
    let numbers: Vec<_> = rounds.iter().map(number).collect();
    ensure!(
        numbers
            .windows(2)
            .all(|pair| matches!(pair, [one, next] if one + 1 == *next)),
        "rounds are missing: {numbers:?}"
    );
    println!(
        "real: {} rounds, {} of them before the uninstallation",
        newest(&rounds),
        tour.round
    );
    for (worker, wanted) in [("aggregation", 1), ("train", 2)] {
        let found = tour.pods_of("federatedlearningjob", JOB, worker)?.len();
        ensure!(found == wanted, "{found} pods of the worker {worker}");
    }
    tour.nothing_was_restarted()?;
    tour.kubectl(&["delete", "federatedlearningjob", JOB, "--timeout=2m"])
        .map(drop)
}

fn number(round: &Value) -> u64 {
    round.pointer("/round").and_then(Value::as_u64).unwrap_or_default()
}

fn newest(rounds: &[Value]) -> u64 {
    rounds.last().map(number).unwrap_or_default()
}

/// From now on `charts` is where the newer chart is, so that the page's own command upgrades to it.
fn make_newer_chart(tour: &Tour<'_>) -> anyhow::Result<()> {
    let newer = tour.work.join("newer");
    fs::create_dir_all(&newer)?;
    copy(&tour.work.join("charts/skerry"), &newer)?;
    let definition = newer.join("skerry/files/crds/sedna.io_jointinferenceservices.yaml");
    let text = fs::read_to_string(&definition)?;
    let (before, after) = text
        .split_once("additionalPrinterColumns:\n")
        .context("the definition has columns")?;
    fs::write(
        definition,
        format!("{before}additionalPrinterColumns:\n    - {COLUMN}\n{after}"),
    )?;
    let chart = newer.join("skerry/Chart.yaml");
    let text = fs::read_to_string(&chart)?;
    let versions = text.matches(&format!("ersion: {OURS}\n")).count();
    ensure!(versions == 2, "the chart is not of {OURS}: {text}");
    fs::write(
        &chart,
        text.replace(&format!("ersion: {OURS}\n"), &format!("ersion: {NEWER}\n")),
    )?;
    for node in [&tour.hosts.cloud, &tour.hosts.edge] {
        for (_, program) in PROGRAMS {
            let image = |version| format!("docker.io/skerry/{program}:{version}");
            node.ctr(&["images", "tag", &image(OURS), &image(NEWER)])?;
        }
    }
    let charts = tour.work.join("charts");
    fs::remove_file(&charts)?;
    symlink(newer, charts)?;
    Ok(())
}

/// Fails if a program of the chart is not of this release on all its pods.
fn all_are_of(tour: &Tour<'_>, release: &str) -> anyhow::Result<()> {
    for (kind, program) in PROGRAMS {
        tour.rolled_out(SEDNA, kind, &format!("skerry-{program}"))?;
        let selector = format!("app.kubernetes.io/name=skerry-{program}");
        let mut pods = tour.list(&["pods", "--namespace", SEDNA, "--selector", &selector])?;
        pods.retain(|pod| pod.pointer("/metadata/deletionTimestamp").is_none());
        let images = pods.iter().map(|pod| text(pod, "/spec/containers/0/image"));
        let images: Vec<_> = images.collect();
        let wanted = format!("skerry/{program}:{release}");
        ensure!(
            !images.is_empty() && images.iter().all(|image| image.ends_with(&wanted)),
            "the pods of {program} run {images:?}, not {release}"
        );
    }
    Ok(())
}

fn has_column(tour: &Tour<'_>) -> anyhow::Result<bool> {
    let columns = "jsonpath={.spec.versions[0].additionalPrinterColumns[*].name}";
    let columns = tour.kubectl(&["get", "crd", DEFINITION, "--output", columns])?;
    Ok(columns.split(' ').any(|column| column == "Newer"))
}

/// What the edge's worker counts arrives, now as before.
pub fn still_reports(tour: &Tour<'_>) -> anyhow::Result<()> {
    let mut first = None;
    tour.wait_for_metrics(&examples::ON_BOTH, |figure| {
        let now = figure("inferenceNumber");
        let first = first.get_or_insert(now);
        now > *first
    })
    .map(drop)
}
