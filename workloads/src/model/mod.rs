//! `Model`: a trained model that workers read, or one that a job is about to train.
//!
//! Decides only what the status says: a Model has no children and no part on nodes. Its metrics come from the job that
//! trains it (see `federated_learning`).

mod status;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use skerry_crds::sedna::v1alpha1::{Model, ModelStatus};

use crate::{
    Applied, Children, Kind, Nodes, ObjectKind, Observed, Plan, Reference, References, Refusal, Report, Settings,
    StatusChange,
    judge::conditions,
    render::owner::{paused, terminating},
};

impl Kind for Model {
    const KIND: ObjectKind = ObjectKind::MODEL;
    type Status = ModelStatus;
    const CHILDREN: &'static [ObjectKind] = &[];
    const DECIDED_BY: &'static [ObjectKind] = &[];
    const REPORTED: &'static [&'static str] = &["metrics", "updateTime"];

    fn references(&self, _found: &References) -> BTreeSet<Reference> {
        let secret = self
            .spec
            .credential()
            .map(|secret| Reference::new(ObjectKind::SECRET, secret));
        secret.into_iter().collect()
    }

    fn plan(&self, seen: &Observed, _settings: &Settings) -> Plan {
        if terminating(self) {
            return Plan::default();
        }
        if paused(self) {
            return Plan {
                findings: vec![conditions::paused()],
                ..Plan::default()
            };
        }
        Plan {
            children: Children::Exactly(Vec::new()),
            nodes: Nodes::Exactly(BTreeMap::new()),
            findings: status::finding(self, seen).into_iter().collect(),
            ..Plan::default()
        }
    }

    fn status(&self, _seen: &Observed, plan: &Plan, _applied: &Applied, now: Timestamp) -> Self::Status {
        status::status(self, plan, now)
    }

    fn report(&self, report: &Report, _now: Timestamp) -> Result<Vec<StatusChange>, Refusal> {
        // Nodes report on the job that trains the model, never on the model itself.
        Err(Refusal::form(Self::KIND, &report.payload))
    }
}
