//! Whole-system tests of Skerry. The library holds what the scenarios share; the scenarios are in `tests/tests/`.

// A harness whose set-up fails has nothing to go on with: the panic is the test's verdict.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::unwrap_used
)]

mod calm;
mod cleaning;
pub mod cluster;
pub mod definitions;
pub mod federated_job;
pub mod kubectl;
pub mod look;
pub mod loopback;
pub mod manager;
pub mod planes;
pub mod samples;
pub mod server;
pub mod tools;
pub mod world;

pub use world::{NAMESPACE, World};
