//! An in-memory Kubernetes for tests, the demo and fault simulation.
//!
//! - [`api`]: the API server, in-process as a `kube::Client` or over HTTP for `kubectl`.
//! - [`schema`]: structural schemas: validation, defaulting, pruning, CEL.
//! - [`surface`]: what clients ask around the objects: discovery, `OpenAPI`, tables, strategic merge patch.
//! - [`cluster`]: the built-in controllers, a scheduler and a kubelet that runs pods as local processes.
//!
//! It knows nothing about the global manager.

pub mod api;
pub mod cluster;
mod go;
mod ports;
pub mod schema;
pub mod surface;

pub use api::{ApiServer, Faults, RequestLog};
pub use ports::free_port;
