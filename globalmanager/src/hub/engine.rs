//! Puts the hub where the engine looks for one, and the engine where the hub does.

use std::collections::BTreeMap;

use async_trait::async_trait;
use skerry_edge::{Credential, Object, ObjectKey, Report, ReportPayload};
use skerry_workloads::{NodePart, ObjectKind, Payload};

use super::{Hub, Part, Reports};
use crate::engine::{self, Engine, NodeParts, ResourceKey, Taken};

impl NodeParts for Hub {
    fn set(
        &self,
        owner: &ResourceKey,
        uid: &str,
        generation: i64,
        parts: BTreeMap<String, (NodePart, Option<engine::Credential>)>,
    ) {
        let key = object_key(owner);
        let part = |(part, credential): (NodePart, Option<engine::Credential>)| Part {
            object: Object {
                key: key.clone(),
                uid: uid.to_owned(),
                generation,
                body: part.body.into(),
            },
            credentials: credential
                .map(|engine::Credential { secret, fields }| Credential {
                    owner: key.clone(),
                    uid: uid.to_owned(),
                    secret,
                    fields,
                })
                .into_iter()
                .collect(),
        };
        self.set(
            &key,
            parts.into_iter().map(|(node, parts)| (node, part(parts))).collect(),
        );
    }

    fn owner_gone(&self, owner: &ResourceKey) {
        self.owner_gone(&object_key(owner));
    }

    fn kind_listed(&self, kind: ObjectKind, owners: Vec<(String, String)>) {
        let kind = kind.kind.to_lowercase();
        let owners = owners
            .into_iter()
            .map(|(namespace, name)| ObjectKey::new(kind.as_str(), namespace, name))
            .collect();
        self.kind_listed(&kind, owners);
    }

    fn kind_unknown(&self, kind: ObjectKind) {
        self.kind_unknown(&kind.kind.to_lowercase());
    }
}

fn object_key(ResourceKey { kind, namespace, name }: &ResourceKey) -> ObjectKey {
    ObjectKey::new(kind.kind.to_lowercase(), namespace, name)
}

#[async_trait]
impl Reports for Engine {
    async fn take(&self, node: &str, report: &Report) -> Taken {
        let Report {
            seq: _,
            key,
            uid,
            observed_at: _,
            payload,
        } = report;
        let payload = match payload {
            ReportPayload::Metrics { message }
            | ReportPayload::Round { message, .. }
            | ReportPayload::Event { message } => match serde_json::from_str(message.json()) {
                Ok(message) => Payload::Worker(Box::new(message)),
                Err(error) => return Taken::Refused(format!("not a worker's message: {error}")),
            },
            ReportPayload::DatasetSamples { count } => Payload::Samples(*count),
            ReportPayload::DatasetFailed { reason } => Payload::SamplesFailed(reason.clone()),
            ReportPayload::Unknown { variant } => return Taken::Refused(format!("unknown payload {variant}")),
        };
        let ObjectKey { kind, namespace, name } = key;
        self.take_report(node, kind, namespace, name, uid, payload).await
    }
}
