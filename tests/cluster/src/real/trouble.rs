//! What befalls nodes, pods and containers.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use serde_json::json;

use super::{
    Tour, WITHOUT_THE_EDGE, examples,
    examples::SERVICE,
    kubernetes::{container_of, text, told_of},
};
use crate::{
    network::EDGE,
    process::{until, until_it_works},
};

/// How long the edge is cut off.
const CUT: Duration = Duration::from_secs(120);

/// How long the kubelet and its pods may take for what it does by itself.
const PATIENCE: Duration = Duration::from_secs(60);

/// The job that runs wholly in the cloud.
const JOB: &str = "learn-in-the-cloud";

const NO_IMAGE: &str = "skerry.example/no-such-worker:1";
const IMAGE: &str = "skerry/worker:latest";

/// What was running goes on, what was edited arrives after, nothing is doubled.
pub fn cut_off(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    examples::infer_alone(tour)?;
    let mut inferred = 0.0;
    tour.wait_for_metrics(&examples::ALONE, |figure| {
        inferred = figure("inferenceNumber");
        inferred > 0.0
    })?;
    let begun = Instant::now();
    let before = tour.pod_of("read-digits", "edge")?;
    let alone = tour.pod_of("read-alone", "edge")?;
    let running = tour.hosts.edge.tasks()?;
    EDGE.cut()?;
    let cut = Instant::now();
    let edit = json!({"spec": {"edgeWorker": {"hardExampleMining": {"name": "CloudOnly", "parameters": null}}}});
    tour.patch(&examples::ON_BOTH, &edit)?;
    let killed = container_of(&before).to_owned();
    tour.hosts.edge.kill(&killed)?;
    let after_the_kill = until(PATIENCE, || {
        let now = tour.hosts.edge.tasks()?;
        Ok((now.len() == running.len() && !now.contains_key(&killed)).then_some(now))
    })
    .context("the kubelet starts a killed worker again, with nobody to ask")?;
    let mut others = running;
    others.remove(&killed);
    ensure!(others.contains_key(container_of(&alone)), "ran: {others:?}");
    ensure!(
        others.iter().all(|(id, pid)| after_the_kill.get(id) == Some(pid)),
        "ran: {others:?}; runs: {after_the_kill:?}"
    );
    for scenario in WITHOUT_THE_EDGE {
        tour.scenario(scenario)?;
    }
    thread::sleep(CUT.saturating_sub(cut.elapsed()));
    ensure!(
        tour.hosts.edge.tasks()? == after_the_kill,
        "what ran on the edge at the beginning of the cut runs at its end"
    );
    EDGE.restore()?;
    let restored = Instant::now();
    // Had it only gone on once the link was back, it would have to work for as long as the cut took to have done so much.
    tour.wait_for_metrics(&examples::ALONE, |figure| {
        figure("inferenceNumber") - inferred > examples::DIGITS / 2.0 * begun.elapsed().as_secs_f64()
    })
    .context("whoever needs nobody works while the link is cut")?;
    ensure!(restored.elapsed() < CUT, "it was not looked for in time");
    tour.kubectl(&["wait", "node", EDGE.name, "--for=condition=Ready", "--timeout=3m"])?;
    let node = restored.elapsed().as_secs();
    tour.wait_until_ready(&examples::ON_BOTH)?;
    let service = restored.elapsed().as_secs();
    println!(
        "real: {node} s after the cut the node is ready again, and after {service} s its service as it was edited"
    );
    let after = until_it_works(PATIENCE, || tour.pod_of("read-digits", "edge"))?;
    ensure!(
        text(&after, "/metadata/uid") != text(&before, "/metadata/uid"),
        "{after}"
    );
    ensure!(after.to_string().contains("CloudOnly"), "{after}");
    one_container_each(tour)?;
    // With this filter each sample goes to the cloud, as its worker reports.
    tour.wait_for_metrics(&examples::ON_BOTH, |figure| figure("uploadCloudRatio") > 0.99)
        .map(drop)
}

/// On the edge there runs one container for each that its pods have.
pub fn one_container_each(tour: &Tour<'_>) -> anyhow::Result<()> {
    let on_the_edge = format!("--field-selector=spec.nodeName={},status.phase=Running", EDGE.name);
    until(PATIENCE, || {
        let pods = tour.list(&["pods", "--all-namespaces", &on_the_edge])?;
        let wanted: BTreeSet<_> = pods.iter().map(|pod| container_of(pod).to_owned()).collect();
        let found: BTreeSet<_> = tour.hosts.edge.tasks()?.into_keys().collect();
        Ok((wanted == found).then_some(()))
    })
    .context("the containers on the edge are those of its pods")
}

/// The edge's host without power, then with it again, while a job trains there.
pub fn power_failure(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    let again = tour
        .example("federated-learning/digits.yaml")?
        .replace("name: learn-digits", "name: learn-again");
    tour.apply(&again)?;
    tour.wait_for_round("learn-again", 1)?;
    let before = tour.pod_of("read-digits", "edge")?;
    tour.hosts.edge.power_off()?;
    tour.kubectl(&[
        "wait",
        "node",
        EDGE.name,
        "--for=condition=Ready=Unknown",
        "--timeout=3m",
    ])?;
    tour.wait_for(&examples::ON_BOTH, "Ready", |status, _, _| status == "False")?;
    tour.hosts.edge.power_on()?;
    tour.kubectl(&["wait", "node", EDGE.name, "--for=condition=Ready", "--timeout=3m"])?;
    tour.wait_until_ready(&examples::ON_BOTH)?;
    let after = tour.pod_of("read-digits", "edge")?;
    ensure!(
        text(&after, "/metadata/uid") == text(&before, "/metadata/uid"),
        "the pod waited for its node: {after}"
    );
    ensure!(told_of(&after) != told_of(&before), "its container was started again");
    tour.wait_for_success("learn-again")?;
    one_container_each(tour)?;
    for (worker, wanted) in [("aggregation", 1), ("train", 2)] {
        let found = tour.pods_of("federatedlearningjob", "learn-again", worker)?.len();
        ensure!(found == wanted, "{found} pods of the worker {worker}");
    }
    tour.wait_for_metrics(&examples::ON_BOTH, |figure| figure("uploadCloudRatio") > 0.99)
        .map(drop)
}

