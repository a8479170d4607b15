//! `sedna.io/v1alpha1`, the only version that Sedna has. One file per kind; what kinds share is in [`common`].
//!
//! Every field of Sedna's own types is here under its own name. What is added is optional: standard conditions,
//! `observedGeneration`, and what the manager knows of each worker. Status types have optional fields only, so that
//! each writer applies its own part.

pub mod common;
pub mod dataset;
pub mod feature_extraction_service;
pub mod federated_learning_job;
pub mod incremental_learning_job;
pub mod joint_inference_service;
pub mod lifelong_learning_job;
pub mod model;
pub mod object_search_service;
pub mod object_tracking_service;
pub mod reid_job;
pub mod trigger;
pub mod video_analytics_job;

pub use common::{
    DatasetRef, DeploymentFields, JobDataset, JobOptions, Metric, ModelRef, ObjectServiceStatus, OptionalModelRef,
    Parameter, PodJobStatus, PodWorker, ReidWorkers, ReportedUpTo,
};
pub use dataset::{Dataset, DatasetSpec, DatasetStatus};
pub use feature_extraction_service::{
    FeatureExtractionService, FeatureExtractionServiceSpec, FeatureExtractionServiceStatus,
};
pub use federated_learning_job::{
    AggregationWorker, FederatedLearningJob, FederatedLearningJobSpec, FederatedLearningJobStatus, JobWorker, Outcome,
    Round, RoundWorker, S3Transmitter, TrainingWorker, Transmitter, WsTransmitter,
};
pub use incremental_learning_job::{
    DeployModel, IncrementalDeploySpec, IncrementalEvalSpec, IncrementalLearningJob, IncrementalLearningJobSpec,
    IncrementalLearningJobStatus, IncrementalTrainSpec,
};
pub use joint_inference_service::{
    Autoscaling, CloudWorker, EdgeWorker, HardExampleMining, JointInferenceService, JointInferenceServiceSpec,
    JointInferenceServiceStatus, ServiceWorker, ServiceWorkers,
};
pub use lifelong_learning_job::{
    AiClasses, AiModel, AiModels, KnowledgeBase, LifelongLearningJob, LifelongLearningJobSpec,
    LifelongLearningJobStatus, LifelongTrainSpec, UnseenSamples,
};
pub use model::{Model, ModelSpec, ModelStatus};
pub use object_search_service::{ObjectSearchService, ObjectSearchServiceSpec};
pub use object_tracking_service::{ObjectTrackingService, ObjectTrackingServiceSpec};
pub use reid_job::{ReidJob, ReidJobSpec};
pub use trigger::{Operator, Timer, Trigger, TriggerCondition};
pub use video_analytics_job::{VideoAnalyticsJob, VideoAnalyticsJobSpec};
