//! Watches that go on through errors, and come back soon: who is cut off has to notice when it no longer is.

use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

/// The wait after a first failure; it doubles up to the longest.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);

/// How long a watch lasts before it is opened again, in seconds. Connections here end at once or not at all, so there is
/// nothing to be found out by shorter ones.
const LASTS: u32 = 3600;

/// All that happens to the objects of a kind.
pub(crate) fn watch_all<K>(api: Api<K>) -> BoxStream<'static, Event<K>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watch_fields(api, "")
}

/// The same for those whose fields a selector names.
pub(crate) fn watch_fields<K>(api: Api<K>, selector: &str) -> BoxStream<'static, Event<K>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    // Bookmarks would only keep a quiet watch busy: the server forgets no change of a kind that does not change.
    let config = Config::default().fields(selector).timeout(LASTS).disable_bookmarks();
    let events = watcher(api, config).backoff(Doubling(FIRST));
    let lasting = events.filter_map(|event| {
        let event = event.inspect_err(|error| tracing::debug!(%error, "watch interrupted"));
        std::future::ready(event.ok())
    });
    lasting.boxed()
}

/// Without chance, so that a test under paused time repeats itself.
struct Doubling(Duration);

impl Iterator for Doubling {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let wait = self.0;
        self.0 = (wait * 2).min(LONGEST);
        Some(wait)
    }
}

impl Backoff for Doubling {
    fn reset(&mut self) {
        self.0 = FIRST;
    }
}