pub fn wrong_image(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    let service = examples::service_in_the_cloud(tour)?;
    tour.apply(&service.replacen(IMAGE, NO_IMAGE, 1))?;
    let names = [("learn-digits", JOB), ("digits-1", "here-1"), ("digits-2", "here-2")];
    let job = examples::job_in_the_cloud(tour, &names, 25)?;
    // The last one: a trainer's.
    let (others, last) = job.rsplit_once(IMAGE).context("the job names its image")?;
    tour.apply(&format!("{others}{NO_IMAGE}{last}"))?;
    let service = ["jointinferenceservice", SERVICE];
    let job = ["federatedlearningjob", JOB];
    for what in [service, job] {
        let told = tour.wait_for(&what, "Degraded", |status, reason, _| {
            status == "True" && reason == "ImagePullFailed"
        })?;
        ensure!(told.contains(NO_IMAGE), "{told}");
    }
    let pod = tour.pod_of(SERVICE, "edge")?;
    let pod = text(&pod, "/metadata/name");
    tour.wait_for_words(&["logs", pod], "is waiting to start: trying and failing to pull image")?;
    let told = format!("Back-off pulling image \"{NO_IMAGE}\"");
    tour.wait_for_words(&["describe", "pod", pod], &told)?;
    let image =
        |at: &str| json!([{"op": "replace", "path": format!("{at}/template/spec/containers/0/image"), "value": IMAGE}]);
    for (what, at) in [(service, "/spec/edgeWorker"), (job, "/spec/trainingWorkers/1")] {
        let patch = image(at).to_string();
        tour.kubectl(&[&["patch"], &what[..], &["--type=json", "--patch", &patch]].concat())?;
    }
    tour.wait_until_ready(&service)?;
    tour.wait_for(&job, "Ready", |status, _, _| status == "True").map(drop)
}

pub fn container_killed(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    let before = tour.pod_of(SERVICE, "edge")?;
    let pod = text(&before, "/metadata/name");
    let mut log = tour.start_kubectl("log-of-a-worker", &["logs", pod, "--follow", "--tail=0"])?;
    // It says every two seconds that it finds nobody to report to.
    let line = until(PATIENCE, || {
        log.check()?;
        Ok(log.last_words().lines().next().map(str::to_owned))
    })
    .context("the log of a worker goes on")?;
    tour.hosts.cloud.kill(container_of(&before))?;
    until(PATIENCE, || log.ended()).context("the log ends with its container")?;
    let after = until(PATIENCE, || {
        let pod = tour.pod_of(SERVICE, "edge")?;
        Ok((container_of(&pod) != container_of(&before)).then_some(pod))
    })?;
    ensure!(
        text(&after, "/metadata/uid") == text(&before, "/metadata/uid"),
        "{after}"
    );
    ensure!(
        after.pointer("/status/containerStatuses/0/restartCount") == Some(&json!(1)),
        "{after}"
    );
    let previous = tour.kubectl(&["logs", pod, "--previous"])?;
    ensure!(previous.contains(&line), "{line:?} is not in\n{previous}");
    tour.wait_until_ready(&["jointinferenceservice", SERVICE])?;
    // The second time, so soon after the first, it has to wait.
    tour.hosts.cloud.kill(container_of(&after))?;
    let told = format!("Back-off restarting failed container edge in pod {pod}_default(");
    tour.wait_for_words(&["describe", "pod", pod], &told)
}

pub fn evicted(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    let mut pods = vec![tour.pod_of(SERVICE, "edge")?];
    pods.extend(tour.pods_of("federatedlearningjob", JOB, "train")?);
    let phases: Vec<_> = pods.iter().map(|pod| text(pod, "/status/phase")).collect();
    ensure!(phases == ["Running"; 3], "{phases:?}");
    for (kind, name, worker) in [
        ("jointinferenceservice", SERVICE, "edge"),
        ("federatedlearningjob", JOB, "train"),
    ] {
        let these = format!("--pod-selector={kind}.sedna.io/name={name},{kind}.sedna.io/worker-type={worker}");
        let rest = [
            "--force",
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            "--timeout=3m",
        ];
        tour.kubectl(&[&["drain", "cloud-1", &these], &rest[..]].concat())?;
    }
    tour.kubectl(&["uncordon", "cloud-1"])?;
    tour.wait_until_ready(&["jointinferenceservice", SERVICE])?;
    tour.wait_for_success(JOB)?;
    let mut now = vec![tour.pod_of(SERVICE, "edge")?];
    now.extend(tour.pods_of("federatedlearningjob", JOB, "train")?);
    ensure!(now.len() == pods.len(), "{} pods", now.len());
    let old: BTreeSet<_> = pods.iter().map(|pod| text(pod, "/metadata/uid")).collect();
    ensure!(
        now.iter().all(|pod| !old.contains(text(pod, "/metadata/uid"))),
        "each was made again"
    );
    Ok(())
}
