//! An unmodified `kubectl` on the sandbox, over loopback: what users type.
//!
//! Needs a `kubectl` on the PATH. Without one each scenario passes and the run says so in a line of its own, unless
//! `SKERRY_REQUIRE_KUBECTL=1` asks for one.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod changes;
mod cluster;
mod definitions;
mod deletion;
mod pods;
mod reading;
mod refusals;

#[test]
fn the_page_of_scenarios_names_each_of_these() {
    skerry_cluster::table::names_all_of_this_program("kubectl").unwrap();
}
