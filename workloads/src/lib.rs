//! The decisions of Skerry: for each kind, a pure function from what was observed to what should exist, what the
//! status says and what each edge node is told.
//!
//! Nothing here does I/O, reads a clock or draws a random number; the engine in `globalmanager` does all of that and
//! calls, in this order, [`Kind::references`], [`Kind::plan`] and [`Kind::status`].

pub mod kind;
pub mod observed;
pub mod plan;
pub mod report;
pub mod settings;

pub use kind::Kind;
pub use observed::{Live, Lookup, ObjectKind, Observed, Reference, References};
pub use plan::{Applied, Child, Children, Event, EventType, Failure, Finding, Impact, Make, NodePart, Nodes, Plan};
pub use report::{Payload, Refusal, Report, StatusChange, WorkerMessage};
pub use settings::Settings;
