//! Turns what nodes report into status, through a field manager of its own; an answer is given only when the API server
//! has it, or when it is refused for good.

use std::{collections::BTreeMap, sync::Arc};

use kube::{
    Api,
    api::{Patch, PatchParams},
    core::DynamicObject,
};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use skerry_crds::names;
use skerry_workloads::{ObjectKind, Payload, Report, StatusChange};

use super::{Engine, ResourceKey, driver::Refused, trim, watches::api_resource};

/// One lock a resource: a report is computed from the state that the one before it left.
#[derive(Default)]
pub(crate) struct Locks(Mutex<BTreeMap<ResourceKey, Arc<tokio::sync::Mutex<()>>>>);

impl Locks {
    fn of(&self, key: &ResourceKey) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.0.lock();
        // Whoever holds or awaits a lock holds a clone of it.
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        locks.entry(key.clone()).or_default().clone()
    }
}

/// What became of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is in the API server (or says what is there already).
    Accepted,
    /// It never will be; the reason is for the node's log.
    Refused(String),
    /// Not now: the node keeps it and sends it again.
    Later(String),
}

impl Engine {
    /// Takes a report of `node` about the resource of kind `kind_lower` and this uid.
    pub async fn take_report(
        &self,
        node: &str,
        kind_lower: &str,
        namespace: &str,
        name: &str,
        uid: &str,
        payload: Payload,
    ) -> Taken {
        let Some(kind) = self
            .shared
            .drivers
            .keys()
            .copied()
            .find(|kind| kind.kind.eq_ignore_ascii_case(kind_lower))
        else {
            return Taken::Refused(format!("there is no kind {kind_lower:?}"));
        };
        let key = ResourceKey {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let lock = self.shared.reporting.of(&key);
        let _one_at_a_time = lock.lock().await;
        if !self.is_leader() {
            return Taken::Later("this manager does not hold the lease".to_owned());
        }
        if !self.shared.cache.lock().listed(kind) {
            return Taken::Later(format!("{} is not listed yet", kind.plural));
        }
        let resource = match self.reported_on(&key, uid).await {
            Ok(Some(resource)) => resource,
            Ok(None) => return Taken::Refused(format!("{} {namespace}/{name} of uid {uid} is gone", kind.kind)),
            Err(error) => return Taken::Later(error.to_string()),
        };
        let report = Report {
            node: node.to_owned(),
            payload,
        };
        let changes = match self
            .shared
            .drivers
            .get(&kind)
            .map(|driver| driver.report(&resource, &report, self.now()))
        {
            Some(Ok(changes)) => changes,
            Some(Err(Refused::ByKind(refusal))) => return Taken::Refused(refusal.to_string()),
            Some(Err(error @ Refused::Unparsable(_))) => return Taken::Later(error.to_string()),
            None => return Taken::Refused(format!("there is no kind {kind_lower:?}")),
        };
        for change in &changes {
            match self.write_reported(namespace, change).await {
                Taken::Accepted => {}
                other => return other,
            }
        }
        Taken::Accepted
    }

    /// The resource that a report is about. What is refused is lost, and what is known may lag behind what another
    /// manager placed on the node; so a resource is gone only when the API server says so.
    async fn reported_on(&self, key: &ResourceKey, uid: &str) -> Result<Option<Value>, kube::Error> {
        let ResourceKey { kind, namespace, name } = key;
        let is_it = |found: &Value| found.pointer("/metadata/uid").and_then(Value::as_str) == Some(uid);
        let known = self.shared.cache.lock().get(*kind, namespace, name);
        if known.as_ref().is_some_and(is_it) {
            return Ok(known);
        }
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.shared.parts.client.clone(), namespace, &api_resource(*kind));
        let found = api.get_opt(name).await?.map(|object| trim::trim(*kind, object));
        if let Some(found) = &found {
            self.learn(*kind, found, false);
        }
        Ok(found.filter(is_it))
    }

    async fn write_reported(&self, namespace: &str, change: &StatusChange) -> Taken {
        let StatusChange { kind, name, status } = change;
        let Some(current) = self.shared.cache.lock().get(*kind, namespace, name) else {
            // A Model that the job names was deleted: what the job's own status says is not held up by that.
            return Taken::Accepted;
        };
        if self.reported(*kind, &current) == *status {
            return Taken::Accepted;
        }
        let uid = current.pointer("/metadata/uid").cloned().unwrap_or_default();
        let body = json!({
            "apiVersion": kind.api_version(),
            "kind": kind.kind,
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "status": status,
        });
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.shared.parts.client.clone(), namespace, &api_resource(*kind));
        match api
            .patch_status(
                name,
                &PatchParams::apply(names::MANAGER_EDGE).force(),
                &Patch::Apply(&body),
            )
            .await
        {
            Ok(object) => {
                self.learn(*kind, &trim::trim(*kind, object), false);
                Taken::Accepted
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 404 | 422) => {
                Taken::Refused(status.message.clone())
            }
            Err(error) => Taken::Later(error.to_string()),
        }
    }

    /// What was reported so far. A change names the reported fields whole, so that what it leaves out goes.
    fn reported(&self, kind: ObjectKind, current: &Value) -> Map<String, Value> {
        let driver = self.shared.drivers.get(&kind);
        let fields = driver.map(|driver| driver.reported()).unwrap_or_default();
        let status = current.get("status").and_then(Value::as_object);
        let reported = status
            .into_iter()
            .flatten()
            .filter(|(key, _)| fields.contains(&key.as_str()));
        reported.map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}
