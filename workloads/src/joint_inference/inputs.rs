//! What the two workers are made from.

use std::collections::BTreeSet;

use serde_json::json;
use skerry_crds::{
    names::{env, worker_type},
    sedna::v1alpha1::{Autoscaling, JointInferenceService},
    template::PodTemplate,
};

use crate::{
    Finding, ObjectKind, Reference, References,
    inputs::{
        hash,
        source::{Resolver, Source, refer},
    },
};

/// One of the two workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Runs the large model.
    Cloud,
    /// Runs the small model.
    Edge,
}

/// Both, in the order in which Sedna makes them: the cloud worker is there when the edge worker asks.
pub(crate) const ROLES: [Role; 2] = [Role::Cloud, Role::Edge];

impl Role {
    /// The one that it works with.
    pub(crate) fn partner(self) -> Self {
        match self {
            Self::Cloud => Self::Edge,
            Self::Edge => Self::Cloud,
        }
    }

    /// Sedna's word for it.
    pub(crate) fn worker_type(self) -> &'static str {
        match self {
            Self::Cloud => worker_type::CLOUD,
            Self::Edge => worker_type::EDGE,
        }
    }

    /// What messages call it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Cloud => "the cloud worker",
            Self::Edge => "the edge worker",
        }
    }

    /// The worker's template.
    pub(crate) fn template(self, service: &JointInferenceService) -> &PodTemplate {
        match self {
            Self::Cloud => &service.spec.cloud_worker.template,
            Self::Edge => &service.spec.edge_worker.template,
        }
    }

    /// What scales the worker.
    pub(crate) fn scaling(self, service: &JointInferenceService) -> Option<&Autoscaling> {
        match self {
            Self::Cloud => service.spec.cloud_worker.hpa.as_ref(),
            Self::Edge => service.spec.edge_worker.hpa.as_ref(),
        }
    }

    fn model(self, service: &JointInferenceService) -> &str {
        match self {
            Self::Cloud => &service.spec.cloud_worker.model.name,
            Self::Edge => &service.spec.edge_worker.model.name,
        }
    }

    /// The model that the worker reads, or what is missing of it.
    pub(crate) fn sources(self, service: &JointInferenceService, found: &References) -> Result<Vec<Source>, Finding> {
        let resolver = Resolver {
            found,
            worker: self.title(),
        };
        let model = resolver.model(self.model(service), env::MODEL_URL)?;
        Ok(model.into_iter().collect())
    }

    /// The mark by which a change of the worker is seen: of what was declared, not of what was made of it.
    pub(crate) fn hash(self, service: &JointInferenceService, sources: &[Source]) -> String {
        let filter = (self == Self::Edge).then_some(&service.spec.edge_worker.hard_example_mining);
        hash::of(&json!({
            "template": self.template(service),
            "sources": sources.iter().map(Source::inputs).collect::<Vec<_>>(),
            "hardExampleMining": filter,
        }))
    }
}

/// The Models of both workers, and their Secrets.
pub(crate) fn references(service: &JointInferenceService, found: &References) -> BTreeSet<Reference> {
    let mut named = BTreeSet::new();
    for role in ROLES {
        refer(ObjectKind::MODEL, role.model(service), found, &mut named);
    }
    named
}
