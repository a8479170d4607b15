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
mod meta;
mod namespaces;
mod node;
mod nodes;
mod pod_status;
mod queue;
mod replicaset;
mod scheduler;
mod served;
mod taints;

pub use controllers::Controllers;
pub use fake::{Behaviour, FakeKubelet, Timing};
pub use node::{NodeSpec, NodeSpecError};
