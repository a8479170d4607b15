//! The built-in controllers, the scheduler and the kubelet. They see the API server through a `kube::Client` only.

mod cache;
mod claim;
mod clock;
mod controllers;
mod decision;
mod deployment;
mod effect;
mod endpoints;
mod events;
mod execute;
mod fake;
mod gc;
mod hash;
mod heartbeat;
mod keys;
mod kubelet;
mod meta;
mod namespaces;
mod node;
mod nodes;
mod pod_status;
mod queue;
mod replicaset;
mod report;
mod scheduler;
mod served;
mod taints;

pub use controllers::Controllers;
pub use fake::{Behaviour, FakeKubelet, Timing};
pub use kubelet::{Image, Images, ImagesError, Kubelet, KubeletOptions, LogError, LogOptions};
pub use node::{NodeSpec, NodeSpecError};
