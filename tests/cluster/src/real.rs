//! What only real nodes can show: the chart installed, and the examples' workers run in containers to their end.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use crate::{
    hosts::Hosts,
    process::{output, until},
};

/// The namespace of the chart.
const SEDNA: &str = "sedna";

/// A tour of the two hosts.
pub struct Tour<'a> {
    hosts: &'a Hosts,
    helm: PathBuf,
    /// The repository.
    root: PathBuf,
    folder: PathBuf,
}

impl<'a> Tour<'a> {
    /// With what is to be installed.
    pub fn new(hosts: &'a Hosts, helm: &Path, root: &Path, folder: &Path) -> Self {
        Self {
            hosts,
            helm: helm.to_owned(),
            root: root.to_owned(),
            folder: folder.to_owned(),
        }
    }

    /// The whole tour; each step says how long it took.
    pub fn run(&self) -> anyhow::Result<()> {
        self.step("the chart is installed, and its pods are ready", Self::install)?;
        self.step(
            "a federated job trains in containers on both nodes to its end",
            Self::train,
        )?;
        self.step("a joint inference service infers across both nodes", Self::infer)?;
        self.step(
            "the chart is uninstalled, and nothing of the user's goes",
            Self::uninstall,
        )
    }

    fn step(&self, name: &str, step: fn(&Self) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let begun = Instant::now();
        match step(self) {
            Ok(()) => {
                println!("real: {name} ... ok ({} s)", begun.elapsed().as_secs());
                Ok(())
            }
            Err(error) => {
                println!("real: {name} ... FAILED");
                for look in [
                    &["get", "pods", "--all-namespaces", "--output", "wide"][..],
                    &["get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"],
                    &["describe", "pods", "--namespace", SEDNA],
                ] {
                    println!("{}", self.kubectl(look).unwrap_or_else(|error| error.to_string()));
                }
                Err(error.context(name.to_owned()))
            }
        }
    }

    fn install(&self) -> anyhow::Result<()> {
        self.helm(&[
            "install",
            "skerry",
            "charts/skerry",
            "--create-namespace",
            "--timeout",
            "3m",
            "--wait",
        ])?;
        self.kubectl(&[
            "rollout",
            "status",
            "deployment/skerry-globalmanager",
            "--namespace",
            SEDNA,
            "--timeout=2m",
        ])?;
        self.kubectl(&[
            "rollout",
            "status",
            "daemonset/skerry-localcontroller",
            "--namespace",
            SEDNA,
            "--timeout=2m",
        ])
        .map(drop)
    }

    fn train(&self) -> anyhow::Result<()> {
        self.apply("examples/data/nodes.yaml")?;
        for pod in ["digits-data-cloud-1", "digits-data-edge-1", "digits-data-edge-2"] {
            let done = "--for=jsonpath={.status.phase}=Succeeded";
            self.kubectl(&["wait", "pod", pod, done, "--timeout=1m"])?;
        }
        self.apply("examples/federated-learning/digits.yaml")?;
        self.kubectl(&[
            "wait",
            "federatedlearningjob/learn-digits",
            "--for=jsonpath={.status.phase}=Succeeded",
            "--timeout=4m",
        ])?;
        let metrics = self.kubectl(&[
            "get",
            "model",
            "digits-federated",
            "--output",
            "jsonpath={.status.metrics}",
        ])?;
        if !metrics.contains("accuracy") {
            bail!("the model's status has no accuracy: {metrics}");
        }
        println!("real: the model's metrics: {metrics}");
        Ok(())
    }

    fn infer(&self) -> anyhow::Result<()> {
        self.apply("examples/joint-inference/digits.yaml")?;
        self.kubectl(&[
            "wait",
            "jointinferenceservice/read-digits",
            "--for=condition=Ready",
            "--timeout=3m",
        ])?;
        // Until the cloud has answered about a hard example.
        let metrics = until(Duration::from_secs(90), || {
            let metrics = self.kubectl(&[
                "get",
                "jointinferenceservice",
                "read-digits",
                "--output",
                "jsonpath={.status.metrics}",
            ])?;
            let figure = |key: &str| figure(&metrics, key);
            let answered = figure("hardExampleNumber") > figure("cloudFailures");
            Ok((answered && figure("uploadCloudRatio") > 0.0).then_some(metrics))
        })
        .context("waiting for an answer of the cloud's worker in the metrics")?;
        println!("real: the service's metrics: {metrics}");
        Ok(())
    }

    fn uninstall(&self) -> anyhow::Result<()> {
        self.helm(&["uninstall", "skerry", "--wait"])?;
        let left = self.kubectl(&["get", "jointinferenceservices,models", "--output", "name"])?;
        if !left.contains("read-digits") || !left.contains("digits-federated") {
            bail!("left: {left}");
        }
        Ok(())
    }

    /// Applies a manifest of the examples, with what is meant for a second edge node on the one that there is.
    fn apply(&self, manifest: &str) -> anyhow::Result<()> {
        let text = fs::read_to_string(self.root.join(manifest)).with_context(|| format!("reading {manifest}"))?;
        let file = self.folder.join("manifest.yaml");
        fs::write(&file, text.replace("nodeName: edge-2", "nodeName: edge-1"))?;
        let file = file.to_str().context("a path is text")?;
        self.kubectl(&["apply", "--filename", file]).map(drop)
    }

    fn helm(&self, arguments: &[&str]) -> anyhow::Result<String> {
        output(
            Command::new(&self.helm)
                .current_dir(&self.root)
                .env("HOME", &self.folder)
                .arg("--kubeconfig")
                .arg(&self.hosts.plane.access().admin)
                .args(["--namespace", SEDNA])
                .args(arguments),
        )
    }

    fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.hosts.plane.kubectl(arguments)
    }
}

/// A figure of a status' metrics: a list of keys and values, both texts.
fn figure(metrics: &str, key: &str) -> f64 {
    let metrics: serde_json::Value = serde_json::from_str(metrics).unwrap_or_default();
    let mut metrics = metrics.as_array().into_iter().flatten();
    let found = metrics.find(|metric| metric.get("key").is_some_and(|found| found == key));
    found
        .and_then(|metric| metric.get("value")?.as_str()?.parse().ok())
        .unwrap_or_default()
}
