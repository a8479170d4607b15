//! The local controller of Skerry: the effects on an edge node.

pub mod config;
pub mod store;
