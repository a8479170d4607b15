//! The cluster around the API server: controllers, scheduler and the fake kubelet in virtual time, the real kubelet and
//! the assembled sandbox in real time.

// A helper that fails is the test's verdict.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::field_reassign_with_default)]

mod controllers;
mod deletion;
mod faults;
mod kubelet;
mod nodes;
mod sandbox;
mod support;
