//! The examples, as the user applies them.

use anyhow::ensure;

use super::Tour;

/// The service of the example that runs on both nodes.
pub const ON_BOTH: [&str; 2] = ["jointinferenceservice", "read-digits"];

/// Pods that put the samples onto the nodes.
const DATA: [&str; 3] = ["digits-data-cloud-1", "digits-data-edge-1", "digits-data-edge-2"];

pub fn train(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    tour.apply(&tour.example("data/nodes.yaml")?)?;
    for pod in DATA {
        let done = "--for=jsonpath={.status.phase}=Succeeded";
        tour.kubectl(&["wait", "pod", pod, done, "--timeout=3m"])?;
    }
    tour.apply(&tour.example("federated-learning/digits.yaml")?)?;
    tour.wait_for_success("learn-digits")?;
    // The last report of a trainer may be written a moment after its pod has ended.
    let metrics = tour.wait_for_metrics(&["model", "digits-federated"], |figure| figure("accuracy") > 0.0)?;
    println!("real: the model's metrics: {metrics}");
    Ok(())
}

pub fn infer(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    tour.apply(&tour.example("joint-inference/digits.yaml")?)?;
    tour.wait_until_ready(&ON_BOTH)?;
    let metrics = tour.wait_for_metrics(&ON_BOTH, |figure| {
        // The cloud has answered about a hard example.
        figure("hardExampleNumber") > figure("cloudFailures") && figure("uploadCloudRatio") > 0.0
    })?;
    println!("real: the service's metrics: {metrics}");
    Ok(())
}

/// A service whose worker on the edge never asks the cloud.
pub const ALONE: [&str; 2] = ["jointinferenceservice", "read-alone"];

/// So many digits its worker looks at in a second.
pub const DIGITS: f64 = 20.0;

/// It serves.
pub fn infer_alone(tour: &Tour<'_>) -> anyhow::Result<()> {
    let mut manifest = without_reserve(tour, "joint-inference/digits.yaml")?;
    for (example, here) in [
        ("name: read-digits\n", "name: read-alone\n"),
        // Nothing is as hard as that.
        ("value: \"0.8\"", "value: \"0\""),
        ("value: \"20\"", &format!("value: \"{DIGITS}\"")),
    ] {
        ensure!(manifest.contains(example), "the example lacks {example:?}");
        manifest = manifest.replace(example, here);
    }
    tour.apply(&manifest)?;
    tour.wait_until_ready(&ALONE)
}

/// The service that runs wholly in the cloud.
pub const SERVICE: &str = "read-in-the-cloud";

/// Its manifest.
pub fn service_in_the_cloud(tour: &Tour<'_>) -> anyhow::Result<String> {
    in_the_cloud(tour, "joint-inference/digits.yaml", &[("read-digits", SERVICE)])
}

/// It serves.
pub fn serve_in_the_cloud(tour: &Tour<'_>) -> anyhow::Result<()> {
    tour.apply(&service_in_the_cloud(tour)?)?;
    tour.wait_until_ready(&["jointinferenceservice", SERVICE])
}

/// An example on the node in the cloud alone, with its objects renamed.
fn in_the_cloud(tour: &Tour<'_>, example: &str, names: &[(&str, &str)]) -> anyhow::Result<String> {
    let mut manifest = without_reserve(tour, example)?.replace("edge-1", "cloud-1");
    for (name, here) in names {
        manifest = manifest.replace(&format!("name: {name}\n"), &format!("name: {here}\n"));
    }
    Ok(manifest)
}

/// An example whose workers reserve no processor: a node's two have to do for all.
fn without_reserve(tour: &Tour<'_>, example: &str) -> anyhow::Result<String> {
    let limits = "limits: {cpu: 500m, memory: 128Mi}";
    let manifest = tour.example(example)?;
    ensure!(manifest.contains(limits), "{example} has other limits");
    Ok(manifest.replace(limits, "limits: {memory: 128Mi}"))
}

/// The same with the federated job, of so many rounds.
pub fn job_in_the_cloud(tour: &Tour<'_>, names: &[(&str, &str)], rounds: u8) -> anyhow::Result<String> {
    let job = in_the_cloud(tour, "federated-learning/digits.yaml", names)?;
    let job = job.replace("value: \"10\"", &format!("value: \"{rounds}\""));
    // No local controller runs there, for which they would wait to report the last round.
    let patience = "- {name: CONNECT_TIMEOUT, value: \"8\"}";
    let period = "- name: ROUND_PERIOD\n";
    Ok(job.replace(period, &format!("{patience}\n                {period}")))
}
