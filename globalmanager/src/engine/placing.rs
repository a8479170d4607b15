//! What resources place on nodes: told to the hub as soon as the cache knows of a change, without waiting for a pass. A
//! pass waits for the API server, for its turn among others, and for its own resource's last pass; news for a node does not.
//!
//! One task places, one resource after the other and each from the cache alone, so that nothing older ever follows what is
//! newer. A pass that plans anything else than nodes are told asks for it once more.

use std::time::Duration;

use base64::Engine as _;
use serde_json::Value;
use skerry_workloads::{Kind, NodePart, Nodes, References};
use tokio::time::Instant;

use super::{Credential, Engine, Placement, ResourceKey, pass, queue::Ended, references};

/// When a pass is to read what had not been read, unless one does so earlier.
const UNREAD: Duration = Duration::from_secs(1);

/// Places what is asked for, for ever.
pub(crate) async fn run(engine: &Engine) {
    loop {
        let next = engine.shared.placing.lock().next(Instant::now());
        let Some(key) = next else {
            engine.shared.to_place.notified().await;
            continue;
        };
        let (engine_too, what) = (engine.clone(), key.clone());
        // As a task, so that a defect in a kind's decision silences one resource and not all of them.
        let placed = tokio::spawn(async move {
            if let Some(driver) = engine_too.shared.drivers.get(&what.kind) {
                driver.place(&engine_too, &what);
            }
        });
        if let Err(error) = placed.await {
            tracing::error!(kind = key.kind.kind, namespace = key.namespace, name = key.name, %error,
                "nodes could not be told what they hold of it");
            engine.shared.parts.metrics.failed(key.kind.kind, "placing");
        }
        engine.shared.placing.lock().done(key, Ended::Well, Instant::now(), 0.0);
    }
}

/// Tells the hub what a resource of kind `K` places on nodes, as far as the cache knows all that this depends on. Where it
/// does not, a pass reads what is missing, and asks again.
pub(crate) fn place<K: Kind>(engine: &Engine, key: &ResourceKey) {
    let raw = engine.shared.cache.lock().get(K::KIND, &key.namespace, &key.name);
    let Some(raw) = raw else {
        // No matter what else is unknown yet: nothing else will come back to a resource that is gone.
        return engine.shared.parts.nodes.owner_gone(key);
    };
    if !pass::ready::<K>(engine) || !engine.is_leader() || !listed_in_this_term::<K>(engine) {
        return;
    }
    // One that does not parse keeps its objects on nodes; the pass says so to its user.
    let Ok(resource) = serde_json::from_value::<K>(raw) else {
        return;
    };
    if resource.meta().deletion_timestamp.is_some() {
        return;
    }
    let Some(references) = references::known(engine, &key.namespace, &resource) else {
        // A pass may be reading it, or another one may have read an older version meanwhile.
        return engine.ask_at(key.clone(), Instant::now() + UNREAD);
    };
    let uid = resource.meta().uid.clone().unwrap_or_default();
    let seen = pass::observe::<K>(engine, &uid, references);
    let plan = resource.plan(&seen, &engine.shared.parts.settings);
    let Some(placement) = placement(plan.nodes, &seen.references) else {
        return;
    };
    let generation = resource.meta().generation.unwrap_or_default();
    engine.shared.parts.nodes.set(key, &uid, generation, placement);
}

/// Whether nodes are told anything else than this, which a pass has planned for the resource.
pub(crate) fn is_news<K: Kind>(
    engine: &Engine,
    key: &ResourceKey,
    resource: &K,
    nodes: &Nodes,
    references: &References,
) -> bool {
    let meta = resource.meta();
    let (uid, generation) = (
        meta.uid.as_deref().unwrap_or_default(),
        meta.generation.unwrap_or_default(),
    );
    let placement = placement(nodes.clone(), references);
    placement.is_some_and(|placement| !engine.shared.parts.nodes.holds(key, uid, generation, placement))
}

/// What is planned for nodes, with what they need to reach the data; nothing where they keep what they have.
fn placement(nodes: Nodes, references: &References) -> Option<Placement> {
    let Nodes::Exactly(parts) = nodes else { return None };
    let with_credential = |(node, part): (String, NodePart)| {
        let secret = part.credential.as_ref();
        let secret = secret.and_then(|secret| references.get(secret.kind, &secret.name));
        let credential = secret.map(credential);
        (node, (part, credential))
    };
    Some(parts.into_iter().map(with_credential).collect())
}

/// Whether everything that we drive and this depends on was listed since this process leads: what a standby knows may be
/// older than what nodes were told.
fn listed_in_this_term<K: Kind>(engine: &Engine) -> bool {
    let drivers = &engine.shared.drivers;
    let Some(driver) = drivers.get(&K::KIND) else {
        return false;
    };
    let cache = engine.shared.cache.lock();
    let mut kinds = driver.watched().into_iter();
    kinds.all(|kind| !drivers.contains_key(&kind) || cache.listed_by_leader(kind))
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
