//! The engine against the in-memory API server, on paused time, with a kind of its own: what the engine promises to every
//! kind, whatever it decides.

// A set-up that fails is the test's verdict.
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::unwrap_used)]

mod knowing;
mod passes;
mod world;
