//! What follows from a write without anyone asking: definitions are served, and those that are on their way out take
//! their objects along.
//!
//! In Kubernetes loops within the API server do this a moment later; here it is done before the request is answered.
//! Namespaces are emptied by a controller, there as here.

use serde_json::Value;

use super::{
    crd::{self, CLEANUP},
    object::{finalizers, is_terminating, map, set_meta},
    options::DeleteOptions,
    request::{RequestInfo, Verb},
    resource::Resource,
    state::{Call, State},
    store::Key,
};

/// The table of namespaces.
const NAMESPACES: &str = "namespaces.";

impl State {
    /// Does what a write to an object of a resource entails.
    pub(super) fn follow_up(&mut self, call: &Call<'_>, name: &str) {
        if &**call.table() == crd::TABLE {
            self.establish(name);
            self.empty_definition(name);
        } else if call.resource.custom && call.request.verb != Verb::Create {
            let definition = format!("{}.{}", call.resource.names.plural, call.resource.names.group);
            self.empty_definition(&definition);
        }
    }

    fn empty_definition(&mut self, name: &str) {
        let key = Key::new("", name);
        let Some(definition) = self.store.get(crd::TABLE, &key).cloned() else {
            return;
        };
        let mut kept = finalizers(&definition.value);
        if !is_terminating(&definition.value) || !kept.iter().any(|finalizer| finalizer == CLEANUP) {
            return;
        }
        let resources = crd::resources(&definition.value);
        if let Some(resource) = resources.first() {
            self.delete_all(resource);
            if self.store.list(&resource.table, None, None).next().is_some() {
                return;
            }
        }
        kept.retain(|finalizer| finalizer != CLEANUP);
        for resource in resources {
            self.registry.remove(&resource.names.group, &resource.names.plural);
            self.hang_up(&resource.table);
        }
        if kept.is_empty() {
            self.remove(&crd::TABLE.into(), &key);
        } else {
            let mut definition = definition.value.clone();
            set_meta(&mut definition, "finalizers", Some(kept.into()));
            self.store.put(&crd::TABLE.into(), key, definition);
        }
    }

    /// Asks all objects of a resource to go.
    fn delete_all(&mut self, resource: &Resource) {
        let keys: Vec<Key> = self
            .store
            .list(&resource.table, None, None)
            .filter(|(_, object)| !is_terminating(&object.value))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            let request = RequestInfo {
                user: "system:apiserver".into(),
                verb: Verb::Delete,
                apply: false,
                group: resource.names.group.clone(),
                version: resource.names.version.clone(),
                resource: resource.names.plural.clone(),
                subresource: String::new(),
                namespace: key.namespace,
                name: key.name,
                dry_run: false,
            };
            // What cannot go now goes when its finalizers are gone; that write comes by here again.
            let _ = self.delete(
                &Call {
                    resource,
                    request: &request,
                },
                &DeleteOptions::default(),
            );
        }
    }
}

/// What the deletion of a namespace or a definition adds to the object, beside the usual marks.
pub(super) fn mark_for_emptying(table: &str, object: &mut Value, now: Value) {
    if table == NAMESPACES {
        super::object::child(map(object), "status").insert("phase".into(), "Terminating".into());
    } else if table == crd::TABLE {
        let mut kept = finalizers(object);
        if !kept.iter().any(|finalizer| finalizer == CLEANUP) {
            kept.push(CLEANUP.into());
        }
        set_meta(object, "finalizers", Some(kept.into()));
        let why = (
            "InstanceDeletionPending",
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        );
        crd::set_condition(object, "Terminating", "True", why, now);
    }
}

/// Whether an object is there for good: the namespaces that Kubernetes itself lives in.
pub(super) fn is_kept(table: &str, name: &str) -> bool {
    table == NAMESPACES && matches!(name, "default" | "kube-public" | "kube-system")
}

/// Whether an object is emptied before it goes.
pub(super) fn is_emptied(table: &str) -> bool {
    table == NAMESPACES || table == crd::TABLE
}
