//! What most scenarios begin with: a service and a job as users write them, and what is then to be seen of them.

use serde_json::{Value, json};

/// Two Models and the service `helmet`.
pub const SERVICE: &str = include_str!("../tests/manifests/joint-inference.yaml");
/// A Model, two Datasets and the job `surface`.
pub const JOB: &str = include_str!("../tests/manifests/federated-learning.yaml");

/// The Deployment of the service's worker at the edge.
pub const EDGE: &str = "helmet-deployment-edge";
/// The Deployment of its worker in the cloud.
pub const CLOUD: &str = "helmet-deployment-cloud";

/// The condition `Ready` of the service at work.
pub const READY: &str = "True WorkersAvailable: both workers are available";
/// The condition `Ready` of the job at work.
pub const RUNNING: &str = "True WorkersRunning: all workers run";

/// An edit of the image of a service's worker: `edgeWorker`, whose container is `little`, or `cloudWorker`, whose is `big`.
pub fn image(worker: &str, container: &str, image: &str) -> Value {
    json!({"spec": {worker: {"template": {"spec": {"containers": [{"name": container, "image": image}]}}}}})
}
