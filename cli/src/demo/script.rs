//! What the demo does, and what has to be seen after each step.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Node, Pod},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;
use skerry_crds::sedna::v1alpha1::{FederatedLearningJob, JointInferenceService, Metric, Round};

use super::{
    figures::{figure, number, percent},
    observe::{PATIENCE, edge_pod, is_ready, restarts, until},
    timeline::Timeline,
};
use crate::{
    failure::Failure,
    stack::{Options, Stack, refused},
};

const FEDERATED_LEARNING: &str = include_str!("../../../examples/federated-learning/digits.yaml");
const JOINT_INFERENCE: &str = include_str!("../../../examples/joint-inference/digits.yaml");
const NAMESPACE: &str = "default";
const JOB: &str = "learn-digits";
const SERVICE: &str = "read-digits";
const EDGE_NODE: &str = "edge-1";
/// The user who edits; fields that a user sets are the user's.
const USER: &str = "demo";

/// How often another process is asked: no event of it can be had.
const LOOK: Duration = Duration::from_millis(100);

type Step = Result<(), Failure>;

/// Starts what the rest is played on.
pub(super) async fn start(timeline: &mut Timeline) -> Result<Stack, Failure> {
    let since = Instant::now();
    timeline.progress("an API server, three nodes, the manager, two local controllers")?;
    let stack = Stack::start(Options::new("demo")).await?;
    let nodes = Api::<Node>::all(stack.client())
        .list(&ListParams::default())
        .await
        .map_err(refused)?;
    let nodes: Vec<_> = nodes.iter().map(Node::name_any).collect();
    timeline.record(
        "started a small Kubernetes with Skerry on it",
        &format!("{} are ready and connected", nodes.join(", ")),
        since,
    )?;
    Ok(stack)
}

/// Plays all of it.
pub(crate) async fn play(stack: &mut Stack, timeline: &mut Timeline) -> Step {
    let seen = Seen::new(stack);
    train(stack, &seen, timeline).await?;
    serve(stack, &seen, timeline).await?;
    edit_threshold(&seen, timeline).await?;
    kill_worker(stack, &seen, timeline).await?;
    cut_link(stack, &seen, timeline).await?;
    restart_manager(stack, &seen, timeline).await?;
    delete(&seen, timeline).await
}

/// The views that the steps share.
struct Seen {
    jobs: Api<FederatedLearningJob>,
    services: Api<JointInferenceService>,
    deployments: Api<Deployment>,
    pods: Api<Pod>,
}

impl Seen {
    fn new(stack: &Stack) -> Self {
        let client = stack.client();
        Self {
            jobs: Api::namespaced(client.clone(), NAMESPACE),
            services: Api::namespaced(client.clone(), NAMESPACE),
            deployments: Api::namespaced(client.clone(), NAMESPACE),
            pods: Api::namespaced(client, NAMESPACE),
        }
    }

    async fn edit(&self, patch: serde_json::Value) -> Result<JointInferenceService, Failure> {
        let how = PatchParams {
            field_manager: Some(USER.to_owned()),
            ..PatchParams::default()
        };
        self.services
            .patch(SERVICE, &how, &Patch::Merge(patch))
            .await
            .map_err(refused)
    }

    /// Waits until the service is ready in this generation.
    async fn ready(&self, generation: Option<i64>) -> Step {
        until(
            &self.services,
            SERVICE,
            "condition Ready of the edited generation",
            |service| {
                let conditions = &service?.status.as_ref()?.conditions;
                conditions
                    .iter()
                    .any(|c| c.type_ == "Ready" && c.status == "True" && c.observed_generation >= generation)
                    .then_some(())
            },
        )
        .await
    }

    async fn deployment_generations(&self) -> Result<BTreeMap<String, i64>, Failure> {
        let found = self.deployments.list(&ListParams::default()).await.map_err(refused)?;
        Ok(found
            .iter()
            .map(|deployment| (deployment.name_any(), deployment.metadata.generation.unwrap_or(0)))
            .collect())
    }
}

