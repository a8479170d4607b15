//! The hub with real sessions on both ends: over loopback in single steps, and over a simulated network with faults.

mod again;
mod claimed;
mod cluster;
mod edits;
mod flood;
mod full;
mod lines;
mod many;
mod network;
mod node;
mod old_agents;
mod steps;
mod storm;
mod taking;
