//! The places of a job, and what the worker in each is made from.

use std::collections::BTreeSet;

use serde_json::json;
use skerry_crds::{
    names::{env, worker_type},
    sedna::v1alpha1::{AggregationWorker, FederatedLearningJob, S3Transmitter, TrainingWorker},
    template::PodTemplate,
};

use crate::{
    Finding, ObjectKind, Reference, References,
    inputs::{
        hash,
        source::{Resolver, Source, refer, refer_secret},
    },
    render::owner::Owner,
};

/// A worker's place in the job.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    /// Joins what the trainers learn.
    Aggregator(&'a AggregationWorker),
    /// Trains; with its number.
    Trainer(usize, &'a TrainingWorker),
}

/// The trainers' places, in order.
pub(crate) fn trainers(job: &FederatedLearningJob) -> impl Iterator<Item = Place<'_>> {
    let trainers = job.spec.training_workers.iter().enumerate();
    trainers.map(|(index, trainer)| Place::Trainer(index, trainer))
}

impl<'a> Place<'a> {
    /// The aggregator's place.
    pub(crate) fn aggregator(job: &'a FederatedLearningJob) -> Self {
        Self::Aggregator(&job.spec.aggregation_worker)
    }

    /// Sedna's word for the worker's type.
    pub(crate) fn worker_type(self) -> &'static str {
        match self {
            Self::Aggregator(_) => worker_type::AGGREGATION,
            Self::Trainer(..) => worker_type::TRAIN,
        }
    }

    /// What the status calls the role.
    pub(crate) fn role(self) -> String {
        self.worker_type().to_ascii_lowercase()
    }

    /// Its number among the trainers.
    pub(crate) fn index(self) -> Option<i32> {
        match self {
            Self::Aggregator(_) => None,
            Self::Trainer(index, _) => i32::try_from(index).ok(),
        }
    }

    /// What messages call it.
    pub(crate) fn title(self) -> String {
        match self {
            Self::Aggregator(_) => "the aggregator".to_owned(),
            Self::Trainer(index, _) => format!("trainer {index}"),
        }
    }

    /// The worker's template.
    pub(crate) fn template(self) -> &'a PodTemplate {
        match self {
            Self::Aggregator(worker) => &worker.template,
            Self::Trainer(_, worker) => &worker.template,
        }
    }

    /// What tells the place from the others of the job.
    pub(crate) fn key(self) -> String {
        match self {
            Self::Aggregator(_) => self.role(),
            Self::Trainer(index, _) => format!("{}-{index}", self.role()),
        }
    }

    /// The name of every pod in this place, so that there are never two.
    pub(crate) fn pod_name(self, owner: &Owner) -> String {
        let key = self.key();
        format!("{}-{key}-{}", owner.name, owner.hash(&key))
    }

    /// The `WORKER_NAME` of every pod in this place.
    pub(crate) fn worker_name(self, owner: &Owner) -> String {
        let word = match self {
            Self::Aggregator(_) => "agg",
            Self::Trainer(..) => "train",
        };
        format!("{word}worker-{}", owner.hash(&self.key()))
    }

    /// Models, data sets and object storage that the worker reads, or what is missing of them.
    pub(crate) fn sources(self, job: &FederatedLearningJob, found: &References) -> Result<Vec<Source>, Finding> {
        // What all workers need is missing once, not once for each.
        let shared = Resolver {
            found,
            worker: "the job",
        };
        let mut sources = vec![shared.model(&job.spec.aggregation_worker.model.name, env::MODEL_URL)?];
        if let Some(name) = pretrained(job) {
            sources.push(shared.model(name, env::PRETRAINED_MODEL_URL)?);
        }
        if let Self::Trainer(_, trainer) = self {
            let own = Resolver {
                found,
                worker: &self.title(),
            };
            sources.push(own.dataset(&trainer.dataset.name, env::TRAIN_DATASET_URL)?);
        }
        if let Some(storage) = storage(job) {
            let secret = storage.credential().unwrap_or_default();
            let title = "the transmitter".to_owned();
            sources.push(shared.at(title, &storage.agg_data_path, secret, env::AGG_DATA_PATH)?);
        }
        Ok(sources.into_iter().flatten().collect())
    }

    /// The mark by which a change of the worker is seen: of what was declared, not of what was made of it.
    pub(crate) fn hash(self, job: &FederatedLearningJob, sources: &[Source]) -> String {
        let own = match self {
            Self::Aggregator(_) => json!({"participants": job.spec.training_workers.len()}),
            Self::Trainer(_, trainer) => {
                json!({"dataset": trainer.dataset.name, "model": job.spec.aggregation_worker.model.name})
            }
        };
        hash::of(&json!({
            "template": self.template(),
            "sources": sources.iter().map(Source::inputs).collect::<Vec<_>>(),
            "transmitter": transmitter(job),
            "own": own,
        }))
    }
}

/// The Model that the training starts from.
fn pretrained(job: &FederatedLearningJob) -> Option<&str> {
    job.spec.pretrained_model.as_ref()?.name()
}

/// The object storage through which weights travel.
fn storage(job: &FederatedLearningJob) -> Option<&S3Transmitter> {
    job.spec.transmitter.as_ref()?.s3.as_ref()
}

/// The value of `TRANSMITTER`.
pub(crate) fn transmitter(job: &FederatedLearningJob) -> &'static str {
    if storage(job).is_some() { "s3" } else { "ws" }
}

/// The Models, Datasets and Secrets of all workers.
pub(crate) fn references(job: &FederatedLearningJob, found: &References) -> BTreeSet<Reference> {
    let mut named = BTreeSet::new();
    refer(
        ObjectKind::MODEL,
        &job.spec.aggregation_worker.model.name,
        found,
        &mut named,
    );
    refer(
        ObjectKind::MODEL,
        pretrained(job).unwrap_or_default(),
        found,
        &mut named,
    );
    for trainer in &job.spec.training_workers {
        refer(ObjectKind::DATASET, &trainer.dataset.name, found, &mut named);
    }
    if let Some(storage) = storage(job) {
        refer_secret(
            &storage.agg_data_path,
            storage.credential().unwrap_or_default(),
            &mut named,
        );
    }
    named
}
