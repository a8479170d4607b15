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
    // Its two cores have to do for all.
    let limits = "limits: {cpu: 500m, memory: 128Mi}";
    let mut manifest = tour.example(example)?.replace("edge-1", "cloud-1");
    ensure!(manifest.contains(limits), "{example} has other limits");
    manifest = manifest.replace(limits, "limits: {memory: 128Mi}");
    for (name, here) in names {
        manifest = manifest.replace(&format!("name: {name}\n"), &format!("name: {here}\n"));
    }
    Ok(manifest)
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
