//! Sedna's own protocol, either way: for nodes on which its local controller still runs, and for a local controller of ours
//! whose manager is still Sedna's.
//!
//! ```text
//!   Sedna's agent ◀── insert, delete ── [gateway] ◀── skerry.v1 ──▶ a session as any node's
//!                 ── status ─────────▶ [agent: what it was told, and its reports]
//! ```
//!
//! A [`gateway`] stands in for the node: to the manager it is one that speaks `skerry.v1` over a [`pipe`], so that what an
//! agent is told, what it may report, which of two sessions stands and how much may be under way is decided where it is
//! for every node. What the old protocol lacks is lacking all the same: it proves nothing of who the node is, it
//! acknowledges nothing, and it is readable by everybody on the way.
//!
//! ```text
//!   Sedna's manager ── insert, update, delete ──▶ [holdings] ──▶ the node's store
//!                   ◀── status ───────────────── [receipts] ◀── its outbox
//! ```
//!
//! A node of ours connects as Sedna's local controller does ([`client`]), and keeps what it is [`told`] as it keeps what our
//! own manager tells.

pub mod agent;
pub mod client;
pub mod envelope;
pub mod gateway;
pub mod holdings;
pub mod pipe;
pub mod receipts;
pub mod told;

/// By this header, and by nothing else, a local controller says which node it is on.
pub const NODE_NAME: &str = "Node-Name";

#[cfg(test)]
mod tests;
