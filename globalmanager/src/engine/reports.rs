//! Turns what nodes report into status, through a field manager of its own; an answer is given only when the API server
//! has it, or when it is refused for good.

use kube::api::{Patch, PatchParams};
use serde_json::{Map, Value, json};
use skerry_crds::names;
use skerry_edge::ReportId;
use skerry_workloads::{ObjectKind, Payload, Report, StatusChange};

use super::{
    Engine, ResourceKey,
    driver::Driver,
    fold::{Folded, fold},
    trim,
};

/// How often reports are folded anew into a resource that others write meanwhile, before their nodes are to send them again.
const ATTEMPTS: usize = 3;

/// Why a manager writes nothing.
const NOT_LEADER: &str = "this manager does not hold the lease";

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
    /// Which start of the local controller made it.
    pub from: Start,
    /// What.
    pub report: Report,
}

/// Which start of a local controller made a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The one that sends it, so that it cannot be out of an old store.
    Present,
    /// An earlier one, whose store that of the sender was then, or is a copy of.
    Another {
        /// Whether newer ones make it worthless.
        figures: bool,
    },
}

/// What became of a write.
enum Written {
    /// This, for all that it says.
    Told(Taken),
    /// Nothing: the resource is not any more as it was seen.
    MovedOn,
}

/// The resource as reports were folded into it.
struct Seen {
    uid: String,
    version: Option<String>,
}

impl Seen {
    fn of(resource: &Value) -> Self {
        let version = resource.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        Self {
            uid: uid_of(resource).unwrap_or_default().to_owned(),
            version: version.map(str::to_owned),
        }
    }
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
            from: Start::Present,
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
            return (all(Taken::Later(NOT_LEADER.to_owned())), false);
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
        let (mut resource, mut asked) = match self.reported_on(&key, &reports).await {
            Ok(found) => found,
            Err(error) => return (all(Taken::Later(error.to_string())), true),
        };
        for _attempt in 0..ATTEMPTS {
            let (taken, wrote) = self.fold_into(driver.as_ref(), &key, resource, &reports).await;
            asked |= wrote;
            if let Some(taken) = taken {
                return (taken, asked);
            }
            resource = match self.ask_for(&key).await {
                Ok(found) => found,
                Err(error) => return (all(Taken::Later(error.to_string())), true),
            };
        }
        let reason = format!("{} {namespace}/{name} is written by others all the time", kind.kind);
        (all(Taken::Later(reason)), asked)
    }

    /// Folds reports into a resource as it was seen and writes what they come to; what became of each, nothing where the
    /// resource has moved on, and whether anything was sent.
    async fn fold_into(
        &self,
        driver: &dyn Driver,
        key: &ResourceKey,
        resource: Option<Value>,
        reports: &[NodeReport],
    ) -> (Option<Vec<Taken>>, bool) {
        let ResourceKey { kind, namespace, name } = key;
        let gone = |NodeReport { uid, .. }: &NodeReport| {
            Taken::Refused(format!("{} {namespace}/{name} of uid {uid} is gone", kind.kind))
        };
        let Some(resource) = resource else {
            return (Some(reports.iter().map(gone).collect()), false);
        };
        let seen = Seen::of(&resource);
        let about_it: Vec<_> = reports
            .iter()
            .filter(|report| report.uid == seen.uid)
            .cloned()
            .collect();
        let Folded { without, changes } = fold(driver, key, resource, &about_it, self.now());
        let together = without.iter().filter(|without| without.is_none()).count();
        let (written, wrote) = self.write_all(key, &seen, &changes, together).await;
        let Written::Told(written) = written else {
            return (None, wrote);
        };
        let mut each = without.into_iter();
        let taken = reports.iter().map(|report| {
            if report.uid == seen.uid {
                each.next().flatten().unwrap_or_else(|| written.clone())
            } else {
                gone(report)
            }
        });
        (Some(taken.collect()), wrote)
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
        Ok((self.ask_for(key).await?, true))
    }

    /// The resource as the API server has it now.
    async fn ask_for(&self, key: &ResourceKey) -> Result<Option<Value>, kube::Error> {
        let ResourceKey { kind, namespace, name } = key;
        let api = self.objects(*kind, namespace);
        let found = api.get_opt(name).await?.map(|object| trim::trim(*kind, object));
        if let Some(found) = &found {
            self.learn(*kind, found, false);
        }
        Ok(found)
    }

    /// Writes what this many reports come to; what became of all of them, and whether anything was sent.
    async fn write_all(
        &self,
        key: &ResourceKey,
        seen: &Seen,
        changes: &[StatusChange],
        together: usize,
    ) -> (Written, bool) {
        let mut wrote = false;
        for change in changes {
            let (written, sent) = self.write_reported(key, seen, change).await;
            wrote |= sent;
            match written {
                Written::Told(Taken::Accepted) => {}
                Written::Told(Taken::Refused(reason)) if together > 1 => {
                    return (Written::Told(Taken::Apart(reason)), wrote);
                }
                other => return (other, wrote),
            }
        }
        (Written::Told(Taken::Accepted), wrote)
    }

    /// Writes a change where it says something new; whether it had to be sent.
    async fn write_reported(&self, key: &ResourceKey, seen: &Seen, change: &StatusChange) -> (Written, bool) {
        let StatusChange { kind, name, status } = change;
        let namespace = key.namespace.as_str();
        let told = |taken: Taken, sent: bool| (Written::Told(taken), sent);
        let is_own = (*kind, name) == (key.kind, &key.name);
        // Not by force over what others have heard since: it was made from this version.
        let metadata = if is_own {
            json!({"name": name, "namespace": namespace, "uid": seen.uid, "resourceVersion": seen.version})
        } else {
            let (current, listed) = {
                let cache = self.shared.cache.lock();
                (cache.get(*kind, namespace, name), cache.listed_by_leader(*kind))
            };
            if !listed {
                return told(Taken::Later(format!("{} is not listed yet", kind.plural)), false);
            }
            let Some(current) = current else {
                // A Model that the job names was deleted: what the job's own status says is not held up by that.
                return told(Taken::Accepted, false);
            };
            if self.reported(*kind, &current) == *status {
                return told(Taken::Accepted, false);
            }
            // Looked at after what stands there: what the next leader writes there comes after that, and is not overwritten.
            if !self.is_leader() {
                return told(Taken::Later(NOT_LEADER.to_owned()), false);
            }
            let Seen { uid, version } = Seen::of(&current);
            json!({"name": name, "namespace": namespace, "uid": uid, "resourceVersion": version})
        };
        let body = json!({
            "apiVersion": kind.api_version(),
            "kind": kind.kind,
            "metadata": metadata,
            "status": status,
        });
        let api = self.objects(*kind, namespace);
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
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let name = name.clone();
                let other = ResourceKey {
                    kind: *kind,
                    name,
                    ..key.clone()
                };
                if !is_own && let Err(error) = self.ask_for(&other).await {
                    return told(Taken::Later(error.to_string()), true);
                }
                return (Written::MovedOn, true);
            }
            // The same, before the watch has told.
            Err(kube::Error::Api(status)) if status.code == 404 && !is_own => Taken::Accepted,
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 404 | 422) => {
                Taken::Refused(status.message.clone())
            }
            Err(error) => Taken::Later(error.to_string()),
        };
        told(taken, true)
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
