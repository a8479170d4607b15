//! What everything is called: labels, annotations, environment, children, field managers.
//!
//! Sedna's names are a contract with its workers, node agents and users; ours begin with `skerry`. Nothing here decides
//! whether something exists, only what its name is.

/// The field manager that writes children and what they consist of.
pub const MANAGER: &str = "skerry-globalmanager";
/// The field manager that writes statuses, but for what nodes report.
pub const MANAGER_STATUS: &str = "skerry-globalmanager-status";
/// The field manager that writes what nodes report.
pub const MANAGER_EDGE: &str = "skerry-edge";
/// The field manager that writes how nodes' sessions stand.
pub const MANAGER_SESSIONS: &str = "skerry-edge-sessions";

/// What identity on the edge link keeps in the manager's namespace.
pub mod identity {
    /// The Secret with the certificate and the key of the authority, of type `kubernetes.io/tls`.
    pub const AUTHORITY: &str = "skerry-edge-authority";
    /// The type of a Secret with a join token.
    pub const JOIN_TOKEN_TYPE: &str = "skerry.io/join-token";
    /// The key of the label of such a Secret, and its value.
    pub const JOIN_TOKEN_LABEL: &str = "skerry.io/purpose";
    /// See [`JOIN_TOKEN_LABEL`].
    pub const JOIN_TOKEN: &str = "join-token";

    /// The Secret of the join token of this id.
    pub fn join_token(id: &str) -> String {
        format!("skerry-join-{id}")
    }
}

/// Label keys. Those of Sedna hold `<kind>.sedna.io/…` with the kind in lower case.
pub mod label {
    /// The label that a Deployment, its pods and its selector share: `<resource>-<worker type>-svc`.
    pub const APP: &str = "app.sedna.io";

    /// `<kind>.sedna.io/name`: the resource's name.
    pub fn name(kind: &str) -> String {
        key(kind, "name")
    }

    /// `<kind>.sedna.io/uid`: the resource's uid.
    pub fn uid(kind: &str) -> String {
        key(kind, "uid")
    }

    /// `<kind>.sedna.io/worker-type`: the worker's type in lower case.
    pub fn worker_type(kind: &str) -> String {
        key(kind, "worker-type")
    }

    /// The value of [`APP`]; Sedna leaves the worker type's case as it is.
    pub fn app_value(resource: &str, worker_type: &str) -> String {
        format!("{resource}-{worker_type}-svc")
    }

    fn key(kind: &str, what: &str) -> String {
        format!("{}.sedna.io/{what}", kind.to_ascii_lowercase())
    }
}

/// Worker types as Sedna writes them; label values hold them in lower case.
pub mod worker_type {
    /// `JointInferenceService`, at the edge.
    pub const EDGE: &str = "Edge";
    /// `JointInferenceService`, in the cloud.
    pub const CLOUD: &str = "Cloud";
    /// `FederatedLearningJob`, the aggregator.
    pub const AGGREGATION: &str = "Aggregation";
    /// `FederatedLearningJob`, a trainer.
    pub const TRAIN: &str = "train";
    /// `ObjectSearchService`, what the user talks to.
    pub const USER: &str = "userworker";
    /// `ObjectSearchService` and `ObjectTrackingService`, what follows objects.
    pub const TRACKING: &str = "trackingworker";
    /// `ObjectSearchService` and `ObjectTrackingService`, what recognises objects.
    pub const REID: &str = "reidworker";
    /// `FeatureExtractionService`.
    pub const FEATURE_EXTRACTION: &str = "fe";
    /// `VideoAnalyticsJob`.
    pub const VIDEO_ANALYTICS: &str = "videoanalytics";
    /// `ReidJob`.
    pub const REID_JOB: &str = "reid";
}

