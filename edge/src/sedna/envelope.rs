//! The envelopes: one JSON text message each, `{"header": {…}, "content": "<base64>"}`.
//!
//! Decides what may be read of an agent, before anything is made of it, and what an envelope means in our words. What an
//! agent may say is decided elsewhere. The other direction, with Sedna's own manager, is in [`super::told`].

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::{
    limits,
    message::depth,
    object::{Body, Credential, KeyError, Object, ObjectKey},
    report::ReportPayload,
};

/// The annotation in which Sedna tells what a node needs to reach its data, in clear.
pub(super) const CREDENTIAL: &str = "sedna.io/credential";

/// What an envelope is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Header {
    /// The resource's namespace.
    pub namespace: String,
    /// Its kind: lower-case towards the agent, in any case from it.
    pub resource_kind: String,
    /// Its name.
    pub resource_name: String,
    /// `insert`, `update` or `delete` towards the agent, `status` from it; empty in the message with which it begins.
    pub operation: String,
}

/// One message, either way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Envelope {
    /// What it is about.
    pub header: Header,
    /// JSON in base64.
    #[serde(deserialize_with = "null_as_default")]
    pub content: String,
}

/// Why a message is not taken. The connection goes on: the other side would say the same again over the next.
#[derive(Debug, Error)]
pub enum EnvelopeError {
    /// Deeper than a message, or what it carries, may be.
    #[error("the message nests deeper than {0} levels")]
    TooDeep(usize),
    /// No envelope.
    #[error("the message is no envelope of Sedna's protocol: {0}")]
    Malformed(#[from] serde_json::Error),
    /// The content is not base64.
    #[error("content is not base64: {0}")]
    NotBase64(#[from] base64::DecodeError),
    /// The content is not what is said of that kind.
    #[error("content is no {what} of a {kind}: {source}")]
    Content {
        /// What it should be.
        what: &'static str,
        /// The resource's kind.
        kind: String,
        /// Why.
        source: serde_json::Error,
    },
    /// A kind, namespace or name that Kubernetes could not have given.
    #[error("header: {0}")]
    Key(#[from] KeyError),
    /// A kind that no manager of Sedna's has.
    #[error("header.resourceKind is {0:?}, which is no kind of Sedna's")]
    Kind(String),
    /// More than it may have.
    #[error("the {what} takes {bytes} bytes, it may take {limit}")]
    TooLong {
        /// What.
        what: &'static str,
        /// How much it has.
        bytes: usize,
        /// How much it may have.
        limit: usize,
    },
    /// Agents report, and managers tell.
    #[error("header.operation is {operation:?}, and may be {right}")]
    Operation {
        /// What it is.
        operation: String,
        /// What would be right.
        right: &'static str,
    },
    /// The parser's own words would quote a secret.
    #[error("the annotation {CREDENTIAL} is no JSON of texts")]
    Credential,
}

impl EnvelopeError {
    pub(super) fn operation(operation: &str, right: &'static str) -> Self {
        let operation = operation.chars().take(limits::QUOTED).collect();
        Self::Operation { operation, right }
    }

    /// One word, for metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Key(_) => "no_name",
            Self::Kind(_) => "kind",
            _ => "form",
        }
    }
}

/// What an agent says.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// The resource.
    pub key: ObjectKey,
    /// What of it.
    pub payload: ReportPayload,
}

impl Envelope {
    /// Tells the agent of an object, new or changed: an `update` it would refuse. The credential goes with it.
    pub fn insert(object: &Object, credential: Option<&Credential>) -> Self {
        let Object {
            key,
            uid,
            generation,
            body,
        } = object;
        let body = body.value().unwrap_or_default();
        let kind = body.get("kind").cloned().unwrap_or_default();
        let mut metadata = json!({
            "name": key.name, "namespace": key.namespace, "uid": uid, "generation": generation,
        });
        if let (Some(metadata), Some(credential)) = (metadata.as_object_mut(), credential) {
            let fields = json!(credential.fields).to_string();
            metadata.insert("annotations".to_owned(), json!({CREDENTIAL: fields}));
        }
        // As Sedna's manager has it: no apiVersion. What is in a status the agents of these kinds do not read.
        let content = json!({
            "kind": kind, "metadata": metadata, "spec": body.get("spec"), "status": {},
        });
        Self::about(key, "insert", STANDARD.encode(content.to_string()))
    }

