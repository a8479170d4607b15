//! Waits for what a watch shows, never for time to pass.

use std::{fmt::Debug, time::Duration};

use futures::StreamExt as _;
use kube::{
    Api, Resource,
    runtime::{WatchStreamExt as _, watcher},
};
use serde::de::DeserializeOwned;

use crate::failure::Failure;

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
