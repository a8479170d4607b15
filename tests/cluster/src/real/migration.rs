//! A cluster that Sedna runs, with workers at work, changes hands.
//!
//! What Sedna has declared and made is in `sedna/`: names, labels, owners, environment, written by the means that it uses.
//! Its own programs are stood in for by one that does nothing, and its definitions by those that `definitions` makes.

use std::{fs, time::Duration};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::{
    Tour,
    declared::Declared,
    definitions,
    kubernetes::{array, text, told_of},
    pages::{INSTALLING, MIGRATING},
    storage,
};
use crate::{
    network::HARNESS,
    process::{until, until_it_works},
};

const CONTROL: &str = include_str!("sedna/control.yaml");
/// What the user has declared.
pub const OBJECTS: &str = include_str!("sedna/objects.yaml");
const CHILDREN: &str = include_str!("sedna/children.yaml");

/// Sedna's manager, as its writes show.
const SEDNA_GM: &str = "sedna-gm";

/// The group of Sedna's kinds, and its only version.
const GROUP: &str = "sedna.io";
const VERSION: &str = "v1alpha1";

/// What all annotations of an object may weigh, `kubectl apply`'s among them, and how many of Sedna's definitions are larger: as
/// many as had been refused of its own.
const MOST_OF_ANNOTATIONS: usize = 256 * 1024;
const TOO_LARGE: usize = 9;

/// The namespace of Sedna's own programs.
const SEDNA: &str = "sedna";
/// The user's namespace.
const PLANT: &str = "plant";
/// How many objects of Sedna's kinds the user has declared.
pub const DECLARED: usize = 14;

/// Those of them of which Sedna has told no more than that they are at work.
const AT_WORK: [&str; 5] = [
    "fe/gait",
    "objs/visitors",
    "objt/forklifts",
    "reid/who-was-here",
    "va/night-shift",
];

const EDGE_WORKER: &str = "helmet-deployment-edge";
const CLOUD_WORKER: &str = "helmet-deployment-cloud";
/// The pod of the trainer in the cloud.
const TRAINER: &str = "surface-train-9d4fm";

/// How long what is waited for may take.
const PATIENCE: Duration = Duration::from_secs(90);

pub fn changes_hands(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    empty_the_cluster(tour)?;
    let before = sedna_runs(tour).context("Sedna's cluster")?;
    hand_over(tour)?;
    ensure!(pods(tour)? == before, "adopted, and not restarted: {before:#?}");
    places_are_known(tour)?;
    replace_the_local_controllers(tour)?;
    ensure!(
        pods(tour)? == before,
        "the local controllers are replaced, and no worker"
    );
    replace_the_rest(tour).context("replacing what is left of Sedna's workers")?;
    tour.nothing_is_lost()?;
    let before = until(PATIENCE, || {
        let pods = pods(tour)?;
        Ok(pods.iter().all(|pod| pod.contains("since 2")).then_some(pods))
    })
    .context("all workers run")?;
    back_and_forth(tour)?;
    let after = pods(tour)?;
    ensure!(
        after == before,
        "on the way back, workers were: {before:#?}\nand are: {after:#?}"
    );
    tour.nothing_is_lost().context("on the way back")?;
    tour.follow(MIGRATING, "delete daemonset lc")?;
    tour.follow(MIGRATING, "delete deployment/gm").map(drop)
}

/// As the page about installing says how everything goes.
fn empty_the_cluster(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    tour.kubectl(&["delete", "ji,fl", "--all", "--timeout=3m"])?;
    tour.follow(INSTALLING, "helm uninstall")?;
    tour.shell("kubectl delete --filename charts/skerry/files/crds --timeout=3m")?;
    until(PATIENCE, || {
        let left = tour.list(&["pods", "--selector", super::kubernetes::OF_SERVICES])?;
        Ok(left.is_empty().then_some(()))
    })
    .context("workers go with their services")
}