async fn train(stack: &Stack, seen: &Seen, timeline: &mut Timeline) -> Step {
    let since = Instant::now();
    stack.apply(FEDERATED_LEARNING).await?;
    let (mut running, mut shown) = (0, 0);
    let rounds = until(&seen.jobs, JOB, "phase Succeeded", |job| {
        let status = job?.status.as_ref()?;
        // Where the terminal is gone there is nobody to show progress to.
        let mut show = |text: &str| drop(timeline.progress(text));
        for worker in status.workers.iter().skip(running) {
            if let (Some(pod), Some(node)) = (&worker.pod_name, &worker.node) {
                show(&format!("{pod} on {node}"));
                running += 1;
            }
        }
        for round in status.rounds.iter().skip(shown) {
            let accuracy = percent(&figure(&round.metrics, "accuracy"));
            show(&format!("round {:>2}  {accuracy} right", round.round));
        }
        shown = status.rounds.len();
        match status.phase.as_deref() {
            Some("Succeeded") => Some(Ok(status.rounds.clone())),
            Some("Failed") => Some(Err(Failure::new(
                "the federated job failed",
                "the logs of its workers say why",
            ))),
            _ => None,
        }
    })
    .await??;
    let accuracy = |round: Option<&Round>| {
        percent(
            &round
                .map(|round| figure(&round.metrics, "accuracy"))
                .unwrap_or_default(),
        )
    };
    timeline.record(
        "applied a federated job over two nodes",
        &format!(
            "{} rounds, from {} to {} right on samples that no node has",
            rounds.len(),
            accuracy(rounds.first()),
            accuracy(rounds.last())
        ),
        since,
    )
}

async fn serve(stack: &Stack, seen: &Seen, timeline: &mut Timeline) -> Step {
    let since = Instant::now();
    stack.apply(JOINT_INFERENCE).await?;
    seen.ready(Some(1)).await?;
    let helped = |metrics: &[Metric]| number(metrics, "jointAccuracy") > number(metrics, "edgeAccuracy");
    let metrics = reported(seen, timeline, "an answer that the cloud put right", helped).await?;
    timeline.record(
        "applied a joint inference service: a small model at the edge, a large one in the cloud",
        &format!(
            "of the first {} samples, {} went to the cloud; {} are right, {} without the cloud",
            figure(&metrics, "inferenceNumber"),
            percent(&figure(&metrics, "uploadCloudRatio")),
            percent(&figure(&metrics, "jointAccuracy")),
            percent(&figure(&metrics, "edgeAccuracy")),
        ),
        since,
    )
}

/// Waits for figures of the edge worker that are `wanted`.
async fn reported(
    seen: &Seen,
    timeline: &mut Timeline,
    expected: &str,
    wanted: impl Fn(&[Metric]) -> bool,
) -> Result<Vec<Metric>, Failure> {
    until(&seen.services, SERVICE, expected, |service| {
        let metrics = &service?.status.as_ref()?.metrics;
        let ratio = figure(metrics, "uploadCloudRatio");
        if !ratio.is_empty() {
            let (read, ratio) = (figure(metrics, "inferenceNumber"), percent(&ratio));
            // As above: nobody may be watching.
            let _ = timeline.progress(&format!("{read:>3} samples, {ratio} of them to the cloud"));
        }
        wanted(metrics).then(|| metrics.clone())
    })
    .await
}

/// Waits until this share of the samples goes to the cloud, and tells it.
async fn offloaded(seen: &Seen, timeline: &mut Timeline, share: f64) -> Result<String, Failure> {
    let wanted =
        |metrics: &[Metric]| number(metrics, "uploadCloudRatio").is_some_and(|ratio| (ratio - share).abs() < 0.01);
    let metrics = reported(seen, timeline, "the offload ratio of the edit", wanted).await?;
    Ok(percent(&figure(&metrics, "uploadCloudRatio")))
}

async fn edit_threshold(seen: &Seen, timeline: &mut Timeline) -> Step {
    let since = Instant::now();
    let before = seen.deployment_generations().await?;
    let edited = seen.edit(with_threshold("1.0")).await?;
    let after = rolled(seen, &before, edited.metadata.generation).await?;
    let ratio = offloaded(seen, timeline, 1.0).await?;
    timeline.record(
        "edited the threshold to 1",
        &format!("{after} rolled, the other worker did not; {ratio} go to the cloud"),
        since,
    )
}

