//! Carries out effects: one request each, and what the server answered. It decides nothing and knows no kind's rules.

use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::client::Client;
use kube::core::Request;
use kube::core::params::Preconditions;
use kube::core::request;
use serde_json::{Value, json};

use super::effect::{Announce, Announcement, Body, Delete, Effect, Kind, Target};
use super::events::Recorder;
use crate::api::Clock;

/// A request that takes longer than this has failed.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What the server said to an effect.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The object as it is now.
    Object(Kind, Value),
    /// The object no longer exists.
    Gone(Target),
    /// The pod is on its way to this node.
    Bound(Target, String),
    /// Nothing that a table holds.
    Nothing,
}

/// Why an effect did not happen.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// The server refused it, or could not be reached.
    #[error("{0}")]
    Server(#[from] kube::Error),
    /// The request could not be built.
    #[error("{0}")]
    Request(#[from] request::Error),
    /// The object to write is not JSON.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// No answer came in time.
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Timeout,
    /// An owner went away while its children were being adopted.
    #[error("{name} was deleted, it adopts nothing")]
    OwnerGone {
        /// The owner's name.
        name: String,
    },
}

impl Refused {
    /// The server's own words, without what the client puts around them.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Server(kube::Error::Api(status)) if !status.message.is_empty() => status.message.clone(),
            other => other.to_string(),
        }
    }

    pub(crate) fn not_found(&self) -> bool {
        matches!(self, Self::Server(kube::Error::Api(status)) if status.is_not_found())
    }

    /// Whether nothing can be made in the namespace because it is being deleted.
    pub(crate) fn namespace_terminating(&self) -> bool {
        let Self::Server(kube::Error::Api(status)) = self else {
            return false;
        };
        let causes = status.details.iter().flat_map(|details| &details.causes);
        causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
    }
}

/// Sends what the controllers decided.
pub(crate) struct Executor {
    client: Client,
    /// The field manager of its writes.
    manager: &'static str,
    events: Recorder,
}

impl Executor {
    pub(crate) fn new(client: Client, manager: &'static str, clock: Clock) -> Self {
        Self {
            events: Recorder::new(client.clone(), clock),
            client,
            manager,
        }
    }

    /// Does one thing.
    pub(crate) async fn carry_out(&mut self, effect: &Effect) -> Result<Answer, Refused> {
        let done = tokio::time::timeout(TIMEOUT, self.request(effect))
            .await
            .unwrap_or(Err(Refused::Timeout));
        if let Effect::Create(_, Some(announce))
        | Effect::Delete(Delete {
            announce: Some(announce),
            ..
        }) = effect
        {
            self.announce(announce, effect, &done).await;
        }
        done
    }

    async fn request(&mut self, effect: &Effect) -> Result<Answer, Refused> {
        match effect {
            Effect::Create(body, _) => self.create(body).await,
            Effect::Update(body) => self.replace(body, None).await,
            Effect::UpdateStatus(body) => self.replace(body, Some("status")).await,
            Effect::PatchStatus(target, patch) => self.patch(target, Some("status"), patch).await,
            Effect::Delete(delete) => self.delete(&delete.target, delete.grace).await,
            Effect::Adopt {
                child,
                owner_kind,
                owner,
            } => {
                self.still_there(*owner_kind, &child.id.0, &owner.name, &owner.uid)
                    .await?;
                let patch = json!({"metadata": {"uid": child.uid, "ownerReferences": [owner]}});
                self.patch(child, None, &patch).await
            }
            Effect::Release { child, owner } => {
                let reference = json!({"$patch": "delete", "uid": owner});
                let patch = json!({"metadata": {"uid": child.uid, "ownerReferences": [reference]}});
                self.patch(child, None, &patch).await
            }
            Effect::Bind { pod, node } => self.bind(pod, node).await,
            Effect::Event(announcement) => {
                self.events.record(announcement).await;
                Ok(Answer::Nothing)
            }
        }
    }

    async fn create(&self, body: &Body) -> Result<Answer, Refused> {
        let request = at(&body.target).create(&self.post(), serde_json::to_vec(&body.object)?)?;
        Ok(Answer::Object(body.target.kind, self.client.request(request).await?))
    }

    async fn replace(&self, body: &Body, part: Option<&str>) -> Result<Answer, Refused> {
        let (at, name, bytes) = (at(&body.target), &body.target.id.1, serde_json::to_vec(&body.object)?);
        let request = match part {
            Some(part) => at.replace_subresource(part, name, &self.post(), bytes)?,
            None => at.replace(name, &self.post(), bytes)?,
        };
        Ok(Answer::Object(body.target.kind, self.client.request(request).await?))
    }

