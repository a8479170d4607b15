//! The chart on a real API server: what it renders is taken, and it installs.

use std::{fs, time::Duration};

use anyhow::{Context, ensure};

use super::{
    SEDNA, Tour,
    kubernetes::{array, text},
    pages::INSTALLING,
};
use crate::{artifacts::KUBERNETES, process::until};

/// Values for the chart that render all that it can, from the root of the repository. Its own tests render them, too.
pub const EVERYTHING: &str = "tests/cluster/src/real/everything.yaml";

/// Renderings that differ in which objects there are and in what they say; whether with [`EVERYTHING`]. The definitions are the
/// same in all.
const RENDERINGS: [(bool, &str); 6] = [
    (false, ""),
    (false, "--set crds.install=false --set namespace=sedna"),
    (true, ""),
    (true, "--set crds.install=false --set namespace=sedna"),
    (
        true,
        "--set localController.managerProtocol=sedna --set localController.managerPlaintext=true",
    ),
    (
        false,
        "--set crds.install=false --set globalManager.replicas=1 --set localController.enabled=false",
    ),
];

/// Where the definition of `ServiceMonitors` is that the operator of Prometheus brings, from where commands are run.
pub const SERVICE_MONITORS: &str = "service-monitors.yaml";

/// Where there is no release: the lists of one that was rendered otherwise would be merged with what is tried.
const NOBODYS: &str = "default";

/// How long a controller may take to put the roles of users together.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a release may weigh: half of what a Secret may.
const MOST_OF_A_RELEASE: usize = 512 * 1024;

pub fn everything_is_taken(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    tour.shell(&format!("kubectl apply --filename {SERVICE_MONITORS}"))?;
    let established = "--for=condition=Established";
    tour.kubectl(&["wait", "crd/servicemonitors.monitoring.coreos.com", established])?;
    let everything = skerry_dist::root().join(EVERYTHING);
    for (with_everything, settings) in RENDERINGS {
        let values = if with_everything {
            format!("--values {}", everything.display())
        } else {
            String::new()
        };
        // As strict as can be: an unknown or doubled field is an error.
        let told = tour.shell(&format!(
            "helm template skerry charts/skerry --kube-version {KUBERNETES} --namespace {NOBODYS} {values} {settings} | \
             kubectl apply --dry-run=server --validate=strict --filename -"
        ))?;
        ensure!(told.lines().all(|line| line.ends_with("(server dry run)")), "{told}");
    }
    Ok(())
}

pub fn install(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    tour.follow(INSTALLING, "--create-namespace --wait")?;
    tour.follow(INSTALLING, "rollout status deployment/skerry-globalmanager")?;
    let pods = tour.follow(INSTALLING, "--namespace sedna get pods")?;
    ensure!(pods.contains("skerry-localcontroller"), "{pods}");
    tour.rolled_out(SEDNA, "daemonset", "skerry-localcontroller")?;
    let release = tour.get(&["secret", "sh.helm.release.v1.skerry.v1", "--namespace", SEDNA])?;
    // In an answer it is encoded once more.
    let size = text(&release, "/data/release").len() / 4 * 3;
    println!("real: the release weighs {} KiB", size / 1024);
    ensure!(size < MOST_OF_A_RELEASE, "the release's Secret weighs {size} bytes");
    has_no_rights(tour)?;
    users_have_rights(tour)?;
    hosts_are_apart(tour)
}

/// Whoever may edit or view a namespace may do the same with our kinds, and whoever views changes nothing.
fn users_have_rights(tour: &Tour<'_>) -> anyhow::Result<()> {
    for role in ["edit", "view"] {
        let bound = ["--clusterrole", role, "--user", role, "--namespace", NOBODYS];
        tour.kubectl(&[&["create", "rolebinding", role][..], &bound].concat())?;
    }
    let may = |user: &str, verb: &str| {
        let asked = format!("{verb} jointinferenceservices.sedna.io --namespace {NOBODYS} --as {user}");
        let told = tour.shell(&format!("kubectl auth can-i {asked} || test $? = 1"))?;
        anyhow::Ok(told.trim() == "yes")
    };
    // A controller puts the roles together.
    until(PATIENCE, || {
        Ok((may("edit", "create")? && may("view", "get")?).then_some(()))
    })
    .context("users have their rights on our kinds")?;
    ensure!(!may("view", "create")?, "whoever views may create");
    tour.kubectl(&["delete", "rolebinding", "edit", "view", "--namespace", NOBODYS])
        .map(drop)
}

/// The local controller never speaks to the API server, so its account has no rights, nor its pods its token.
fn has_no_rights(tour: &Tour<'_>) -> anyhow::Result<()> {
    let account = format!("system:serviceaccount:{SEDNA}:skerry-localcontroller");
    let may = tour.shell(&format!(
        "kubectl auth can-i get pods --all-namespaces --as {account} || test $? = 1"
    ))?;
    ensure!(may.trim() == "no", "{account} may get pods: {may}");
    let pods = tour.list(&[
        "pods",
        "--namespace",
        SEDNA,
        "--selector",
        "app.kubernetes.io/name=skerry-localcontroller",
    ])?;
    let pod = pods.first().context("there is a local controller")?;
    let token = array(pod, "/spec/volumes")
        .iter()
        .any(|volume| volume.get("projected").is_some());
    ensure!(!token, "a token is mounted: {pod}");
    Ok(())
}

/// What a pod writes to its node is on that node's disk, and on no other.
fn hosts_are_apart(tour: &Tour<'_>) -> anyhow::Result<()> {
    let store = "lib/skerry/localcontroller.db";
    let (cloud, edge) = (tour.hosts.cloud.disk(), tour.hosts.edge.disk());
    ensure!(edge.join(store).is_file(), "no store on the edge's disk");
    ensure!(!cloud.join(store).exists(), "the edge's store is on the cloud's disk");
    ensure!(fs::exists(&cloud)?, "the cloud has a disk");
    Ok(())
}
