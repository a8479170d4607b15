//! Which node holds a Dataset.

use std::collections::BTreeMap;

use skerry_crds::sedna::v1alpha1::Dataset;

use crate::{
    Children, Finding, NodePart, Nodes, ObjectKind, Observed, Plan, Reference,
    inputs::source::Resolver,
    judge::conditions,
    render::owner::{Owner, paused, terminating},
};

/// The node's part. Where the Secret is missing the node keeps what it has.
pub(crate) fn plan(dataset: &Dataset, seen: &Observed) -> Plan {
    if terminating(dataset) {
        return Plan::default();
    }
    if paused(dataset) {
        return Plan {
            findings: vec![conditions::paused()],
            ..Plan::default()
        };
    }
    let children = Children::Exactly(Vec::new());
    match credential(dataset, seen) {
        Ok(credential) => {
            let body = Owner::of(dataset).body(&dataset.spec, &[]);
            let part = (dataset.spec.node_name.clone(), NodePart { body, credential });
            Plan {
                children,
                nodes: Nodes::Exactly(BTreeMap::from([part])),
                ..Plan::default()
            }
        }
        Err(finding) => Plan {
            children,
            findings: vec![finding],
            ..Plan::default()
        },
    }
}

/// The Secret that the node needs to count.
fn credential(dataset: &Dataset, seen: &Observed) -> Result<Option<Reference>, Finding> {
    let resolver = Resolver {
        found: &seen.references,
        worker: "the node that counts the samples",
    };
    let title = format!("Dataset {}", Owner::of(dataset).name);
    let secret = dataset.spec.credential().unwrap_or_default();
    let source = resolver.at(title, &dataset.spec.url, secret, "")?;
    let credential = source.and_then(|source| source.credential);
    Ok(credential.map(|credential| Reference::new(ObjectKind::SECRET, credential.secret)))
}