/// Sedna's control plane is there, what its user has declared, and what it has made of that, all at work.
fn sedna_runs(tour: &Tour<'_>) -> anyhow::Result<Vec<String>> {
    let model = tour
        .hosts
        .edge
        .disk()
        .join("lib/skerry/examples/models/digits-federated.json");
    let address = (HARNESS, 9000).into();
    storage::serve(address, "/models/small.json", "an-id-in-clear", fs::read(model)?)?;
    tour.hosts.edge.ctr(&[
        "images",
        "tag",
        "docker.io/skerry/storage-initializer:v1",
        "docker.io/kubeedge/sedna-storage-initializer:v0.3.0",
    ])?;
    define(tour).context("Sedna's definitions")?;
    tour.apply(CONTROL)?;
    tour.apply(OBJECTS)?;
    let uid = |kind, name| -> anyhow::Result<String> {
        Ok(text(&tour.get(&[kind, name, "--namespace", PLANT])?, "/metadata/uid").to_owned())
    };
    let children = CHILDREN
        .replace("SERVICE-UID", &uid("jointinferenceservice", "helmet")?)
        .replace("JOB-UID", &uid("federatedlearningjob", "surface")?);
    tour.create(SEDNA_GM, &children)?;
    for deployment in [EDGE_WORKER, CLOUD_WORKER] {
        tour.rolled_out(PLANT, "deployment", deployment)?;
    }
    tour.kubectl(&[
        "wait",
        "pods",
        "--all",
        "--namespace",
        PLANT,
        "--for=condition=Ready",
        "--timeout=3m",
    ])?;
    // As Sedna so often leaves it: running, and failed for good.
    let status = json!({"status": {"active": 0, "failed": 2, "startTime": "2026-01-01T00:00:00Z", "conditions": [
        {"type": "Running", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"},
        {"type": "Failed", "status": "True", "reason": "workerFailed", "message": "the worker of service failed",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]}});
    let manager = format!("--field-manager={SEDNA_GM}");
    let what = ["ji", "helmet", "--namespace", PLANT, "--subresource=status", &manager];
    tour.patch(&what, &status)?;
    let status = json!({"status": {"startTime": "2026-01-01T00:00:00Z", "conditions": [
        {"type": "Running", "status": "True", "stage": "Train", "data": "{\"input\":{\"output\":\"/output/train/1\"}}",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    for job in ["il/helmet-over-time", "ll/comfort"] {
        tour.patch(&[job, "--namespace", PLANT, "--subresource=status", &manager], &status)?;
    }
    let status = json!({"status": {"active": 1, "startTime": "2026-01-01T00:00:00Z", "conditions": [
        {"type": "Running", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    for one in AT_WORK {
        tour.patch(&[one, "--namespace", PLANT, "--subresource=status", &manager], &status)?;
    }
    pods(tour)
}

/// Sedna's definitions are there, almost all of them too large for `kubectl apply`.
fn define(tour: &Tour<'_>) -> anyhow::Result<()> {
    let definitions = definitions::of_sedna(&tour.hosts.plane)?;
    let sizes: Vec<_> = definitions.iter().map(|one| one.to_string().len()).collect();
    println!(
        "real: Sedna's definitions weigh {} KiB",
        sizes.iter().sum::<usize>() / 1024
    );
    let too_large = sizes.iter().filter(|size| **size > MOST_OF_ANNOTATIONS).count();
    ensure!(
        too_large == TOO_LARGE,
        "{too_large} of {sizes:?} are too large for `kubectl apply`"
    );
    let list = json!({"apiVersion": "v1", "kind": "List", "items": definitions});
    tour.create("kubectl", &list.to_string())?;
    let wait = ["wait", "crds", "--all", "--for=condition=Established", "--timeout=3m"];
    // As long as one has no conditions at all, kubectl does not wait for them.
    until_it_works(PATIENCE, || tour.kubectl(&wait))
        .map(drop)
        .context("they are served")
}

/// Whoever takes over Sedna's definitions leaves nothing of them.
fn definitions_are_ours(tour: &Tour<'_>) -> anyhow::Result<()> {
    let difference = tour.shell("kubectl diff --filename charts/skerry/files/crds || test $? = 1")?;
    ensure!(
        difference.is_empty(),
        "definitions differ from ours: {difference:.4000}"
    );
    let all = tour.list(&["crds"])?;
    let sednas = all.iter().filter(|crd| text(crd, "/spec/group") == GROUP);
    let versions: Vec<_> = sednas.map(|crd| array(crd, "/status/storedVersions")).collect();
    ensure!(
        versions.len() == definitions::COUNT && versions.iter().all(|stored| *stored == [VERSION]),
        "what is stored is of the versions {versions:?}"
    );
    Ok(())
}

/// Steps 1 to 4 of the page.
fn hand_over(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    let found = tour.follow(MIGRATING, "kubectl get crds")?;
    ensure!(found.lines().count() == definitions::COUNT, "{found}");
    tour.follow(MIGRATING, "> sedna-objects.yaml")?;
    tour.declared = kept(tour).context("what the page has kept")?;
    tour.follow(MIGRATING, "> services-before")?;
    tour.follow(MIGRATING, "> jobs-before")?;
    tour.follow(MIGRATING, "scale deployment gm --replicas=0")?;
    until(PATIENCE, || {
        let left = tour.follow(MIGRATING, "kubectl --namespace sedna get pods")?;
        Ok((!left.lines().any(|line| line.starts_with("gm-"))).then_some(()))
    })
    .context("Sedna's manager ends")?;
    tour.follow(MIGRATING, "--take-ownership")?;
    definitions_are_ours(tour)?;
    tour.follow(MIGRATING, "diff services-before")?;
    tour.follow(MIGRATING, "diff jobs-before")?;
    tour.follow(MIGRATING, "kubectl get ji,fl --all-namespaces")?;
    tour.follow(MIGRATING, "kubectl wait ji --all")?;
    tour.nothing_is_lost()?;
    let service = tour.get(&["ji", "helmet", "--namespace", PLANT])?;
    let failed = array(&service, "/status/conditions")
        .iter()
        .any(|condition| text(condition, "/type") == "Failed");
    ensure!(!failed, "a failure that Sedna left behind goes: {service}");
    for reason in ["WorkerAdopted", "PodsAdopted"] {
        let selected = format!("--field-selector=reason={reason}");
        let events = tour.list(&["events", "--namespace", PLANT, &selected])?;
        ensure!(!events.is_empty(), "no event {reason}");
    }
    Ok(())
}

/// The objects as they were, from the page's own file.
fn kept(tour: &Tour<'_>) -> anyhow::Result<Declared> {
    let text = fs::read_to_string(tour.work.join("sedna-objects.yaml"))?;
    let list: Value = serde_saphyr::from_str(&text)?;
    let declared = Declared::of(array(&list, "/items"));
    ensure!(declared.number() == DECLARED, "{declared:#?}");
    Ok(declared)
}

/// Which workers are still as Sedna made them, and which place of the job each pod has.
fn places_are_known(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    let deployments = tour.follow(MIGRATING, "kubectl get deployments --all-namespaces")?;
    ensure!(
        deployments.lines().count() == 3 && !deployments.contains("<none>"),
        "{deployments}"
    );
    let places = tour.follow(MIGRATING, "adopted-place")?;
    for (pod, place) in [
        ("surface-aggregation-x7k2p", "aggregation"),
        // The samples and the node say it.
        ("surface-train-qq8zt", "train-0"),
        (TRAINER, "train-1"),
    ] {
        let found = places.lines().find(|line| line.contains(pod)).unwrap_or_default();
        ensure!(found.ends_with(place), "{pod} is in {place}: {places}");
    }
    Ok(())
}

/// Step 5.
fn replace_the_local_controllers(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    tour.follow(MIGRATING, "> sedna-lc.yaml")?;
    tour.follow(MIGRATING, "delete daemonset lc")?;
    tour.follow(MIGRATING, "localController.enabled=true")?;
    tour.follow(MIGRATING, "rollout status daemonset").map(drop)
}

/// What a reader puts in.
fn of(name: &str) -> [(&str, &str); 2] {
    [("NAMESPACE", PLANT), (" NAME", name)]
}

/// Step 6: by new keys, without any change, and by deletion.
fn replace_the_rest(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    ensure!(in_clear(tour)?, "Sedna has written keys in clear");
    tour.follow_with(MIGRATING, "patch secret", &of(" storage"))?;
    until(PATIENCE, || Ok((!in_clear(tour)?).then_some(()))).context("no key in clear is left")?;
    tour.rolled_out(PLANT, "deployment", EDGE_WORKER)?;
    tour.follow_with(
        MIGRATING,
        "annotate --overwrite deployment",
        &of(" helmet-deployment-cloud"),
    )?;
    for worker in [EDGE_WORKER, CLOUD_WORKER] {
        until(PATIENCE, || Ok(is_ours(tour, worker)?.then_some(())))
            .with_context(|| format!("{worker} is as if it had always been ours"))?;
        tour.rolled_out(PLANT, "deployment", worker)?;
    }
    tour.kubectl(&[
        "wait",
        "ji/helmet",
        "--namespace",
        PLANT,
        "--for=condition=Ready",
        "--timeout=3m",
    ])?;
    let before = pods(tour)?;
    let trainer = format!(" {TRAINER}");
    tour.follow_with(MIGRATING, "delete pod NAME", &of(&trainer))?;
    let after = until(PATIENCE, || {
        let now = pods(tour)?;
        let complete = now.len() == before.len() && now.iter().any(|pod| pod.contains("surface-train-1-"));
        Ok(complete.then_some(now))
    })
    .context("the trainer is made again")?;
    let kept = |pod: &&String| !pod.contains("surface-train-");
    ensure!(
        after.iter().filter(kept).eq(before.iter().filter(kept)),
        "were: {before:#?}\nare: {after:#?}"
    );
    until(PATIENCE, || {
        let service = tour.get(&["ji", "helmet", "--namespace", PLANT])?;
        Ok((!array(&service, "/status/metrics").is_empty()).then_some(()))
    })
    .context("what the service's new worker reports arrives")
}

/// Up to the last step there is a way back, on which workers go on.
fn back_and_forth(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    tour.follow(MIGRATING, "helm uninstall")?;
    tour.follow(MIGRATING, "create --filename sedna-lc.yaml")?;
    tour.follow(MIGRATING, "scale deployment gm --replicas=1")?;
    tour.rolled_out(SEDNA, "daemonset", "lc")?;
    tour.rolled_out(SEDNA, "deployment", "gm")?;
    tour.follow(MIGRATING, "jointinferenceservice.sedna.io/uid,!app.sedna.io")
        .map(drop)
}

/// Every pod of the user's but those on their way out, as far as a restart would change it.
fn pods(tour: &Tour<'_>) -> anyhow::Result<Vec<String>> {
    let pods = tour.list(&["pods", "--namespace", PLANT])?;
    let stay = pods
        .iter()
        .filter(|pod| pod.pointer("/metadata/deletionTimestamp").is_none());
    let told = stay.map(|pod| format!("{}: {}", text(pod, "/metadata/name"), told_of(pod)));
    Ok(told.collect())
}

/// Whether a key is readable in a Deployment, in what is kept of its earlier templates, or in a pod.
fn in_clear(tour: &Tour<'_>) -> anyhow::Result<bool> {
    let list = tour.get(&["deployments,replicasets,pods", "--namespace", PLANT])?;
    let items = array(&list, "/items").iter();
    let mut alive = items.filter(|item| item.pointer("/metadata/deletionTimestamp").is_none());
    Ok(alive.any(|item| item["spec"].to_string().contains("-in-clear")))
}

/// Whether nothing of Sedna's environment is left, nor anything of its template Sedna's to say.
fn is_ours(tour: &Tour<'_>, deployment: &str) -> anyhow::Result<bool> {
    let object = tour.get(&["deployment", deployment, "--namespace", PLANT, "--show-managed-fields"])?;
    let fields = array(&object, "/metadata/managedFields");
    let sednas = fields.iter().filter(|entry| text(entry, "/manager") == SEDNA_GM);
    let of_the_template = |entry: &Value| entry.pointer("/fieldsV1/f:spec/f:template").is_some();
    let env = array(&object, "/spec/template/spec/containers/0/env");
    let value = |name: &str| {
        let found = env.iter().find(|var| text(var, "/name") == name);
        found.map(|var| text(var, "/value").to_owned())
    };
    // Sedna drew it at random, and told the two nothing of where they meet.
    let random = ["edgeworker-q9z4t", "cloudworker-x7k2p"];
    let renamed = value("WORKER_NAME").is_some_and(|name| !random.contains(&name.as_str()));
    Ok(renamed && value("JOB_NAME").as_deref() == Some("helmet") && !sednas.into_iter().any(of_the_template))
}

impl Tour<'_> {
    /// Creates what a manifest has, in somebody's name.
    fn create(&self, manager: &str, manifest: &str) -> anyhow::Result<()> {
        let file = self.work.join("created.yaml");
        fs::write(&file, manifest)?;
        let file = file.to_str().context("a path is text")?;
        let manager = format!("--field-manager={manager}");
        self.kubectl(&["create", &manager, "--filename", file]).map(drop)
    }
}
