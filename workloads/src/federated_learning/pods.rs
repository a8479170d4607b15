//! The pods of a job.

use std::collections::BTreeMap;

use skerry_crds::{
    names::{annotation, env, port, worker_type},
    sedna::v1alpha1::FederatedLearningJob,
};

use super::inputs::{Place, transmitter};
use crate::{
    Child, Finding, Settings,
    inputs::source::Source,
    render::{
        child::{pod, service_host},
        env::{EnvVar, local_controller},
        owner::Owner,
        storage::Storage,
        template::Worker,
    },
};

/// The pod of a place. A trainer's carries the uid of the aggregator's pod that it works with, and of the pod that it
/// `replaces` beside that.
pub(crate) fn render(
    job: &FederatedLearningJob,
    owner: &Owner,
    place: Place<'_>,
    sources: &[Source],
    aggregator_uid: Option<&str>,
    replaces: Option<&str>,
    settings: &Settings,
) -> Child {
    let is_trainer = matches!(place, Place::Trainer(..));
    let mut annotations = BTreeMap::from([(annotation::INPUTS_HASH.to_owned(), place.hash(job, sources))]);
    for (name, uid) in [
        (annotation::AGGREGATOR_UID, aggregator_uid),
        (annotation::REPLACES, replaces),
    ] {
        if let Some(uid) = uid.filter(|_| is_trainer) {
            annotations.insert(name.to_owned(), uid.to_owned());
        }
    }
    let worker = Worker {
        template: place.template(),
        labels: owner.labels(place.worker_type()),
        annotations,
        env: vars(job, owner, place, settings),
        storage: Storage::of(sources),
        // Trainers reach their node's local controller over the loopback; the aggregator has nothing to tell it.
        force_host_network: is_trainer,
        restart_policy: Some("OnFailure"),
    };
    pod(owner, &place.pod_name(owner), worker, settings)
}

/// What does not work as declared about a worker's sources.
pub(crate) fn findings(sources: &[Source]) -> Vec<Finding> {
    Storage::of(sources).findings
}

fn vars(job: &FederatedLearningJob, owner: &Owner, place: Place<'_>, settings: &Settings) -> Vec<EnvVar> {
    let mut vars = vec![
        EnvVar::value(env::NAMESPACE, &owner.namespace),
        EnvVar::value(env::JOB_NAME, &owner.name),
        EnvVar::value(env::WORKER_NAME, place.worker_name(owner)),
        EnvVar::value(env::PARTICIPANTS_COUNT, job.spec.training_workers.len().to_string()),
        EnvVar::value(env::TRANSMITTER, transmitter(job)),
    ];
    match place {
        Place::Aggregator(_) => vars.push(EnvVar::value(env::AGG_BIND_PORT, port::AGGREGATION.to_string())),
        Place::Trainer(_, trainer) => {
            vars.extend([
                EnvVar::value(env::AGG_IP, service_host(owner, worker_type::AGGREGATION)),
                EnvVar::value(env::AGG_PORT, port::AGGREGATION.to_string()),
                EnvVar::value(env::MODEL_NAME, &job.spec.aggregation_worker.model.name),
                EnvVar::value(env::DATASET_NAME, &trainer.dataset.name),
            ]);
            vars.extend(local_controller(settings, true));
        }
    }
    vars
}
