//! One pass over one resource: fetch, plan, apply, status. A process killed between any two writes of it leaves a state
//! that the next pass completes.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base64::Engine as _;
use serde_json::Value;
use skerry_workloads::{
    Children, Event, EventType, Kind, Lookup, Nodes, ObjectKind, Observed, Plan, Reference, References,
};
use tokio::time::Instant;

use super::{
    Credential, Engine, ResourceKey,
    apply::{self, Outcome, Outdated},
    cache,
    queue::Ended,
    status::{self, Told},
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
        // No matter what else is unknown yet: nothing else will come back to a resource that is gone.
        forget(engine, key);
        return Ok(Ended::Well);
    };
    if !ready::<K>(engine) {
        // Every end of a list asks for all resources again.
        return Ok(Ended::Well);
    }
    let resource: K = match serde_json::from_value(raw.clone()) {
        Ok(resource) => resource,
        Err(error) => return Ok(unparsable(engine, key, &raw, &error).await),
    };
    let references = fetch(engine, key, &resource).await?;
    let uid = resource.meta().uid.clone().unwrap_or_default();
    let seen = observe::<K>(engine, &uid, references);
    let mut plan = resource.plan(&seen, &engine.shared.parts.settings);
    if resource.meta().deletion_timestamp.is_some() {
        // Owner references do the cascade; what would be made now would come back to life under it.
        plan.children = Children::Unchanged;
        plan.nodes = Nodes::Unchanged;
    }
    if !engine.is_leader() {
        return Ok(Ended::Well);
    }
    place(engine, key, &resource, &uid, &plan, &seen.references);
    let done = match apply::apply(engine, &resource, &uid, &plan, seen.children.clone()).await? {
        Outcome::Done(done) => done,
        Outcome::Outdated(Outdated::OwnerGone) => return Ok(Ended::Well),
        Outcome::Outdated(Outdated::OwnerNewer) => return Ok(Ended::Again(BEHIND)),
    };
    // What was done is told even if the status cannot be written now: the next pass finds it done and has no news.
    if done.wrote {
        engine.shared.events.publish(&raw, &plan.events).await;
    }
    let told = status::write(engine, key, &resource, &raw, &seen, &plan, &done.applied).await?;
    if told == Told::Now && !done.wrote {
        engine.shared.events.publish(&raw, &plan.events).await;
    }
    if let Told::Later(after) = told {
        // Also where something failed: the status does not wait for the next try.
        engine.ask_at(key.clone(), Instant::now() + after);
    }
    Ok(match (done.applied.failures.is_empty(), plan.again) {
        (false, _) => Ended::Failed,
        (true, Some(after)) => Ended::Again(after.max(Duration::from_millis(100))),
        (true, None) => Ended::Well,
    })
}

/// Whether every kind that the decision looks at has been listed: a decision from half a picture would make twice what
/// it does not see.
fn ready<K: Kind>(engine: &Engine) -> bool {
    let Some(driver) = engine.shared.drivers.get(&K::KIND) else {
        return false;
    };
    let cache = engine.shared.cache.lock();
    driver.watched().into_iter().all(|kind| cache.listed(kind))
}

fn forget(engine: &Engine, key: &ResourceKey) {
    engine.shared.named.lock().set(key, BTreeSet::new());
    engine.shared.status_written.forget(key);
    engine.shared.parts.nodes.owner_gone(key);
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

/// Looks up what the resource names, and what that names, until nothing new is named.
async fn fetch<K: Kind>(engine: &Engine, key: &ResourceKey, resource: &K) -> Result<References, Error> {
    let mut found = References::default();
    loop {
        let named = resource.references(&found);
        engine.shared.named.lock().set(key, named.clone());
        let new: Vec<_> = named
            .into_iter()
            .filter(|reference| !found.0.contains_key(reference))
            .collect();
        if new.is_empty() {
            return Ok(found);
        }
        for reference in new {
            let lookup = look_up(engine, &key.namespace, &reference).await?;
            found.0.insert(reference, lookup);
        }
    }
}

async fn look_up(engine: &Engine, namespace: &str, reference: &Reference) -> Result<Lookup, Error> {
    let name = (namespace.to_owned(), reference.name.clone());
    let known = engine
        .shared
        .cache
        .lock()
        .get(reference.kind, namespace, &reference.name);
    let found = match known {
        Some(secret) if reference.kind == ObjectKind::SECRET => {
            let version = secret
                .pointer("/metadata/resourceVersion")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let content = engine.shared.secrets.content(&name, version).await;
            content.map_err(at(format!("reading Secret {}/{}", name.0, name.1)))?
        }
        known => known,
    };
    if found.is_none() && reference.kind == ObjectKind::SECRET {
        engine.shared.secrets.forget(&name);
    }
    Ok(found.map_or(Lookup::Missing, Lookup::Found))
}

/// What belongs to the resource: its own children by controller owner, and the pods below these.
fn observe<K: Kind>(engine: &Engine, uid: &str, references: References) -> Observed {
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

/// Hands the nodes' parts to the hub.
fn place<K: Kind>(engine: &Engine, key: &ResourceKey, resource: &K, uid: &str, plan: &Plan, references: &References) {
    let Nodes::Exactly(parts) = &plan.nodes else { return };
    let parts: BTreeMap<_, _> = parts
        .iter()
        .map(|(node, part)| {
            let secret = part
                .credential
                .as_ref()
                .and_then(|secret| references.get(secret.kind, &secret.name));
            (node.clone(), (part.clone(), secret.map(credential)))
        })
        .collect();
    engine
        .shared
        .parts
        .nodes
        .set(key, uid, resource.meta().generation.unwrap_or_default(), parts);
}

/// A Secret's annotations and decoded data, as Sedna hands them to its local controllers.
fn credential(secret: &Value) -> Credential {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let entries = |pointer| secret.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    let annotations = entries("/metadata/annotations").filter_map(|(key, value)| Some((key.clone(), text(value)?)));
    let data = entries("/data").filter_map(|(key, value)| {
        let bytes = base64::engine::general_purpose::STANDARD.decode(value.as_str()?).ok()?;
        Some((key.clone(), String::from_utf8(bytes).ok()?))
    });
    let name = secret
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    Credential {
        secret: name.to_owned(),
        fields: annotations.chain(data).collect(),
    }
}
