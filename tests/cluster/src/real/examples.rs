//! The examples, as the user applies them.

use anyhow::ensure;

use super::Tour;

/// Pods that put the samples onto the nodes.
const DATA: [&str; 3] = ["digits-data-cloud-1", "digits-data-edge-1", "digits-data-edge-2"];

pub fn train(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    tour.apply(&tour.example("data/nodes.yaml")?)?;
    for pod in DATA {
        let done = "--for=jsonpath={.status.phase}=Succeeded";
        tour.kubectl(&["wait", "pod", pod, done, "--timeout=1m"])?;
    }
    tour.apply(&tour.example("federated-learning/digits.yaml")?)?;
    tour.wait_for_success("learn-digits")?;
    let metrics = "jsonpath={.status.metrics}";
    let metrics = tour.kubectl(&["get", "model", "digits-federated", "--output", metrics])?;
    ensure!(
        metrics.contains("accuracy"),
        "the model's status has no accuracy: {metrics}"
    );
    println!("real: the model's metrics: {metrics}");
    Ok(())
}

pub fn infer(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    tour.apply(&tour.example("joint-inference/digits.yaml")?)?;
    tour.wait_until_ready(&["jointinferenceservice", "read-digits"])?;
    let metrics = tour.wait_for_metrics("read-digits", |figure| {
        // The cloud has answered about a hard example.
        figure("hardExampleNumber") > figure("cloudFailures") && figure("uploadCloudRatio") > 0.0
    })?;
    println!("real: the service's metrics: {metrics}");
    Ok(())
}
