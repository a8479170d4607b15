//! The chart: what it renders, what it refuses, and whether it agrees with the programs that it runs.
//!
//! Needs `helm`; without one the tests say so and pass, unless `SKERRY_REQUIRE_HELM` is set.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod agreement;
mod helm;
mod rendered;
mod values;