/// Annotation keys.
pub mod annotation {
    /// On a resource, `"true"`: its children and nodes are left as they are.
    pub const PAUSED: &str = "skerry.io/paused";
    /// On a pod or a pod template: the hash of the inputs that it was made from.
    pub const INPUTS_HASH: &str = "skerry.io/inputs-hash";
    /// On a trainer's pod: the uid of the aggregator's pod that it works with. The connection between the two cannot be
    /// resumed, so that another aggregator needs another trainer.
    pub const AGGREGATOR_UID: &str = "skerry.io/aggregator-uid";
    /// On a trainer's pod: the uid of the pod whose place it took beside the same aggregator. That one may have done all
    /// that the aggregator needed.
    pub const REPLACES: &str = "skerry.io/replaces";
    /// On a Deployment that Sedna made: the hash of the inputs that there were when it was adopted. While they are the
    /// same, its pods stay as Sedna made them.
    pub const ADOPTED_HASH: &str = "skerry.io/adopted-inputs-hash";
    /// On a pod that Sedna made under a random name: its place in the job that adopted it.
    pub const ADOPTED_PLACE: &str = "skerry.io/adopted-place";
    /// On a child: the hash of what was last applied, so that drift by hand is seen.
    pub const APPLIED_HASH: &str = "skerry.io/applied-hash";
    /// Sedna's: credentials in clear in what an old node agent is sent. Never written to the API server.
    pub const CREDENTIAL: &str = "sedna.io/credential";
    /// Sedna's, on jobs with stages: the node that trains.
    pub const TRAIN: &str = "sedna.io/Train";
    /// Sedna's, on jobs with stages: the node that evaluates.
    pub const EVAL: &str = "sedna.io/Eval";
    /// Sedna's, on jobs with stages: the node that serves.
    pub const DEPLOY: &str = "sedna.io/Deploy";
    /// Sedna's, on incremental learning jobs: the host's path of the hot-update configuration.
    pub const MODEL_HOT_UPDATE_CONFIG: &str = "sedna.io/model-hot-update-config";
    /// On a Secret, required: the address of the object storage.
    pub const S3_ENDPOINT: &str = "s3-endpoint";
    /// On a Secret: `"0"` for http; https otherwise.
    pub const S3_USE_HTTPS: &str = "s3-usehttps";
}

/// Data keys of an object storage Secret.
pub mod secret {
    /// The access key's id.
    pub const ACCESS_KEY_ID: &str = "ACCESS_KEY_ID";
    /// The access key.
    pub const SECRET_ACCESS_KEY: &str = "SECRET_ACCESS_KEY";
}

/// Names of environment variables, as the worker library reads them.
pub mod env {
    /// The resource's namespace.
    pub const NAMESPACE: &str = "NAMESPACE";
    /// The worker's name, under which it reports.
    pub const WORKER_NAME: &str = "WORKER_NAME";
    /// The service's name.
    pub const SERVICE_NAME: &str = "SERVICE_NAME";
    /// The job's name. Without it a worker of a service reports as `sedna`.
    pub const JOB_NAME: &str = "JOB_NAME";
    /// Where the node's local controller listens.
    pub const LC_SERVER: &str = "LC_SERVER";
    /// The model's path or address.
    pub const MODEL_URL: &str = "MODEL_URL";
    /// The Model's name.
    pub const MODEL_NAME: &str = "MODEL_NAME";
    /// The path or address of the model that training starts from.
    pub const PRETRAINED_MODEL_URL: &str = "PRETRAINED_MODEL_URL";
    /// The Dataset's name.
    pub const DATASET_NAME: &str = "DATASET_NAME";
    /// The samples' path or address.
    pub const TRAIN_DATASET_URL: &str = "TRAIN_DATASET_URL";
    /// Where host paths are mounted.
    pub const DATA_PATH_PREFIX: &str = "DATA_PATH_PREFIX";
    /// Where the edge worker finds the large model.
    pub const BIG_MODEL_IP: &str = "BIG_MODEL_IP";
    /// The large model's port, as the edge worker sees it.
    pub const BIG_MODEL_PORT: &str = "BIG_MODEL_PORT";
    /// The port on which the cloud worker listens.
    pub const BIG_MODEL_BIND_PORT: &str = "BIG_MODEL_BIND_PORT";
    /// The hard-example filter.
    pub const HEM_NAME: &str = "HEM_NAME";
    /// The filter's parameters: a JSON list of `{key, value}`, or `null`.
    pub const HEM_PARAMETERS: &str = "HEM_PARAMETERS";
    /// Where trainers find the aggregator.
    pub const AGG_IP: &str = "AGG_IP";
    /// The aggregator's port, as trainers see it.
    pub const AGG_PORT: &str = "AGG_PORT";
    /// The port on which the aggregator listens.
    pub const AGG_BIND_PORT: &str = "AGG_BIND_PORT";
    /// The prefix in object storage under which weights are put.
    pub const AGG_DATA_PATH: &str = "AGG_DATA_PATH";
    /// How many trainers there are.
    pub const PARTICIPANTS_COUNT: &str = "PARTICIPANTS_COUNT";
    /// `ws` or `s3`.
    pub const TRANSMITTER: &str = "TRANSMITTER";
    /// The object storage's address.
    pub const S3_ENDPOINT_URL: &str = "S3_ENDPOINT_URL";
    /// The access key's id.
    pub const ACCESS_KEY_ID: &str = "ACCESS_KEY_ID";
    /// The access key.
    pub const SECRET_ACCESS_KEY: &str = "SECRET_ACCESS_KEY";
    /// The address of the node that the worker runs on.
    pub const HOST_IP: &str = "HOST_IP";
    /// For the storage initializer: what ends a source that lists sources.
    pub const INDIRECT_URL_MARK: &str = "INDIRECT_URL_MARK";
}

