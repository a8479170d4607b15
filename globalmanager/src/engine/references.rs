//! Who names which object, so that references heal; and the content of the Secrets that are named.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::Value;
use skerry_workloads::{Kind, Lookup, ObjectKind, Reference, References};

use super::{
    Engine, ResourceKey,
    cache::Name,
    pass::{self, at},
};

/// Looks up what the resource names, and what that names, until nothing new is named; reads what is not known.
pub(crate) async fn fetch<K: Kind>(
    engine: &Engine,
    key: &ResourceKey,
    resource: &K,
) -> Result<References, pass::Error> {
    let mut found = References::default();
    loop {
        let named = resource.references(&found);
        engine.shared.named.lock().set(key, named.clone());
        let new = unknown(named, &found);
        if new.is_empty() {
            return Ok(found);
        }
        for reference in new {
            let lookup = match look_up(engine, &key.namespace, &reference) {
                Ok(lookup) => lookup,
                Err(unread) => unread.read(&engine.shared.secrets).await?,
            };
            found.0.insert(reference, lookup);
        }
    }
}

/// The same from what is known; nothing where something has to be read first.
pub(crate) fn known<K: Kind>(engine: &Engine, namespace: &str, resource: &K) -> Option<References> {
    let mut found = References::default();
    loop {
        let new = unknown(resource.references(&found), &found);
        if new.is_empty() {
            return Some(found);
        }
        for reference in new {
            let lookup = look_up(engine, namespace, &reference).ok()?;
            found.0.insert(reference, lookup);
        }
    }
}

fn unknown(named: BTreeSet<Reference>, found: &References) -> Vec<Reference> {
    let named = named.into_iter();
    named.filter(|reference| !found.0.contains_key(reference)).collect()
}

/// A Secret of which a watch has shown a version that was not read.
struct Unread {
    name: Name,
    version: String,
}

impl Unread {
    async fn read(self, secrets: &Secrets) -> Result<Lookup, pass::Error> {
        let Self { name, version } = self;
        let content = secrets.read(&name, version).await;
        let content = content.map_err(at(format!("reading Secret {}/{}", name.0, name.1)))?;
        Ok(content.map_or(Lookup::Missing, Lookup::Found))
    }
}

fn look_up(engine: &Engine, namespace: &str, reference: &Reference) -> Result<Lookup, Unread> {
    let name = (namespace.to_owned(), reference.name.clone());
    let known = engine
        .shared
        .cache
        .lock()
        .get(reference.kind, namespace, &reference.name);
    let Some(known) = known else {
        if reference.kind == ObjectKind::SECRET {
            engine.shared.secrets.forget(&name);
        }
        return Ok(Lookup::Missing);
    };
    if reference.kind != ObjectKind::SECRET {
        return Ok(Lookup::Found(known));
    }
    let version = known.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    let version = version.unwrap_or_default().to_owned();
    match engine.shared.secrets.known(&name, &version) {
        Some(content) => Ok(Lookup::Found(content)),
        None => Err(Unread { name, version }),
    }
}

/// Who names what, as of the last look at each resource.
#[derive(Debug, Default)]
pub(crate) struct Named {
    /// In order. Lists, since a set of a few takes ten times the room: every child is named once, when it is made.
    by: BTreeMap<(ObjectKind, Name), Vec<ResourceKey>>,
    names: BTreeMap<ResourceKey, Vec<Reference>>,
}

impl Named {
    /// Records what `key` names now; nothing where it is gone.
    pub(crate) fn set(&mut self, key: &ResourceKey, references: BTreeSet<Reference>) {
        for old in self.names.remove(key).unwrap_or_default() {
            let place = (old.kind, (key.namespace.clone(), old.name));
            if let Some(by) = self.by.get_mut(&place) {
                if let Ok(at) = by.binary_search(key) {
                    by.remove(at);
                }
                if by.is_empty() {
                    self.by.remove(&place);
                }
            }
        }
        for new in &references {
            self.add(key, new);
        }
        if !references.is_empty() {
            self.names.insert(key.clone(), references.into_iter().collect());
        }
    }

    /// Adds one object to what `key` names, until that is recorded anew.
    pub(crate) fn also(&mut self, key: &ResourceKey, reference: Reference) {
        self.add(key, &reference);
        let names = self.names.entry(key.clone()).or_default();
        if !names.contains(&reference) {
            names.push(reference);
        }
    }

    fn add(&mut self, key: &ResourceKey, reference: &Reference) {
        let place = (reference.kind, (key.namespace.clone(), reference.name.clone()));
        let by = self.by.entry(place).or_default();
        if let Err(at) = by.binary_search(key) {
            if by.is_empty() {
                by.reserve_exact(1);
            }
            by.insert(at, key.clone());
        }
    }

