//! The envelopes between Sedna's own manager and a node of ours: what it tells, and how it is reported to.
//!
//! Decides what is taken of a resource, and that its credential goes no further than the credential's own place.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::envelope::{CREDENTIAL, Envelope, EnvelopeError, null_as_default, wrong};
use crate::{
    limits,
    object::{Body, Credential, Object, ObjectKey, is_dns_name},
    report::{Report, ReportPayload},
};

/// Sedna's manager leaves it out.
const API_VERSION: &str = "sedna.io/v1alpha1";

/// The kinds that Sedna has.
const KINDS: [&str; 11] = [
    "dataset",
    "featureextractionservice",
    "federatedlearningjob",
    "incrementallearningjob",
    "jointinferenceservice",
    "lifelonglearningjob",
    "model",
    "objectsearchservice",
    "objecttrackingservice",
    "reidjob",
    "videoanalyticsjob",
];

/// What Sedna's manager tells a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// Hold this, and this credential of it alone.
    Put {
        /// The resource.
        object: Object,
        /// What it needs to reach its data.
        credential: Option<Credential>,
    },
    /// Hold nothing under this key, whatever its uid: of a resource that was deleted, made again and deleted again while the
    /// node was away, the manager tells the last deletion alone.
    Delete(ObjectKey),
}

impl Envelope {
    /// What Sedna's manager means by this.
    pub fn told(&self) -> Result<Told, EnvelopeError> {
        let operation = self.header.operation.as_str();
        if !["insert", "update", "delete"].contains(&operation) {
            return Err(EnvelopeError::operation(
                operation,
                "\"insert\", \"update\" or \"delete\"",
            ));
        }
        let key = self.key()?;
        if !KINDS.contains(&key.kind.as_str()) {
            return Err(EnvelopeError::Kind(key.kind));
        }
        if operation == "delete" {
            return Ok(Told::Delete(key));
        }
        let what = "resource";
        let content = self.content(&key, what, limits::MAX_DEPTH)?;
        let Content { kind, metadata, spec } =
            serde_json::from_value(content).map_err(|source| wrong(what, &key, source))?;
        let Metadata {
            uid,
            generation,
            annotations,
        } = metadata;
        within("uid", uid.len(), limits::MAX_NAME)?;
        let fields = annotations.get(CREDENTIAL).map(credential).transpose()?;
        let secret = spec.get("credentialName").and_then(Value::as_str);
        let secret = secret.filter(|secret| is_dns_name(secret));
        let credential = fields.zip(secret).map(|(fields, secret)| Credential {
            owner: key.clone(),
            uid: uid.clone(),
            secret: secret.to_owned(),
            fields,
        });
        // As our own manager has it. What is left out is of no use to a node, or differs with each push.
        let body = Body::from(json!({
            "apiVersion": API_VERSION,
            "kind": kind,
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": uid, "generation": generation},
            "spec": spec,
        }));
        within("resource", body.json().len(), limits::MAX_BODY)?;
        within(
            "credential",
            credential.as_ref().map_or(0, Credential::size),
            limits::MAX_BODY,
        )?;
        let object = Object {
            key,
            uid,
            generation,
            body,
        };
        Ok(Told::Put { object, credential })
    }

    /// The status as which Sedna's manager takes a report; nothing where it has no word for it.
    pub fn status(report: &Report) -> Option<Self> {
        let content = match &report.payload {
            ReportPayload::DatasetSamples { count } => json!({"numberOfSamples": count}),
            ReportPayload::Metrics { message }
            | ReportPayload::Round { message, .. }
            | ReportPayload::Event { message } => worker_status(&report.key, &message.value().ok()?),
            ReportPayload::DatasetFailed { .. } | ReportPayload::Unknown { .. } => return None,
        };
        Some(Self::about(&report.key, "status", STANDARD.encode(content.to_string())))
    }
}

/// What Sedna's local controller makes of a worker's message: the worker's name is left out.
fn worker_status(key: &ObjectKey, message: &Value) -> Value {
    let models = message.get("results").and_then(Value::as_array);
    let models = models.filter(|models| !models.is_empty() && key.kind != "jointinferenceservice");
    json!({
        "phase": message.get("kind"),
        "status": message.get("status"),
        "output": {"models": models, "ownerInfo": message.get("ownerInfo")},
    })
}

fn within(what: &'static str, bytes: usize, limit: usize) -> Result<(), EnvelopeError> {
    if bytes > limit {
        return Err(EnvelopeError::TooLong { what, bytes, limit });
    }
    Ok(())
}

fn credential<T: serde::de::DeserializeOwned>(annotation: &Value) -> Result<T, EnvelopeError> {
    let fields = annotation.as_str().and_then(|text| serde_json::from_str(text).ok());
    fields.ok_or(EnvelopeError::Credential)
}

/// A resource as Sedna's manager writes it.
#[derive(Deserialize)]
struct Content {
    kind: String,
    #[serde(default, deserialize_with = "null_as_default")]
    metadata: Metadata,
    spec: Map<String, Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    #[serde(deserialize_with = "null_as_default")]
    uid: String,
    #[serde(deserialize_with = "null_as_default")]
    generation: i64,
    #[serde(deserialize_with = "null_as_default")]
    annotations: Map<String, Value>,
}
