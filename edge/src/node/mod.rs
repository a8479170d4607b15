//! The node's end of the link, without I/O: what the local controller's store and outbox have to be able to do, and
//! the state machine that tells them.

mod event;
mod inbox;
mod outbox;
mod pace;
mod reconnect;
mod session;
pub mod store;

pub use event::{Asked, Identity, Input, Output, State};
pub use reconnect::Reconnect;
pub use session::Session;
pub use store::{Batch, Change, Outgoing, Wanted};

#[cfg(test)]
mod tests;
