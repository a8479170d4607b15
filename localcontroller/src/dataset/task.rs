//! Looks after one Dataset: counts it, says so if it is news, waits until it may have changed.

use std::{path::PathBuf, sync::Arc, time::Duration};

use futures::TryStreamExt as _;
use skerry_edge::{Credential, ObjectKey, ReportPayload};
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, sleep, timeout},
};

use super::{
    count::{Counter, Format},
    error::DatasetError,
    location::Location,
    source::{Content, Opened, Sources},
    turns::Turn,
    watch::Watcher,
};
use crate::{
    metrics::Metrics,
    store::{Finding, Kept, Store},
};

/// When files are looked at.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How often a file is looked at that nobody says has changed.
    pub poll: Duration,
    /// How long a file that changes is left alone, so that one write of many parts is read once.
    pub settle: Duration,
}

impl Default for Timing {
    /// Sedna polls as often.
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(60),
            settle: Duration::from_millis(500),
        }
    }
}

/// A file that changes all the time is read for at most one part in so many of the time.
const REST: u32 = 8;

/// What a Dataset says of itself, as far as counting it is concerned.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The uid of the resource.
    pub uid: String,
    /// `spec.url`.
    pub url: String,
    /// `spec.format`.
    pub format: String,
    /// `spec.credentialName`, and the credential if it has come.
    pub credential: Option<(String, Option<Credential>)>,
}

/// What all Datasets share.
#[derive(Debug)]
pub struct Shared {
    /// Where findings are kept.
    pub store: Store,
    /// How files are opened.
    pub sources: Sources,
    /// How changes are noticed.
    pub watcher: Watcher,
    /// How many files may be read at once.
    pub readers: Semaphore,
    /// When files are looked at.
    pub timing: Timing,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

/// Counts one Dataset again and again; ends only by being dropped.
///
/// Hundreds of these wait for each that looks. So what they know is in the store, and but for the plainest wait, whatever
/// they do is on the heap while it lasts.
pub(super) async fn look_after(shared: Arc<Shared>, key: Arc<ObjectKey>, spec: Arc<Spec>) {
    loop {
        let turn = shared.sources.turn(&spec.url).await;
        let (changed, took) = Box::pin(look_once(&shared, &key, &spec, turn)).await;
        match changed {
            None => sleep(shared.timing.poll).await,
            Some(changed) => Box::pin(wait(shared.timing, changed, took)).await,
        }
    }
}

/// Looks, and says so if it is news; what tells of the next change, and how long it took.
async fn look_once(
    shared: &Shared,
    key: &ObjectKey,
    spec: &Spec,
    turn: Turn<'_>,
) -> (Option<watch::Receiver<()>>, Duration) {
    let changed = watch_file(shared, spec).await;
    let started = Instant::now();
    let (known, is_told) = known(shared, key, spec)
        .await
        .map_or((None, false), |Kept { finding, is_told }| (Some(finding), is_told));
    let found = look(shared, spec, known.as_ref(), turn).await;
    let news = match found {
        // What is known already is not written again: a node's disk wears out.
        Some(found) => Some(found).filter(|found| !is_told || known.as_ref() != Some(found)),
        None => known.filter(|_| !is_told),
    };
    if let Some(finding) = news {
        match shared.store.find(key, finding.clone()).await {
            Ok(true) => tracing::info!(dataset = %key, found = ?finding.told, "a dataset was looked at"),
            Ok(false) => {}
            // It is found again at the next look.
            Err(error) => tracing::error!(dataset = %key, %error, "what was found of a dataset cannot be kept"),
        }
    }
    shared.metrics.datasets_looked_at.inc();
    (changed, started.elapsed())
}

/// What was found before, if it is of the same Dataset.
async fn known(shared: &Shared, key: &ObjectKey, spec: &Spec) -> Option<Kept> {
    let kept = shared.store.finding(key).await.ok()??;
    let Finding { uid, url, format, .. } = &kept.finding;
    (*uid == spec.uid && *url == spec.url && *format == spec.format).then_some(kept)
}

/// What is found now; none where it is what is known.
async fn look(shared: &Shared, spec: &Spec, known: Option<&Finding>, turn: Turn<'_>) -> Option<Finding> {
    let known = known
        .filter(|known| matches!(known.told, ReportPayload::DatasetSamples { .. }))
        .and_then(|known| known.fingerprint.as_deref());
    let (fingerprint, told) = match count(shared, spec, known, turn).await {
        Ok(None) => return None,
        Ok(Some((fingerprint, count))) => {
            shared.metrics.datasets_counted.inc();
            (fingerprint, ReportPayload::DatasetSamples { count })
        }
        Err(error) => {
            let reason = error.to_string();
            (None, ReportPayload::DatasetFailed { reason })
        }
    };
    Some(Finding {
        uid: spec.uid.clone(),
        url: spec.url.clone(),
        format: spec.format.clone(),
        fingerprint,
        told,
    })
}

/// Counts the samples; none where the file is what it was.
async fn count(
    shared: &Shared,
    spec: &Spec,
    known: Option<&str>,
    turn: Turn<'_>,
) -> Result<Option<(Option<String>, u64)>, DatasetError> {
    let location = Location::parse(&spec.url)?;
    let failed = |error| DatasetError::Count {
        place: location.to_string(),
        error,
    };
    let format: Format = spec.format.parse().map_err(failed)?;
    let credential = match &spec.credential {
        None => None,
        Some((_, Some(credential))) => Some(credential),
        Some((name, None)) => {
            return Err(DatasetError::Credential {
                name: name.clone(),
                problem: "its Secret has not come to this node",
            });
        }
    };
    let opened = shared.sources.open(&location, credential, known).await?;
    drop(turn);
    let Opened::Changed(Content { fingerprint, mut bytes }) = opened else {
        return Ok(None);
    };
    // Once it is open: one that cannot be reached keeps no other waiting. Never closed, so never an error.
    let _reader = shared.readers.acquire().await;
    let mut counter = Counter::new(format);
    while let Some(bytes) = bytes.try_next().await? {
        counter.push(&bytes);
        // Counting a file that is cached never waits for anything else.
        tokio::task::yield_now().await;
    }
    Ok(Some((fingerprint, counter.finish().map_err(failed)?)))
}

async fn watch_file(shared: &Shared, spec: &Spec) -> Option<watch::Receiver<()>> {
    let Ok(Location::Host(path)) = Location::parse(&spec.url) else {
        return None;
    };
    let directory: PathBuf = shared.sources.directory(&path).await?;
    shared.watcher.watch(&directory)
}

/// Returns when it is time for another look, the last of which took so long.
async fn wait(timing: Timing, mut changed: watch::Receiver<()>, took: Duration) {
    let Timing { poll, settle } = timing;
    if let Ok(Ok(())) = timeout(poll, changed.changed()).await {
        sleep(settle.max(took.saturating_mul(REST)).min(poll)).await;
    }
}