    async fn patch(&self, target: &Target, part: Option<&str>, patch: &Value) -> Result<Answer, Refused> {
        let params = PatchParams {
            field_manager: Some(self.manager.to_owned()),
            ..PatchParams::default()
        };
        let (at, patch) = (at(target), Patch::Strategic(patch));
        let request = match part {
            Some(part) => at.patch_subresource(part, &target.id.1, &params, &patch)?,
            None => at.patch(&target.id.1, &params, &patch)?,
        };
        Ok(Answer::Object(target.kind, self.client.request(request).await?))
    }

    async fn delete(&self, target: &Target, grace: Option<u32>) -> Result<Answer, Refused> {
        let same = Preconditions {
            uid: Some(target.uid.clone()),
            resource_version: None,
        };
        let params = DeleteParams {
            preconditions: Some(same),
            grace_period_seconds: grace,
            ..DeleteParams::default()
        };
        let request = at(target).delete(&target.id.1, &params)?;
        let answer: Value = self.client.request(request).await?;
        // A Status says that the object is gone; otherwise the answer is the object, which something still holds.
        let gone = answer.get("kind").is_some_and(|kind| kind == "Status") || !held(&answer);
        Ok(if gone {
            Answer::Gone(target.clone())
        } else {
            Answer::Object(target.kind, answer)
        })
    }

    async fn bind(&self, pod: &Target, node: &str) -> Result<Answer, Refused> {
        let (namespace, name) = &pod.id;
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"namespace": namespace, "name": name, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let request = at(pod).create_subresource("binding", name, &self.post(), serde_json::to_vec(&binding)?)?;
        self.client.request::<Value>(request).await?;
        Ok(Answer::Bound(pod.clone(), node.to_owned()))
    }

    /// A live look at an owner: a cache that lags behind must not undo an orphaning deletion.
    async fn still_there(&self, kind: Kind, namespace: &str, name: &str, uid: &str) -> Result<(), Refused> {
        let request = Request::new(kind.path(namespace)).get(name, &kube::api::GetParams::default())?;
        let owner: Value = self.client.request(request).await?;
        let same = owner.pointer("/metadata/uid").is_some_and(|known| known == uid);
        if same && owner.pointer("/metadata/deletionTimestamp").is_none() {
            return Ok(());
        }
        Err(Refused::OwnerGone { name: name.to_owned() })
    }

    async fn announce(&mut self, announce: &Announce, effect: &Effect, done: &Result<Answer, Refused>) {
        let (warning, reason, message) = match (done, announce.done) {
            (Ok(answer), Some((reason, text))) => (false, reason, format!("{text}{}", name(effect, answer))),
            (Err(refused), _) if !refused.namespace_terminating() && !refused.not_found() => {
                let (reason, text) = &announce.refused;
                (true, *reason, format!("{text}{}", refused.message()))
            }
            _ => return,
        };
        let (about, component) = (announce.about.clone(), announce.component);
        self.events
            .record(&Announcement {
                about,
                component,
                warning,
                reason,
                message,
            })
            .await;
    }

    fn post(&self) -> PostParams {
        PostParams {
            field_manager: Some(self.manager.to_owned()),
            ..PostParams::default()
        }
    }
}

fn at(target: &Target) -> Request {
    Request::new(target.kind.path(&target.id.0))
}

/// Whether a deleted object stays for a while: for its grace period or for a finalizer.
fn held(object: &Value) -> bool {
    let meta = |field: &str| object.pointer(&format!("/metadata/{field}"));
    let finalizers = meta("finalizers")
        .and_then(Value::as_array)
        .is_some_and(|finalizers| !finalizers.is_empty());
    let grace = meta("deletionGracePeriodSeconds")
        .and_then(Value::as_i64)
        .unwrap_or_default();
    meta("deletionTimestamp").is_some() && (finalizers || grace > 0)
}

fn name(effect: &Effect, answer: &Answer) -> String {
    let answered = match answer {
        Answer::Object(_, object) => object.pointer("/metadata/name").and_then(Value::as_str),
        Answer::Gone(_) | Answer::Bound(..) | Answer::Nothing => None,
    };
    let asked = match effect {
        Effect::Delete(delete) => delete.target.id.1.as_str(),
        _ => "",
    };
    answered.unwrap_or(asked).to_owned()
}
