//! The hub with real sessions on both ends: over loopback in single steps, and over a simulated network with faults.

mod flood;
mod network;
mod node;
mod steps;
