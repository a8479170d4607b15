//! The local controller of Skerry: the effects on an edge node.

pub mod config;
pub mod dataset;
pub mod metrics;
pub mod state;
pub mod store;
pub mod worker_api;