    /// Whoever names this object.
    pub(crate) fn by(&self, kind: ObjectKind, namespace: &str, name: &str) -> Vec<ResourceKey> {
        let place = (kind, (namespace.to_owned(), name.to_owned()));
        self.by.get(&place).into_iter().flatten().cloned().collect()
    }
}

/// The content of named Secrets, read anew only where the watch showed another version.
pub(crate) struct Secrets {
    client: Client,
    known: Mutex<BTreeMap<Name, (String, Value)>>,
}

impl Secrets {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            known: Mutex::default(),
        }
    }

    /// The Secret's content, if it was read when the watch had shown this version.
    fn known(&self, name: &Name, version: &str) -> Option<Value> {
        let known = self.known.lock();
        let (_, content) = known.get(name).filter(|(read, _)| read == version)?;
        Some(content.clone())
    }

    /// Reads the Secret's content at (or after) the `version` that the watch showed; `None` where it is gone by now.
    async fn read(&self, name: &Name, version: String) -> Result<Option<Value>, kube::Error> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &name.0);
        let found = api.get_opt(&name.1).await?;
        let content = found.map(|mut secret| {
            secret.metadata.managed_fields = None;
            serde_json::to_value(secret).unwrap_or_default()
        });
        let mut known = self.known.lock();
        // Whoever asked later may have been answered sooner.
        let is_newer = known.get(name).is_none_or(|(read, _)| number(read) <= number(&version));
        match &content {
            Some(content) if is_newer => drop(known.insert(name.clone(), (version, content.clone()))),
            None if is_newer => drop(known.remove(name)),
            Some(_) | None => {}
        }
        Ok(content)
    }

    /// Forgets a Secret that is gone.
    fn forget(&self, name: &Name) {
        self.known.lock().remove(name);
    }
}

/// Versions of one object are ordered.
fn number(version: &str) -> u64 {
    version.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use kube::api::{DeleteParams, PostParams};
    use serde_json::json;
    use skerry_sandbox::ApiServer;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_read_that_took_longer_replaces_nothing_newer() {
        let api = ApiServer::new();
        let named = ("default".to_owned(), "s".to_owned());
        let secrets = Secrets::new(api.client());
        let made: Api<Secret> = Api::default_namespaced(api.client());
        let secret = serde_json::from_value(json!({"metadata": {"name": "s"}})).unwrap();
        made.create(&PostParams::default(), &secret).await.unwrap();
        secrets.read(&named, "10".to_owned()).await.unwrap();
        secrets.read(&named, "9".to_owned()).await.unwrap();
        assert!(secrets.known(&named, "10").is_some());
        made.delete("s", &DeleteParams::default()).await.unwrap();
        secrets.read(&named, "9".to_owned()).await.unwrap();
        assert!(secrets.known(&named, "10").is_some());
        secrets.read(&named, "10".to_owned()).await.unwrap();
        assert!(secrets.known(&named, "10").is_none());
    }

    fn key(name: &str) -> ResourceKey {
        ResourceKey {
            kind: ObjectKind::JOINT_INFERENCE_SERVICE,
            namespace: "ns".into(),
            name: name.into(),
        }
    }

    #[test]
    fn who_names_an_object_is_known_until_it_names_it_no_more() {
        let mut named = Named::default();
        let model = Reference::new(ObjectKind::MODEL, "m");
        named.set(&key("a"), [model.clone()].into());
        named.set(&key("b"), [model].into());
        assert_eq!(named.by(ObjectKind::MODEL, "ns", "m"), [key("a"), key("b")]);
        assert!(named.by(ObjectKind::MODEL, "other", "m").is_empty());
        named.set(&key("a"), BTreeSet::new());
        assert_eq!(named.by(ObjectKind::MODEL, "ns", "m"), [key("b")]);
        named.set(&key("b"), [Reference::new(ObjectKind::MODEL, "n")].into());
        assert!(named.by(ObjectKind::MODEL, "ns", "m").is_empty());
    }

    #[test]
    fn what_is_added_is_named_until_all_is_recorded_anew() {
        let mut named = Named::default();
        let model = Reference::new(ObjectKind::MODEL, "m");
        named.set(&key("a"), [model.clone()].into());
        named.also(&key("a"), Reference::new(ObjectKind::SERVICE, "s"));
        assert_eq!(named.by(ObjectKind::SERVICE, "ns", "s"), [key("a")]);
        assert_eq!(named.by(ObjectKind::MODEL, "ns", "m"), [key("a")]);
        named.set(&key("a"), [model].into());
        assert!(named.by(ObjectKind::SERVICE, "ns", "s").is_empty());
    }
}
