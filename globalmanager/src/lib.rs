//! The global manager: the effects in the cloud. It watches the API server, carries out what `workloads` decides, and
//! keeps every edge node told of its part.

pub mod admin;
pub mod client;
pub mod config;
pub mod engine;
pub mod hub;
pub mod lease;
pub mod metrics;
