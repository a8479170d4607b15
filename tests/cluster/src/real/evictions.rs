//! Managers that are evicted, as whoever drains nodes does.

use std::{fs, time::Duration};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::{SEDNA, Tour, kubernetes::text, lifecycle::still_reports};
use crate::{
    network::{CLOUD, EDGE},
    process::{until, until_it_works},
};

/// How long a replacement may take to be ready, and Kubernetes to see it.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the API server says of an eviction that has to wait.
const TOO_MANY: &str = "would violate the pod's disruption budget";

/// Of two managers, one can be evicted, and the other one not before there are two again.
pub fn one_manager_at_a_time(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    tour.workers = tour.running_workers()?;
    until(PATIENCE, || Ok((tour.evictions_allowed()? == Some(1)).then_some(())))
        .context("one manager may be evicted")?;
    let managers = tour.managers()?;
    let [first, second] = managers.as_slice() else {
        anyhow::bail!("{} managers run", managers.len());
    };
    // As a drain begins, so that no replacement is ready before this is over.
    tour.kubectl(&["cordon", CLOUD.name, EDGE.name])?;
    tour.evict(first)?;
    tour.is_put_off(second).context("right after the first")?;
    until(PATIENCE, || Ok((tour.managers()?.len() == 2).then_some(()))).context("the first gets a replacement")?;
    tour.is_put_off(second).context("while the replacement is not ready")?;
    tour.kubectl(&["uncordon", CLOUD.name, EDGE.name])?;
    until_it_works(PATIENCE, || tour.evict(second))
        .context("the second manager may be evicted once there are two again")?;
    until(PATIENCE, || {
        let now = tour.managers()?;
        let old = [first, second].map(|pod| text(pod, "/metadata/uid"));
        let is_new = |pod: &Value| !old.contains(&text(pod, "/metadata/uid"));
        Ok((now.len() == 2 && now.iter().all(is_new)).then_some(()))
    })
    .context("both managers are replaced")?;
    tour.rolled_out(SEDNA, "deployment", "skerry-globalmanager")?;
    tour.nothing_was_restarted()?;
    still_reports(tour)
}

impl Tour<'_> {
    /// How many managers may be evicted, as far as Kubernetes knows.
    fn evictions_allowed(&self) -> anyhow::Result<Option<u64>> {
        let budget = self.get(&["poddisruptionbudget", "skerry-globalmanager", "--namespace", SEDNA])?;
        Ok(budget.pointer("/status/disruptionsAllowed").and_then(Value::as_u64))
    }

    /// Fails if a manager can be evicted now.
    fn is_put_off(&self, pod: &Value) -> anyhow::Result<()> {
        let answer = self.evict(pod);
        let told = answer.err().map(|error| format!("{error:#}")).unwrap_or_default();
        ensure!(
            told.contains(TOO_MANY),
            "the eviction of a second manager is answered: {told:?}"
        );
        Ok(())
    }

    /// What a drain asks for each pod; unlike a drain, it asks once.
    fn evict(&self, pod: &Value) -> anyhow::Result<()> {
        let name = text(pod, "/metadata/name");
        let asked = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": SEDNA},
        });
        let file = self.work.join("eviction.json");
        fs::write(&file, asked.to_string())?;
        let file = file.to_str().context("a path is text")?;
        let path = format!("/api/v1/namespaces/{SEDNA}/pods/{name}/eviction");
        self.kubectl(&["create", "--raw", &path, "--filename", file]).map(drop)
    }
}
