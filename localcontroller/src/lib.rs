//! The local controller of Skerry: the effects on an edge node.
//!
//! It keeps what the manager says of this node in a durable store, does what that says, takes the reports of the
//! node's workers and delivers them, all of it whether the manager is there or not.
//!
//! | module | what it does |
//! |---|---|
//! | [`config`] | reads the settings: Sedna's environment, and the same as flags |
//! | [`store`] | keeps objects, credentials, the outbox, in one SQLite file |
//! | [`identity`] | proves to the manager which node this is |
//! | [`link`] | brings the store to what the manager declares, and the outbox to the manager |
//! | [`sedna`] | does the same with Sedna's own manager |
//! | [`worker_api`] | serves workers over HTTP, as Sedna does |
//! | [`state`] | brings about what the objects say |
//! | [`dataset`] | counts the samples of Datasets |
//! | [`metrics`] | counts what happens |

pub mod config;
pub mod dataset;
mod durable;
pub mod identity;
pub mod link;
pub mod logging;
pub mod metrics;
mod own_store;
mod run;
pub mod sedna;
pub mod state;
pub mod store;
pub mod worker_api;

pub use config::{Args, Config, ConfigError, LogFormat, Protocol};
pub use own_store::own_store;
pub use run::run;
