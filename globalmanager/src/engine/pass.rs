//! One pass over one resource: fetch, plan, apply, status. A process killed between any two writes of it leaves a state
//! that the next pass completes. What nodes hold of the resource is told beside it ([`super::placing`]).

use std::{collections::BTreeSet, time::Duration};

use serde_json::Value;
use skerry_workloads::{Children, Event, EventType, Kind, ObjectKind, Observed, References};
use tokio::time::Instant;

use super::{
    Engine, ResourceKey,
    apply::{self, Outcome},
    cache, placing,
    queue::Ended,
    references,
    second_look::Outdated,
    status::{self, News, Told},
};

/// A watch that lags behind what the API server says is given so long, unless it tells earlier.
const BEHIND: Duration = Duration::from_secs(1);

/// Why a pass could not be completed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The API server refused or did not answer.
    #[error("{step}: {source}")]
    Api {
        /// What was being done.
        step: String,
        /// What came of it.
        source: kube::Error,
    },
    /// The lease was lost under way.
    #[error("the lease was lost under way")]
    Deposed,
}

impl Error {
    /// A stable word for metrics and logs.
    pub(crate) fn category(&self) -> &'static str {
        let Self::Api { source, .. } = self else {
            return "deposed";
        };
        match source {
            kube::Error::Api(status) => match status.code {
                409 => "conflict",
                429 => "throttled",
                401 | 403 => "forbidden",
                500.. => "server",
                _ => "refused",
            },
            _ => "transport",
        }
    }
}

/// Says what was being done when the API server refused.
pub(crate) fn at(step: impl Into<String>) -> impl FnOnce(kube::Error) -> Error {
    move |source| Error::Api {
        step: step.into(),
        source,
    }
}

/// One pass over the resource `key` of kind `K`.
pub(crate) async fn pass<K: Kind>(engine: &Engine, key: &ResourceKey) -> Result<Ended, Error> {
    let Some(raw) = engine.shared.cache.lock().get(K::KIND, &key.namespace, &key.name) else {
        forget(engine, key);
        return Ok(Ended::Well);
    };
    if !ready::<K>(engine) {
        // Every end of a list asks for all resources again.
        return Ok(Ended::Well);
    }
    let resource = match K::deserialize(&raw) {
        Ok(resource) => resource,
        Err(error) => return Ok(unparsable(engine, key, &raw, &error).await),
    };
    let references = references::fetch(engine, key, &resource).await?;
    let uid = resource.meta().uid.clone().unwrap_or_default();
    let mut seen = observe::<K>(engine, &uid, references);
    let mut plan = resource.plan(&seen, &engine.shared.parts.settings);
    if resource.meta().deletion_timestamp.is_some() {
        // Owner references do the cascade; what would be made now would come back to life under it.
        plan.children = Children::Unchanged;
    }
    let events = &engine.shared.events;
    if !engine.is_leader() {
        // What was left to tell is of a term that is over.
        events.forget(key);
        return Ok(Ended::Well);
    }
    if placing::is_news(engine, key, &resource, &plan.nodes, &seen.references) {
        // By now all is known that it depends on.
        engine.place(key.clone());
    }
    // What there is of them from now on, a status reads in what came of the plan.
    let children = std::mem::take(&mut seen.children);
    let done = match apply::apply(engine, key, &resource, &uid, &plan, children).await? {
        Outcome::Done(done) => done,
        Outcome::Begun(wait) => return Ok(Ended::Again(wait)),
        Outcome::Outdated(Outdated::OwnerGone) => return Ok(Ended::Well),
        Outcome::Outdated(Outdated::OwnerNewer) => return Ok(Ended::Again(BEHIND)),
    };
    let well = done.applied.failures.is_empty();
    // What was done is told even if the status cannot be written now: the next pass finds it done and has no news.
    if done.wrote {
        events.leave(key, &raw, &plan.events);
    }
    let news = status::news(engine, key, &resource, &raw, &seen, &plan, &done.applied);
    if news.as_ref().is_some_and(News::has_its_turn) {
        // It waits with what else is left, or as the first of it.
        events.leave(key, &raw, &[]);
    }
    if well
        && let Some(since) = events.left_since(key)
        && engine.others_come_before(key, since)
    {
        return Ok(Ended::AfterOthers(since));
    }
    events.publish_left(key).await;
    let told = status::write(engine, key, &raw, news).await?;
    if told == Told::Now && !done.wrote {
        events.publish(&raw, &plan.events).await;
    }
    Ok(look_again(engine, key, well, told, plan.again))
}

/// When a resource is to be looked at again, of which the children are well or not.
fn look_again(engine: &Engine, key: &ResourceKey, well: bool, told: Told, planned: Option<Duration>) -> Ended {
    let now = Instant::now();
    let planned = planned.map(|after| after.max(Duration::from_millis(100)));
    match (well, told, planned) {
        (true, Told::Later(after), _) => {
            if let Some(planned) = planned {
                engine.ask_at(key.clone(), now + planned);
            }
            Ended::AfterOthers(now + after)
        }
        (true, _, Some(planned)) => Ended::Again(planned),
        (true, _, None) => Ended::Well,
        (false, Told::Later(after), _) => {
            // The status does not wait for the next try.
            engine.ask_at(key.clone(), now + after);
            Ended::Failed
        }
        (false, _, _) => Ended::Failed,
    }
}

/// Whether every kind that the decision looks at has been listed: a decision from half a picture would make twice what
/// it does not see.
pub(crate) fn ready<K: Kind>(engine: &Engine) -> bool {
    let Some(driver) = engine.shared.drivers.get(&K::KIND) else {
        return false;
    };
    let cache = engine.shared.cache.lock();
    driver.watched().into_iter().all(|kind| cache.listed(kind))
}

fn forget(engine: &Engine, key: &ResourceKey) {
    engine.shared.named.lock().set(key, BTreeSet::new());
    engine.shared.status_written.forget(key);
    engine.shared.events.forget(key);
    engine.shared.addresses.forget(key);
}

/// A resource that does not parse keeps its children and its objects on nodes, and says so where its user looks.
async fn unparsable(engine: &Engine, key: &ResourceKey, raw: &Value, error: &serde_json::Error) -> Ended {
    tracing::warn!(kind = key.kind.kind, namespace = key.namespace, name = key.name, %error, "the resource does not parse");
    engine.shared.parts.metrics.failed(key.kind.kind, "unparsable");
    if engine.is_leader() {
        let message = format!("the resource does not parse and is left as it is: {error}");
        let event = Event {
            type_: EventType::Warning,
            reason: "Unparsable",
            message,
        };
        engine.shared.events.publish(raw, &[event]).await;
    }
    Ended::Well
}

/// What belongs to the resource: its own children by controller owner, and the pods below these.
pub(crate) fn observe<K: Kind>(engine: &Engine, uid: &str, references: References) -> Observed {
    let (children, below): (Vec<_>, Vec<_>) = engine
        .shared
        .cache
        .lock()
        .belonging_to(uid)
        .into_iter()
        .partition(|live| cache::controller_of(&live.object).is_some_and(|(_, _, owner)| owner == uid));
    let children = children
        .into_iter()
        .filter(|live| K::CHILDREN.contains(&live.kind))
        .collect();
    let pods = below.into_iter().filter(|live| live.kind == ObjectKind::POD).collect();
    Observed {
        children,
        pods,
        references,
        now: engine.now(),
    }
}
