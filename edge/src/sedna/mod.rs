//! The protocol of Sedna's own local controller, for nodes on which that one still runs.
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

pub mod agent;
pub mod envelope;
pub mod gateway;
pub mod pipe;

#[cfg(test)]
mod tests;
