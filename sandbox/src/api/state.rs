//! The server's state, and what the verbs share. Synchronous: one request at a time, under one lock.

use std::{collections::HashMap, sync::Arc};

use http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    builtin::Addresses,
    clock::Clock,
    ids::Ids,
    object::meta,
    registry::Registry,
    request::{RequestInfo, Verb},
    resource::Resource,
    status::{ApiError, GroupResource},
    store::{Key, Object, Store, TableName},
    watch::{GONE, Signal},
};

/// The table of services, to which something is given out.
const SERVICES: &str = "services.";

/// What a verb answers.
#[derive(Debug)]
pub(super) enum Reply {
    /// One object.
    Object {
        code: StatusCode,
        object: Arc<Object>,
        warnings: Vec<String>,
    },
    /// A collection.
    List {
        items: Vec<Arc<Object>>,
        revision: u64,
        token: Option<String>,
        remaining: Option<usize>,
    },
    /// A `Status`, or another object that is not stored.
    Plain { code: StatusCode, body: Value },
}

impl Reply {
    pub(super) fn ok(object: Arc<Object>) -> Self {
        Self::Object {
            code: StatusCode::OK,
            object,
            warnings: Vec::new(),
        }
    }
}

/// Everything that the server remembers.
pub(super) struct State {
    pub(super) store: Store,
    pub(super) registry: Registry,
    pub(super) ids: Ids,
    pub(super) clock: Clock,
    pub(super) addresses: Addresses,
    /// Wakes the watches of a table.
    signals: HashMap<TableName, watch::Sender<Signal>>,
}

/// One request, its resource found.
pub(super) struct Call<'a> {
    pub(super) resource: &'a Resource,
    pub(super) request: &'a RequestInfo,
}

impl Call<'_> {
    pub(super) fn key(&self) -> Key {
        Key::new(self.request.namespace.as_str(), self.request.name.as_str())
    }

    pub(super) fn table(&self) -> &TableName {
        &self.resource.table
    }

    /// Where Kubernetes stores the object, as some of its messages tell.
    pub(super) fn storage_path(&self) -> String {
        let names = &self.resource.names;
        let folder = match names.plural.as_str() {
            plural if self.resource.custom => format!("{}/{plural}", names.group),
            "services" => "services/specs".into(),
            "endpoints" => "services/endpoints".into(),
            "nodes" => "minions".into(),
            "customresourcedefinitions" => "apiextensions.k8s.io/customresourcedefinitions".into(),
            plural => plural.to_owned(),
        };
        let request = self.request;
        let namespace = if names.namespaced {
            format!("{}/", request.namespace)
        } else {
            String::new()
        };
        format!("/registry/{folder}/{namespace}{}", request.name)
    }

    pub(super) fn not_found(&self, name: &str) -> ApiError {
        ApiError::not_found(&self.resource.name(), name)
    }
}

impl State {
    pub(super) fn new(clock: Clock, seed: u64, window: usize, service_block: u8) -> Self {
        let mut state = Self {
            store: Store::new(window),
            registry: Registry::builtin(),
            ids: Ids::seeded(seed),
            clock,
            signals: HashMap::new(),
            addresses: Addresses::new(service_block),
        };
        for name in ["default", "kube-system"] {
            state.seed_namespace(name);
        }
        state
    }

