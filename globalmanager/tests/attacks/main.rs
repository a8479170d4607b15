//! What somebody who means ill can do to a manager over the edge link, and what comes of it: each attack a test, over the
//! manager's own listeners on a network in memory. Most end by serving a node that means well.
//!
//! | attack | here |
//! |---|---|
//! | a stolen name, another's certificate, join tokens | [the tests of identity](../identity/main.rs) |
//! | slowness: in TLS, in the upgrade, after it | `slow` |
//! | size: frames, what frames claim to be, heads | `large` |
//! | number: connections, names | `many` |
//! | slowness and size, where Sedna's agents come | `agents` |
//! | slowness and number, at the admin port | `admin` |
//! | what is no message | `malformed` |
//! | the same again, in another order, about what is another's | `repeated` |

// A set-up that fails is the test's verdict.
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod admin;
mod agents;
#[path = "../common/mod.rs"]
mod common;
mod large;
mod malformed;
mod many;
mod net;
mod repeated;
mod slow;
mod wire;
