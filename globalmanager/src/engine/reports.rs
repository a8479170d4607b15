//! Turns what nodes report into status, through a field manager of its own; an answer is given only when the API server
//! has it, or when it is refused for good.

use kube::{
    Api,
    api::{Patch, PatchParams},
    core::DynamicObject,
};
use serde_json::{Map, Value, json};
use skerry_crds::names;
use skerry_edge::ReportId;
use skerry_workloads::{ObjectKind, Payload, Report, StatusChange};

use super::{
    Engine, ResourceKey,
    fold::{Folded, fold},
    trim,
    watches::api_resource,
};

/// What became of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is in the API server (or says what is there already).
    Accepted,
    /// It never will be; the reason is for the node's log.
    Refused(String),
    /// Not now: the node keeps it and sends it again.
    Later(String),
    /// The API server refuses what several reports come to together; which one is at fault shows when they are taken
    /// apart.
    Apart(String),
}

/// What a node says about a resource of this uid.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeReport {
    /// The resource's uid as the node holds it.
    pub uid: String,
    /// What tells it from any other report; nothing of nodes that do not say it, whose reports are carried out as often as
    /// they come.
    pub id: Option<ReportId>,
    /// What.
    pub report: Report,
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
        let report = NodeReport {
            uid: uid.to_owned(),
            id: None,
            report: Report {
                node: node.to_owned(),
                payload,
            },
        };
        let (taken, _) = self.take_reports(kind_lower, namespace, name, vec![report]).await;
        let unknown = || Taken::Later("it is not known what became of it".to_owned());
        taken.into_iter().next().unwrap_or_else(unknown)
    }

    /// Takes reports about a resource of kind `kind_lower`, in this order, with one write of each status that they change;
    /// what became of each, and whether the API server was asked for anything. Reports on one resource have to come one
    /// call after the other: each is computed from the state that those before it left.
    pub async fn take_reports(
        &self,
        kind_lower: &str,
        namespace: &str,
        name: &str,
        reports: Vec<NodeReport>,
    ) -> (Vec<Taken>, bool) {
        let all = |taken: Taken| vec![taken; reports.len()];
        let mut kinds = self.shared.drivers.iter();
        let Some((&kind, driver)) = kinds.find(|(kind, _)| kind.kind.eq_ignore_ascii_case(kind_lower)) else {
            return (all(Taken::Refused(format!("there is no kind {kind_lower:?}"))), false);
        };
        if !self.is_leader() {
            let reason = "this manager does not hold the lease".to_owned();
            return (all(Taken::Later(reason)), false);
        }
        // What a standby knows may be older than what nodes were answered.
        if !self.shared.cache.lock().listed_by_leader(kind) {
            return (all(Taken::Later(format!("{} is not listed yet", kind.plural))), false);
        }
        let key = ResourceKey {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let (resource, mut asked) = match self.reported_on(&key, &reports).await {
            Ok(found) => found,
            Err(error) => return (all(Taken::Later(error.to_string())), true),
        };
        let uid = resource.as_ref().and_then(uid_of).map(str::to_owned);
        let mut taken: Vec<_> = reports
            .iter()
            .map(|NodeReport { uid: about, .. }| {
                let gone = || Taken::Refused(format!("{} {namespace}/{name} of uid {about} is gone", kind.kind));
                (uid.as_ref() != Some(about)).then(gone)
            })
            .collect();
        if let Some(resource) = resource {
            let (held, reports): (Vec<_>, Vec<_>) = taken
                .iter_mut()
                .zip(reports)
                .filter(|(taken, _)| taken.is_none())
                .unzip();
            let Folded { without, changes } = fold(driver.as_ref(), &key, resource, &reports, self.now());
            let together = without.iter().filter(|without| without.is_none()).count();
            let (written, wrote) = self.write_all(&key, &changes, together).await;
            asked |= wrote;
            for (taken, without) in held.into_iter().zip(without) {
                *taken = Some(without.unwrap_or_else(|| written.clone()));
            }
        }
        (
            taken
                .into_iter()
                .map(|taken| taken.unwrap_or(Taken::Accepted))
                .collect(),
            asked,
        )
    }

    /// The resource that reports are about, and whether the API server had to be asked. What is refused is lost, and what
    /// is known may lag behind what another manager placed on the node; so a resource is gone only when the API server
    /// says so.
    async fn reported_on(
        &self,
        key: &ResourceKey,
        reports: &[NodeReport],
    ) -> Result<(Option<Value>, bool), kube::Error> {
        let ResourceKey { kind, namespace, name } = key;
        let known = self.shared.cache.lock().get(*kind, namespace, name);
        let uid = known.as_ref().and_then(uid_of);
        if reports.iter().all(|report| uid == Some(report.uid.as_str())) {
            return Ok((known, false));
        }
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.shared.parts.client.clone(), namespace, &api_resource(*kind));
        let found = api.get_opt(name).await?.map(|object| trim::trim(*kind, object));
        if let Some(found) = &found {
            self.learn(*kind, found, false);
        }
        Ok((found, true))
    }

    /// Writes what this many reports come to; what became of all of them, and whether anything was sent.
    async fn write_all(&self, key: &ResourceKey, changes: &[StatusChange], together: usize) -> (Taken, bool) {
        let mut wrote = false;
        for change in changes {
            let (taken, sent) = self.write_reported(key, change).await;
            wrote |= sent;
            match taken {
                Taken::Accepted => {}
                Taken::Refused(reason) if together > 1 => return (Taken::Apart(reason), wrote),
                other => return (other, wrote),
            }
        }
        (Taken::Accepted, wrote)
    }

    /// Writes a change where it says something new; whether it had to be sent.
    async fn write_reported(&self, key: &ResourceKey, change: &StatusChange) -> (Taken, bool) {
        let StatusChange { kind, name, status } = change;
        let namespace = key.namespace.as_str();
        let (current, listed) = {
            let cache = self.shared.cache.lock();
            (cache.get(*kind, namespace, name), cache.listed_by_leader(*kind))
        };
        if !listed {
            return (Taken::Later(format!("{} is not listed yet", kind.plural)), false);
        }
        let Some(current) = current else {
            // A Model that the job names was deleted: what the job's own status says is not held up by that.
            return (Taken::Accepted, false);
        };
        let is_own = (*kind, name) == (key.kind, &key.name);
        if self.reported(*kind, &current) == *status {
            return (Taken::Accepted, false);
        }
        let body = json!({
            "apiVersion": kind.api_version(),
            "kind": kind.kind,
            "metadata": {"name": name, "namespace": namespace, "uid": uid_of(&current).unwrap_or_default()},
            "status": status,
        });
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.shared.parts.client.clone(), namespace, &api_resource(*kind));
        let taken = match api
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
            // The same, before the watch has told.
            Err(kube::Error::Api(status)) if status.code == 404 && !is_own => Taken::Accepted,
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 404 | 422) => {
                Taken::Refused(status.message.clone())
            }
            Err(error) => Taken::Later(error.to_string()),
        };
        (taken, true)
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

fn uid_of(object: &Value) -> Option<&str> {
    object.pointer("/metadata/uid").and_then(Value::as_str)
}
