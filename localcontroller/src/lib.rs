//! The local controller of Skerry: the effects on an edge node.

pub mod config;
pub mod metrics;
pub mod store;
pub mod worker_api;
