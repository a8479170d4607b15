//! Puts the hub where the engine looks for one, and the engine where the hub does.

use std::collections::BTreeMap;

use async_trait::async_trait;
use skerry_edge::{Credential, Object, ObjectKey, Report, ReportPayload};
use skerry_workloads::{NodePart, ObjectKind, Payload};

use super::{Answers, Hub, Part, Reported, Reports};
use crate::engine::{self, Engine, NodeParts, NodeReport, Placement, ResourceKey, Start, Taken};

impl NodeParts for Hub {
    fn set(&self, owner: &ResourceKey, uid: &str, generation: i64, placement: Placement) {
        let key = object_key(owner);
        let parts = parts(&key, uid, generation, placement);
        self.set(&key, parts);
    }

    fn holds(&self, owner: &ResourceKey, uid: &str, generation: i64, placement: Placement) -> bool {
        let key = object_key(owner);
        let parts = parts(&key, uid, generation, placement);
        self.holds(&key, parts)
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

/// What nodes hold of an object of this key.
fn parts(key: &ObjectKey, uid: &str, generation: i64, placement: Placement) -> BTreeMap<String, Part> {
    let credential = |engine::Credential { secret, fields }| Credential {
        owner: key.clone(),
        uid: uid.to_owned(),
        secret,
        fields,
    };
    let part = |(part, needed): (NodePart, Option<engine::Credential>)| Part {
        object: Object {
            key: key.clone(),
            uid: uid.to_owned(),
            generation,
            body: part.body.into(),
        },
        credentials: needed.map(credential).into_iter().collect(),
    };
    placement
        .into_iter()
        .map(|(node, placed)| (node, part(placed)))
        .collect()
}

fn object_key(ResourceKey { kind, namespace, name }: &ResourceKey) -> ObjectKey {
    ObjectKey::new(kind.kind.to_lowercase(), namespace, name)
}

#[async_trait]
impl Reports for Engine {
    async fn take(&self, key: &ObjectKey, reports: &[Reported]) -> Answers {
        let read: Vec<_> = reports.iter().map(read).collect();
        let readable = read.iter().filter_map(|read| read.as_ref().ok().cloned()).collect();
        let ObjectKey { kind, namespace, name } = key;
        let (taken, asked) = self.take_reports(kind, namespace, name, readable).await;
        let mut taken = taken.into_iter();
        let unknown = || Taken::Later("it is not known what became of it".to_owned());
        let each = read
            .into_iter()
            .map(|read| match read {
                Ok(_) => taken.next().unwrap_or_else(unknown),
                Err(refusal) => Taken::Refused(refusal),
            })
            .collect();
        Answers { each, asked }
    }
}

/// What a report says, in the words of the kinds; or why it says nothing.
fn read(Reported { node, boot, report }: &Reported) -> Result<NodeReport, String> {
    let Report {
        seq: _,
        id,
        key: _,
        uid,
        observed_at: _,
        payload,
    } = report;
    let from = match id {
        Some(id) if id.boot != *boot => Start::Another {
            figures: payload.coalesces(),
        },
        Some(_) | None => Start::Present,
    };
    let payload = match payload {
        ReportPayload::Metrics { message }
        | ReportPayload::Round { message, .. }
        | ReportPayload::Event { message } => {
            let message = serde_json::from_str(message.json());
            Payload::Worker(Box::new(
                message.map_err(|error| format!("not a worker's message: {error}"))?,
            ))
        }
        ReportPayload::DatasetSamples { count } => Payload::Samples(*count),
        ReportPayload::DatasetFailed { reason } => Payload::SamplesFailed(reason.clone()),
        ReportPayload::Unknown { variant } => return Err(format!("unknown payload {variant}")),
    };
    Ok(NodeReport {
        uid: uid.clone(),
        id: id.clone(),
        from,
        report: skerry_workloads::Report {
            node: node.to_string(),
            payload,
        },
    })
}