/// Ports of the Services between workers; each is the target port too.
pub mod port {
    /// The name of every Service's one port.
    pub const NAME: &str = "tcp-0";
    /// The large model of a `JointInferenceService`.
    pub const BIG_MODEL: u16 = 5000;
    /// The aggregator of a `FederatedLearningJob`.
    pub const AGGREGATION: u16 = 7363;
    /// The user worker of an `ObjectSearchService`.
    pub const USER: u16 = 9379;
    /// The re-identification worker of an `ObjectSearchService`.
    pub const REID: u16 = 9378;
    /// A `FeatureExtractionService`.
    pub const FEATURE_EXTRACTION: u16 = 6000;
    /// A `VideoAnalyticsJob`.
    pub const VIDEO_ANALYTICS: u16 = 4000;
}

/// Paths inside a worker's pod.
pub mod path {
    /// Where host paths are mounted.
    pub const DATA: &str = "/home/data";
    /// Where the storage initializer puts what it fetched.
    pub const DOWNLOADS: &str = "/downloads";
}

/// Names of children.
pub mod child {
    /// The Deployment of a service's worker: `<service>-deployment-<worker type>`.
    pub fn deployment(service: &str, worker_type: &str) -> String {
        format!("{service}-deployment-{}", worker_type.to_ascii_lowercase())
    }

    /// The Service in front of a worker: `<resource>-<worker type>`.
    pub fn service(resource: &str, worker_type: &str) -> String {
        format!("{resource}-{}", worker_type.to_ascii_lowercase())
    }

    /// The autoscaler of a Deployment: `hpa-<deployment>`.
    pub fn autoscaler(deployment: &str) -> String {
        format!("hpa-{deployment}")
    }
}

/// How long a resource's name may be, in bytes, for its children's names and labels to fit: a Service's name and a
/// label's value end at 63. Pods need no room: a pod's name may be longer, and its host's name is cut.
pub mod limit {
    /// The value of a label holds the name alone.
    pub const LABEL: usize = 63;
    /// `<name>-Cloud-svc`, the value of [`label::APP`](super::label::APP).
    pub const JOINT_INFERENCE_SERVICE: usize = 53;
    /// `<name>-aggregation`, a Service.
    pub const FEDERATED_LEARNING_JOB: usize = 51;
    /// `<name>-reidworker-svc`, the value of [`label::APP`](super::label::APP).
    pub const OBJECT_SERVICE: usize = 48;
    /// `<name>-fe-svc`, the value of [`label::APP`](super::label::APP).
    pub const FEATURE_EXTRACTION_SERVICE: usize = 56;
    /// `<name>-videoanalytics`, a Service.
    pub const VIDEO_ANALYTICS_JOB: usize = 48;
}