/// Waits for the edited service to be ready and rolled out, and names the one Deployment that changed.
async fn rolled(seen: &Seen, before: &BTreeMap<String, i64>, generation: Option<i64>) -> Result<String, Failure> {
    seen.ready(generation).await?;
    let edge = format!("{SERVICE}-deployment-edge");
    until(
        &seen.deployments,
        &edge,
        "the new worker alone and available",
        |deployment| {
            let deployment = deployment?;
            let status = deployment.status.as_ref()?;
            let one = Some(1);
            (status.observed_generation == deployment.metadata.generation
                && (status.replicas, status.updated_replicas, status.available_replicas) == (one, one, one))
                .then_some(())
        },
    )
    .await?;
    let after = seen.deployment_generations().await?;
    let changed: Vec<_> = after
        .iter()
        .filter(|(name, generation)| before.get(*name) != Some(*generation))
        .collect();
    match changed.as_slice() {
        [(name, _)] if name.ends_with("-edge") => Ok((*name).clone()),
        other => Err(Failure::new(
            format!("an edit of the edge worker changed {other:?}"),
            "it should have changed the edge Deployment alone",
        )),
    }
}

async fn kill_worker(stack: &Stack, seen: &Seen, timeline: &mut Timeline) -> Step {
    let since = Instant::now();
    let pod = edge_pod(&seen.pods).await?;
    let before = restarts(&pod);
    if !stack.node(EDGE_NODE)?.kill(NAMESPACE, &pod.name_any(), None) {
        return Err(Failure::new(
            "the edge worker does not run on its node",
            "the service should be ready by now",
        ));
    }
    until(
        &seen.pods,
        &pod.name_any(),
        "the killed container running again",
        |pod| (restarts(pod?) > before && is_ready(pod?)).then_some(()),
    )
    .await?;
    timeline.record("killed the edge worker's process", "it runs again", since)
}

async fn cut_link(stack: &mut Stack, seen: &Seen, timeline: &mut Timeline) -> Step {
    let since = Instant::now();
    stack.node(EDGE_NODE)?.cut();
    let before = seen.deployment_generations().await?;
    let edited = seen.edit(with_threshold("0.9")).await?;
    until(&seen.services, SERVICE, "the edit in the children", |service| {
        (service?.status.as_ref()?.observed_generation >= edited.metadata.generation).then_some(())
    })
    .await?;
    reports_go_on(stack).await?;
    timeline.record(
        "cut edge-1's link and edited the service",
        "the old worker goes on and reports to its node, without the cloud",
        since,
    )?;
    let since = Instant::now();
    stack.node(EDGE_NODE)?.restore();
    rolled(seen, &before, edited.metadata.generation).await?;
    timeline.record("restored the link", "the edit arrived and rolled out", since)
}

/// Waits until the cut node's local controller has taken two more reports of its worker.
async fn reports_go_on(stack: &Stack) -> Step {
    let before = stack.worker_reports(EDGE_NODE).await?;
    let more = async {
        let mut often = tokio::time::interval(LOOK);
        while stack.worker_reports(EDGE_NODE).await? < before + 2.0 {
            often.tick().await;
        }
        Ok(())
    };
    let silent = |_| {
        Failure::new(
            "the worker fell silent when the link was cut",
            "it should go on without the cloud",
        )
    };
    tokio::time::timeout(PATIENCE, more).await.map_err(silent)?
}

async fn restart_manager(stack: &mut Stack, seen: &Seen, timeline: &mut Timeline) -> Step {
    let since = Instant::now();
    let before = seen.deployment_generations().await?;
    stack.kill_manager().await;
    let edited = seen.edit(with_threshold("0.0")).await?;
    stack.start_manager()?;
    rolled(seen, &before, edited.metadata.generation).await?;
    let ratio = offloaded(seen, timeline, 0.0).await?;
    timeline.record(
        "killed the manager, edited the threshold to 0, started the manager again",
        &format!("once the dead one's lease had run out, the edit rolled out: {ratio} go to the cloud"),
        since,
    )
}

async fn delete(seen: &Seen, timeline: &mut Timeline) -> Step {
    let since = Instant::now();
    seen.services
        .delete(SERVICE, &DeleteParams::foreground())
        .await
        .map_err(refused)?;
    until(&seen.services, SERVICE, "the service gone", |service| {
        service.is_none().then_some(())
    })
    .await?;
    for deployment in seen.deployment_generations().await?.into_keys() {
        if deployment.starts_with(SERVICE) {
            return Err(Failure::new(
                format!("{deployment} is still there"),
                "it should have gone with its owner",
            ));
        }
    }
    timeline.record("deleted the service", "its workers went with it", since)
}

fn with_threshold(value: &str) -> serde_json::Value {
    json!({"spec": {"edgeWorker": {"hardExampleMining": {
        "name": "CrossEntropy", "parameters": [{"key": "threshold_cross_entropy", "value": value}]}}}})
}
