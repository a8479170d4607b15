//! Who names which object, so that references heal; and the content of the Secrets that are named.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::Value;
use skerry_workloads::{ObjectKind, Reference};

use super::{ResourceKey, cache::Name};

/// Who names what, as of the last look at each resource.
#[derive(Debug, Default)]
pub(crate) struct Named {
    by: BTreeMap<(ObjectKind, Name), BTreeSet<ResourceKey>>,
    names: BTreeMap<ResourceKey, BTreeSet<Reference>>,
}

impl Named {
    /// Records what `key` names now; nothing where it is gone.
    pub(crate) fn set(&mut self, key: &ResourceKey, references: BTreeSet<Reference>) {
        for old in self.names.remove(key).unwrap_or_default() {
            let place = (old.kind, (key.namespace.clone(), old.name));
            if let Some(by) = self.by.get_mut(&place) {
                by.remove(key);
                if by.is_empty() {
                    self.by.remove(&place);
                }
            }
        }
        for new in &references {
            let place = (new.kind, (key.namespace.clone(), new.name.clone()));
            self.by.entry(place).or_default().insert(key.clone());
        }
        if !references.is_empty() {
            self.names.insert(key.clone(), references);
        }
    }

    /// Adds one object to what `key` names, until that is recorded anew.
    pub(crate) fn also(&mut self, key: &ResourceKey, reference: Reference) {
        let place = (reference.kind, (key.namespace.clone(), reference.name.clone()));
        self.by.entry(place).or_default().insert(key.clone());
        self.names.entry(key.clone()).or_default().insert(reference);
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

    /// The Secret's content at (or after) the `version` that the watch showed; `None` where it is gone by now.
    pub(crate) async fn content(&self, name: &Name, version: &str) -> Result<Option<Value>, kube::Error> {
        if let Some((known, content)) = self.known.lock().get(name)
            && known == version
        {
            return Ok(Some(content.clone()));
        }
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &name.0);
        let found = api.get_opt(&name.1).await?;
        let content = found.map(|mut secret| {
            secret.metadata.managed_fields = None;
            serde_json::to_value(secret).unwrap_or_default()
        });
        let mut known = self.known.lock();
        match &content {
            Some(content) => known.insert(name.clone(), (version.to_owned(), content.clone())),
            None => known.remove(name),
        };
        Ok(content)
    }

    /// Forgets a Secret that is gone.
    pub(crate) fn forget(&self, name: &Name) {
        self.known.lock().remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
