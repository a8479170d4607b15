//! `Dataset`: samples that lie on an edge node, or in a store that the node can reach.
//!
//! Decides which node counts the samples, with which credentials, and what the status says of the count. A Dataset has
//! no children; the jobs that name it mount or fetch it themselves.

mod plan;
mod report;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use jiff::Timestamp;
use skerry_crds::sedna::v1alpha1::{Dataset, DatasetStatus};

use crate::{
    Applied, Kind, ObjectKind, Observed, Plan, REPORTED_UP_TO, Reference, References, Refusal, Report, Settings,
    StatusChange, inputs::source::refer_secret,
};

impl Kind for Dataset {
    const KIND: ObjectKind = ObjectKind::DATASET;
    type Status = DatasetStatus;
    const CHILDREN: &'static [ObjectKind] = &[];
    const DECIDED_BY: &'static [ObjectKind] = &[];
    const REPORTED: &'static [&'static str] = &["numberOfSamples", "updateTime", "countError", REPORTED_UP_TO];

    fn references(&self, _found: &References) -> BTreeSet<Reference> {
        let mut named = BTreeSet::new();
        refer_secret(&self.spec.url, self.spec.credential().unwrap_or_default(), &mut named);
        named
    }

    fn plan(&self, seen: &Observed, _settings: &Settings) -> Plan {
        plan::plan(self, seen)
    }

    fn status(&self, _seen: &Observed, plan: &Plan, applied: &Applied, now: Timestamp) -> Self::Status {
        status::status(self, plan, applied, now)
    }

    fn report(&self, report: &Report, now: Timestamp) -> Result<Vec<StatusChange>, Refusal> {
        report::report(self, report, now)
    }
}
