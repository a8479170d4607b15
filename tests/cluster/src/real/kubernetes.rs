//! How the tour speaks with the cluster, and what it remembers of the workers that run there.

use std::{collections::BTreeMap, fs, path::Path, process::Command, time::Duration};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use super::{Tour, lifecycle};
use crate::process::{Process, output, until};

/// The workers' pods by namespace and name: when each of their containers was started, and how often.
pub type Workers = BTreeMap<String, String>;

/// What selects the pods of all workers.
pub const OF_SERVICES: &str = "jointinferenceservice.sedna.io/uid";

impl Tour<'_> {
    pub(super) fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.hosts.plane.kubectl(arguments)
    }

    /// A command of kubectl's that goes on; its output is in the log of this name.
    pub(super) fn start_kubectl(&self, name: &str, arguments: &[&str]) -> anyhow::Result<Process> {
        let mut kubectl = Command::new(self.work.join("bin/kubectl"));
        kubectl
            .args(arguments)
            .env("KUBECONFIG", self.hosts.plane.access().admin);
        Process::start(name, &self.work, kubectl)
    }

    /// Waits until kubectl says this; it may be in a refusal.
    pub(super) fn wait_for_words(&self, arguments: &[&str], words: &str) -> anyhow::Result<()> {
        let mut said = String::new();
        until(Duration::from_secs(60), || {
            said = self.kubectl(arguments).unwrap_or_else(|error| error.to_string());
            Ok(said.contains(words).then_some(()))
        })
        .with_context(|| format!("{} does not say: {words}\nbut:\n{said}", arguments.join(" ")))
    }

    /// A command as a reader of a page types it.
    pub(super) fn shell(&self, line: &str) -> anyhow::Result<String> {
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = self.work.join("bin");
        output(
            Command::new("sh")
                .args(["-ec", line])
                .current_dir(&self.work)
                .env("PATH", format!("{}:{path}", bin.display()))
                .env("HOME", self.work.join("home"))
                .env("KUBECONFIG", &self.kubeconfig),
        )
    }

    /// Applies a manifest.
    pub(super) fn apply(&self, manifest: &str) -> anyhow::Result<()> {
        let file = self.work.join("manifest.yaml");
        fs::write(&file, manifest)?;
        let file = file.to_str().context("a path is text")?;
        self.kubectl(&["apply", "--filename", file]).map(drop)
    }

    /// A manifest of the examples, with what is meant for a second edge node on the one that there is.
    pub(super) fn example(&self, path: &str) -> anyhow::Result<String> {
        let path = self.work.join("examples").join(path);
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        Ok(text.replace("nodeName: edge-2", "nodeName: edge-1"))
    }

    /// An object, or a list of them.
    pub(super) fn get(&self, arguments: &[&str]) -> anyhow::Result<Value> {
        let text = self.kubectl(&[&["get", "--output=json"], arguments].concat())?;
        serde_json::from_str(&text).context("kubectl's JSON")
    }

    /// The items of a list.
    pub(super) fn list(&self, arguments: &[&str]) -> anyhow::Result<Vec<Value>> {
        Ok(array(&self.get(arguments)?, "/items").to_vec())
    }

    /// A merge patch.
    pub(super) fn patch(&self, what: &[&str], patch: &Value) -> anyhow::Result<()> {
        let patch = patch.to_string();
        let rest = ["--type=merge", "--patch", &patch];
        self.kubectl(&[&["patch"], what, &rest].concat()).map(drop)
    }

    /// Looks at each state of an object until there is something to see in one.
    pub(super) fn watch<T>(
        &self,
        object: &[&str; 2],
        limit: Duration,
        seen: impl FnMut(&Value) -> Option<T>,
    ) -> anyhow::Result<T> {
        self.hosts.plane.watch(object, limit, seen)
    }

    /// Waits until a condition of an object is as told, with its reason.
    pub(super) fn wait_for(
        &self,
        what: &[&str; 2],
        condition: &str,
        holds: impl Fn(&str, &str, &str) -> bool,
    ) -> anyhow::Result<String> {
        let mut last = String::new();
        self.watch(what, Duration::from_secs(120), |object| {
            let conditions = array(object, "/status/conditions");
            let found = conditions.iter().find(|found| text(found, "/type") == condition)?;
            let told = ["/status", "/reason", "/message"].map(|part| text(found, part));
            last = told.join(" ");
            let newest = found.pointer("/observedGeneration") == object.pointer("/metadata/generation");
            (newest && holds(told[0], told[1], told[2])).then(|| last.clone())
        })
        .with_context(|| format!("{condition} of {} is: {last}", what.join(" ")))
    }

    /// Waits until a service is ready, with all as it is declared.
    pub(super) fn wait_until_ready(&self, what: &[&str; 2]) -> anyhow::Result<()> {
        self.wait_for(what, "Progressing", |status, _, _| status == "False")?;
        self.wait_for(what, "Ready", |status, _, _| status == "True").map(drop)
    }

    /// Waits until all pods of a workload, such as a Deployment, are as it says.
    pub(super) fn rolled_out(&self, namespace: &str, kind: &str, name: &str) -> anyhow::Result<()> {
        let workload = format!("{kind}/{name}");
        self.kubectl(&["rollout", "status", &workload, "--namespace", namespace, "--timeout=3m"])
            .map(drop)
    }

    /// Waits until a job has come to its end.
    pub(super) fn wait_for_success(&self, job: &str) -> anyhow::Result<()> {
        let name = format!("federatedlearningjob/{job}");
        let done = "--for=jsonpath={.status.phase}=Succeeded";
        self.kubectl(&["wait", &name, done, "--timeout=4m"]).map(drop)
    }

    /// Every worker of a service that runs, and those of the job that trains throughout, as far as a restart would change them.
    pub(super) fn running_workers(&self) -> anyhow::Result<Workers> {
        let mut pods = self.list(&["pods", "--all-namespaces", "--selector", OF_SERVICES])?;
        let of_the_job = format!("federatedlearningjob.sedna.io/name={}", lifecycle::JOB);
        pods.extend(self.list(&["pods", "--all-namespaces", "--selector", &of_the_job])?);
        let mut workers = Workers::new();
        for pod in &pods {
            let name = format!("{}/{}", text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
            workers.insert(name, told_of(pod));
        }
        ensure!(!workers.is_empty(), "no worker of a service runs");
        Ok(workers)
    }

    /// Fails if a worker is another than before, or was started again.
    pub(super) fn nothing_was_restarted(&self) -> anyhow::Result<()> {
        let now = self.running_workers()?;
        ensure!(
            now == self.workers,
            "workers were {:#?}\nand are {now:#?}",
            self.workers
        );
        Ok(())
    }

    /// The pods of a worker, but for those on their way out: a service's or job's name, and the worker's type.
    pub(super) fn pods_of(&self, kind: &str, name: &str, worker: &str) -> anyhow::Result<Vec<Value>> {
        let selector = format!("{kind}.sedna.io/name={name},{kind}.sedna.io/worker-type={worker}");
        let mut pods = self.list(&["pods", "--selector", &selector])?;
        pods.retain(|pod| pod.pointer("/metadata/deletionTimestamp").is_none());
        Ok(pods)
    }

    /// The only pod of a service's worker.
    pub(super) fn pod_of(&self, service: &str, worker: &str) -> anyhow::Result<Value> {
        let mut pods = self.pods_of("jointinferenceservice", service, worker)?;
        match (pods.pop(), pods.len()) {
            (Some(pod), 0) => Ok(pod),
            (_, others) => bail!("{} pods of the worker {worker} of {service}", others + 1),
        }
    }

    /// Waits until a figure of a resource's metrics is as wanted.
    pub(super) fn wait_for_metrics(
        &self,
        resource: &[&str; 2],
        mut holds: impl FnMut(&dyn Fn(&str) -> f64) -> bool,
    ) -> anyhow::Result<String> {
        let mut last = String::new();
        self.watch(resource, Duration::from_secs(90), |object| {
            let metrics = array(object, "/status/metrics");
            last = Value::from(metrics).to_string();
            holds(&|key| figure(metrics, key)).then(|| last.clone())
        })
        .with_context(|| format!("the metrics of {} are: {last}", resource.join(" ")))
    }
}

/// Copies a folder.
pub fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    output(Command::new("cp").arg("-rL").arg(from).arg(to)).map(drop)
}

/// A text in an object; empty where there is none.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A list in an object; empty where there is none.
pub fn array<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// What a restart would change in a pod.
pub fn told_of(pod: &Value) -> String {
    let containers = array(pod, "/status/containerStatuses").iter().map(|container| {
        let started = text(container, "/state/running/startedAt");
        let (id, restarts) = (text(container, "/containerID"), &container["restartCount"]);
        format!("{id} since {started}, {restarts} restarts")
    });
    let containers: Vec<_> = containers.collect();
    format!("{} {}", text(pod, "/metadata/uid"), containers.join(", "))
}

/// The identifier of a pod's first container, as containerd knows it.
pub fn container_of(pod: &Value) -> &str {
    text(pod, "/status/containerStatuses/0/containerID").trim_start_matches("containerd://")
}

/// A figure of a status' metrics: a list of keys and values, both texts.
fn figure(metrics: &[Value], key: &str) -> f64 {
    let found = metrics.iter().find(|metric| text(metric, "/key") == key);
    found
        .and_then(|metric| text(metric, "/value").parse().ok())
        .unwrap_or_default()
}
