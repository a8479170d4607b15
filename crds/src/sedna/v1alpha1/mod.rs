//! `sedna.io/v1alpha1`, the only version that Sedna has. One file per kind; what kinds share is in [`common`].
//!
//! Every field of Sedna's own types is here under its own name. What is added is optional: standard conditions,
//! `observedGeneration`, and what the manager knows of each worker. Status types have optional fields only, so that
//! each writer applies its own part.

pub mod common;
pub mod dataset;
pub mod federated_learning_job;
pub mod joint_inference_service;
pub mod model;

pub use common::{DatasetRef, Metric, ModelRef, OptionalModelRef, Parameter};
pub use dataset::{Dataset, DatasetSpec, DatasetStatus};
pub use federated_learning_job::{
    AggregationWorker, FederatedLearningJob, FederatedLearningJobSpec, FederatedLearningJobStatus, JobWorker, Outcome,
    Round, RoundWorker, S3Transmitter, TrainingWorker, Transmitter, WsTransmitter,
};
pub use joint_inference_service::{
    Autoscaling, CloudWorker, EdgeWorker, HardExampleMining, JointInferenceService, JointInferenceServiceSpec,
    JointInferenceServiceStatus, ServiceWorker, ServiceWorkers,
};
pub use model::{Model, ModelSpec, ModelStatus};
