//! The decisions of Skerry: for each kind, a pure function from what was observed to what should exist, what the
//! status says and what each edge node is told.
//!
//! Nothing here does I/O, reads a clock or draws a random number; the engine in `globalmanager` does all of that and
//! calls, in this order, [`Kind::references`], [`Kind::plan`] and [`Kind::status`].
//!
//! | modules | what they know |
//! |---|---|
//! | `kind`, `observed`, `plan`, `report`, `settings` | the contract with the engine |
//! | `joint_inference`, `federated_learning`, `dataset`, `model` | one kind each: all that is decided about it |
//! | `inputs` | what workers are made from: addresses, credentials, the hash of it all |
//! | `render` | children as JSON: the user's template with what Sedna's worker contract adds |
//! | `judge` | how pods and Deployments are doing, and the conditions that say so |
//! | `adoption` | workers that Sedna made, and that go on as they are |
//! | `offline` | the same decisions for files, without a cluster |

mod adoption;
mod dataset;
mod federated_learning;
mod inputs;
mod joint_inference;
mod judge;
pub mod kind;
mod model;
pub mod observed;
mod offline;
pub mod plan;
mod render;
pub mod report;
pub mod settings;
#[cfg(test)]
mod testing;

pub use kind::Kind;
pub use observed::{KindNames, Live, Lookup, ObjectKind, Observed, Reference, References};
pub use offline::{OfflineError, offline};
pub use plan::{Applied, Child, Children, Event, EventType, Failure, Finding, Impact, Make, NodePart, Nodes, Plan};
pub use report::{Payload, REPORTED_UP_TO, Refusal, Report, StatusChange, WorkerMessage};
pub use settings::Settings;
