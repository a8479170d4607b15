//! What the status of a Model says: whether a worker could use it.

use jiff::Timestamp;
use skerry_crds::sedna::v1alpha1::{Model, ModelStatus};

use crate::{
    Finding, Impact, ObjectKind, Observed, Plan,
    inputs::source::Resolver,
    judge::conditions::{Verdict, Words, standard},
    render::owner::{Owner, terminating},
};

/// What keeps workers from using the Model.
pub(crate) fn finding(model: &Model, seen: &Observed) -> Option<Finding> {
    let secret = model.spec.credential().unwrap_or_default();
    let title = format!("Model {}", Owner::of(model).name);
    let resolver = Resolver {
        found: &seen.references,
        worker: "whoever reads it",
    };
    let unusable = resolver.at(title.clone(), &model.spec.url, secret, "").err();
    unusable.or_else(|| {
        let missing = !secret.is_empty() && seen.references.get(ObjectKind::SECRET, secret).is_none();
        missing.then(|| Finding {
            impact: Impact::Degraded,
            reason: "SecretMissing",
            message: format!("Secret {secret} does not exist; {title} names it, but its address needs none"),
        })
    })
}

/// What the status says, without what is reported.
pub(crate) fn status(model: &Model, plan: &Plan, now: Timestamp) -> ModelStatus {
    let before = model.status.clone().unwrap_or_default();
    let without_reports = ModelStatus {
        metrics: Vec::new(),
        update_time: None,
        ..before
    };
    if terminating(model) {
        return without_reports;
    }
    let owner = Owner::of(model);
    let words = Words::new("Usable", "workers can be told where the model is");
    let verdict = Verdict {
        findings: plan.findings.clone(),
        available: Ok(words.clone()),
        settled: Ok(words),
    };
    ModelStatus {
        observed_generation: Some(owner.generation),
        conditions: standard(&owner, &without_reports.conditions, &verdict, now),
        ..without_reports
    }
}
