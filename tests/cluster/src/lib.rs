//! A real Kubernetes for the tests: built from released Go modules, run by nobody but the test that asks for it, in an
//! enclosure that leaves nothing behind.

pub mod abilities;
pub mod artifacts;
pub mod bad_link;
pub mod benches;
pub mod control;
pub mod control_plane;
pub mod enclosure;
pub mod hosts;
pub mod layout;
pub mod leftovers;
pub mod machine;
pub mod network;
pub mod node;
pub mod packages;
pub mod pki;
pub mod process;
pub mod processors;
pub mod programs;
pub mod real;
pub mod resets;
pub mod results;
pub mod rights;
pub mod sections;
pub mod site;
pub mod table;
pub mod trading;