    fn seed_namespace(&mut self, name: &str) {
        let now = super::clock::seconds(self.clock.now());
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "uid": self.ids.uid(), "creationTimestamp": &now,
                "labels": {"kubernetes.io/metadata.name": name},
                "managedFields": [{"manager": "kube-apiserver", "operation": "Update", "apiVersion": "v1",
                    "time": &now, "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:kubernetes.io/metadata.name": {}}}}}]},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
        });
        self.store.put(&"namespaces.".into(), Key::new("", name), namespace);
    }

    /// What wakes a watch of this table.
    pub(super) fn signal(&mut self, table: &TableName) -> watch::Receiver<Signal> {
        self.signals
            .entry(table.clone())
            .or_insert_with(|| watch::channel(0).0)
            .subscribe()
    }

    /// Wakes the watches of the tables that were written.
    pub(super) fn wake(&mut self) {
        let revision = self.store.revision();
        for table in self.store.take_touched() {
            if let Some(signal) = self.signals.get(&table) {
                signal.send_replace(revision);
            }
        }
    }

    /// Ends the watches of a table.
    pub(super) fn hang_up(&mut self, table: &TableName) {
        if let Some(signal) = self.signals.remove(table) {
            signal.send_replace(GONE);
        }
    }

    /// The resource of a request, if the verb is served; `None` where Kubernetes shows a page rather than a `Status`.
    pub(super) fn served(&self, request: &RequestInfo) -> Result<Option<Arc<Resource>>, ApiError> {
        let RequestInfo {
            group,
            version,
            resource,
            subresource,
            verb,
            ..
        } = request;
        let Some(found) = self.registry.get(group, version, resource) else {
            let known = self.registry.is_builtin_version(group, version);
            return if known {
                Err(ApiError::no_such_resource())
            } else {
                Ok(None)
            };
        };
        let scoped = found.names.namespaced != request.namespace.is_empty();
        let spanning = matches!(verb, Verb::List | Verb::Watch) && request.namespace.is_empty();
        let verbs = if subresource.is_empty() {
            Some(&found.names.verbs)
        } else {
            found
                .names
                .subresources
                .iter()
                .find(|known| known.name == *subresource)
                .map(|known| &known.verbs)
        };
        match verbs {
            Some(verbs) if scoped || spanning => {
                let served = verbs.iter().any(|served| served == verb.as_str());
                if served {
                    Ok(Some(found.clone()))
                } else {
                    Err(ApiError::method_not_allowed())
                }
            }
            // Of all namespaces at once one can only read.
            Some(_) if !scoped && found.names.namespaced && matches!(verb, Verb::Create | Verb::DeleteCollection) => {
                Err(ApiError::method_not_allowed())
            }
            _ if found.custom && !subresource.is_empty() => Err(ApiError::not_found(&found.name(), &request.name)),
            _ if found.custom => Ok(None),
            _ => Err(ApiError::no_such_resource()),
        }
    }

    /// Removes an object, and takes back what was given out to it.
    pub(super) fn remove(&mut self, table: &TableName, key: &Key) -> Option<Arc<Object>> {
        let last = self.store.remove(table, key)?;
        if &**table == SERVICES {
            self.addresses.note(Some(&last.value), None);
        }
        Some(last)
    }

    /// Stores an object, and notes what was given out to it.
    pub(super) fn put(&mut self, table: &TableName, key: Key, object: Value) -> Arc<Object> {
        if &**table == SERVICES {
            let old = self.store.get(table, &key);
            self.addresses.note(old.map(|old| &old.value), Some(&object));
        }
        self.store.put(table, key, object)
    }

    /// The object of a request.
    pub(super) fn existing(&self, call: &Call<'_>) -> Result<Arc<Object>, ApiError> {
        let found = self.store.get(call.table(), &call.key());
        found.cloned().ok_or_else(|| call.not_found(&call.request.name))
    }

    /// A namespace takes new objects if it exists and is not on its way out.
    pub(super) fn check_namespace(&self, call: &Call<'_>, name: &str) -> Result<(), ApiError> {
        if !call.resource.names.namespaced {
            return Ok(());
        }
        let namespace = &call.request.namespace;
        let namespaces = GroupResource {
            group: String::new(),
            resource: "namespaces".into(),
        };
        let Some(found) = self.store.get("namespaces.", &Key::new("", namespace.as_str())) else {
            return Err(ApiError::not_found(&namespaces, namespace));
        };
        if meta(&found.value, "deletionTimestamp").is_empty() {
            return Ok(());
        }
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let cause = json!({"reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"), "field": "metadata.namespace"});
        Err(ApiError::forbidden(&call.resource.name(), name, &why).with_detail("causes", json!([cause])))
    }
}
