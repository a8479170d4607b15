//! Waits for what a watch shows, never for time to pass; and looks at pods.

use std::{fmt::Debug, time::Duration};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Resource,
    api::ListParams,
    runtime::{WatchStreamExt as _, watcher},
};
use serde::de::DeserializeOwned;
use skerry_crds::names;

use crate::{failure::Failure, stack::refused};

/// The longest that anything in the demo may take to be seen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(45);

/// Follows the object `name` until `enough` says so, and returns what it found. `expected` is what is waited for, for
/// the failure's sentence.
pub(crate) async fn until<K, T>(
    api: &Api<K>,
    name: &str,
    expected: &str,
    mut enough: impl FnMut(Option<&K>) -> Option<T>,
) -> Result<T, Failure>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut last = None;
    let followed = async {
        let mut states = std::pin::pin!(watcher::watch_object(api.clone(), name).default_backoff());
        while let Some(state) = states.next().await {
            // An error is tried again by the stream itself; the patience bounds it.
            let Ok(state) = state else { continue };
            if let Some(found) = enough(state.as_ref()) {
                return Some(found);
            }
            last = state;
        }
        None
    };
    match tokio::time::timeout(PATIENCE, followed).await {
        Ok(Some(found)) => Ok(found),
        _ => Err(Failure::new(
            format!("{name}: {expected} was not seen within {PATIENCE:?}"),
            last.map_or_else(
                || "it was not there at all; the logs of the parts say more".to_owned(),
                |last| {
                    format!("it was last seen as {last:?}")
                        .chars()
                        .take(2000)
                        .collect::<String>()
                },
            ),
        )),
    }
}

/// The live pod of the edge worker.
pub(super) async fn edge_pod(pods: &Api<Pod>) -> Result<Pod, Failure> {
    let label = format!(
        "{}={}",
        names::label::worker_type("jointinferenceservice"),
        names::worker_type::EDGE.to_ascii_lowercase()
    );
    let pods = pods
        .list(&ListParams::default().labels(&label))
        .await
        .map_err(refused)?;
    let live = pods.into_iter().find(|pod| pod.metadata.deletion_timestamp.is_none());
    live.ok_or_else(|| Failure::new("the edge worker has no pod", "the service should be ready by now"))
}

/// How often the containers of a pod were started again.
pub(super) fn restarts(pod: &Pod) -> i32 {
    let statuses = pod
        .status
        .iter()
        .flat_map(|status| status.container_statuses.iter().flatten());
    statuses.map(|container| container.restart_count).sum()
}

/// Whether a pod says that it is ready.
pub(super) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