    /// Tells the agent to forget an object. It reads the object's name from the content, too.
    pub fn delete(key: &ObjectKey) -> Self {
        let content = json!({"kind": key.kind, "metadata": {"name": key.name, "namespace": key.namespace}, "spec": {}, "status": {}});
        Self::about(key, "delete", STANDARD.encode(content.to_string()))
    }

    pub(super) fn about(key: &ObjectKey, operation: &str, content: String) -> Self {
        let ObjectKey { kind, namespace, name } = key.clone();
        Self {
            header: Header {
                namespace,
                resource_kind: kind,
                resource_name: name,
                operation: operation.to_owned(),
            },
            content,
        }
    }

    /// The message's text.
    pub fn encode(&self) -> String {
        // As Sedna's library writes it.
        format!("{}\n", json!({"header": self.header, "content": self.content}))
    }

    /// Reads a message.
    pub fn decode(text: &str) -> Result<Self, EnvelopeError> {
        if depth(text.as_bytes()) > limits::MAX_DEPTH {
            return Err(EnvelopeError::TooDeep(limits::MAX_DEPTH));
        }
        // By way of a map: a struct would be read from an array, too.
        let fields: Map<String, Value> = serde_json::from_str(text)?;
        Ok(serde_json::from_value(Value::Object(fields))?)
    }

    /// What an agent means by this; nothing where it only greets.
    pub fn said(&self) -> Result<Option<Said>, EnvelopeError> {
        match self.header.operation.as_str() {
            "" => return Ok(None),
            "status" => {}
            other => return Err(EnvelopeError::operation(other, "\"status\"")),
        }
        let key = self.key()?;
        let what = "status";
        // In a report it is deeper by some.
        let status = self.content(&key, what, limits::MAX_DEPTH / 2)?;
        let wrong = |source| wrong(what, &key, source);
        let payload = if key.kind == "dataset" {
            let Samples { number_of_samples } = serde_json::from_value(status).map_err(wrong)?;
            ReportPayload::DatasetSamples {
                count: number_of_samples,
            }
        } else {
            worker_message(&key, serde_json::from_value(status).map_err(wrong)?)?
        };
        Ok(Some(Said { key, payload }))
    }

    /// The resource that it is about.
    pub(super) fn key(&self) -> Result<ObjectKey, EnvelopeError> {
        let Header {
            namespace,
            resource_kind,
            resource_name,
            operation: _,
        } = &self.header;
        let key = ObjectKey::new(resource_kind.to_ascii_lowercase(), namespace, resource_name);
        key.check()?;
        Ok(key)
    }

    /// The content, which is `what` of that resource: a JSON object.
    pub(super) fn content(&self, key: &ObjectKey, what: &'static str, levels: usize) -> Result<Value, EnvelopeError> {
        let content = STANDARD.decode(&self.content)?;
        if depth(&content) > levels {
            return Err(EnvelopeError::TooDeep(levels));
        }
        let fields: Map<String, Value> = serde_json::from_slice(&content).map_err(|source| wrong(what, key, source))?;
        Ok(Value::Object(fields))
    }
}

pub(super) fn wrong(what: &'static str, key: &ObjectKey, source: serde_json::Error) -> EnvelopeError {
    let kind = key.kind.clone();
    EnvelopeError::Content { what, kind, source }
}

/// The status of a Dataset.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Samples {
    number_of_samples: u64,
}

/// The status of anything that has workers: what is left of a worker's message.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Reported {
    #[serde(deserialize_with = "null_as_default")]
    phase: String,
    #[serde(deserialize_with = "null_as_default")]
    status: String,
    #[serde(deserialize_with = "null_as_default")]
    output: Output,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Output {
    #[serde(deserialize_with = "null_as_default")]
    models: Vec<Map<String, Value>>,
    #[serde(deserialize_with = "null_as_default")]
    owner_info: Map<String, Value>,
}

/// The worker's message that the status was made of. The worker's name is not in it: the agent has left it out.
fn worker_message(key: &ObjectKey, reported: Reported) -> Result<ReportPayload, EnvelopeError> {
    let Reported { phase, status, output } = reported;
    let Output { models, owner_info } = output;
    let message = json!({
        "name": "", "namespace": key.namespace, "ownerName": key.name, "ownerKind": key.kind,
        "kind": phase, "status": status, "ownerInfo": owner_info, "results": models,
    });
    let body = Body::from(&message);
    let bytes = body.json().len();
    if bytes > limits::MAX_REPORT {
        return Err(EnvelopeError::TooLong {
            what: "status",
            bytes,
            limit: limits::MAX_REPORT,
        });
    }
    Ok(ReportPayload::of_worker(&key.kind, &message))
}

pub(super) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
