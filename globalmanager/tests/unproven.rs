//! The memory that those can hold who have proven nothing, with as much of everything as they get: measured of this process,
//! so it has a process of its own.

#![cfg(target_os = "linux")]
// A set-up that fails is the test's verdict.
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod common;
#[path = "common/memory.rs"]
mod memory;
#[path = "attacks/net.rs"]
#[allow(dead_code, reason = "no test uses all of it")]
mod net;
#[path = "attacks/wire.rs"]
#[allow(dead_code, reason = "no test uses all of it")]
mod wire;

use memory::{MOST, from, resident};
use net::World;
use skerry_edge::limits;
use tokio::{
    io::AsyncWriteExt as _,
    time::{Duration, timeout},
};
use wire::{TEXT, head};

#[tokio::test(start_paused = true)]
async fn those_who_have_proven_nothing_hold_little_memory() {
    let world = World::plain();
    world.serves_others().await;
    let (before, mut held) = (resident(), Vec::new());
    for connection in 0..limits::UNPROVEN {
        let mut wire = world.dial_from(from(connection));
        assert!(wire.upgrade().await.starts_with("HTTP/1.1 101"));
        // The largest message that may be, of which all that may come before a hello comes.
        let mut most = head(TEXT, true, limits::MAX_UPSTREAM as u64);
        most.resize(limits::BEFORE_HELLO - wire::UPGRADE.len(), b' ');
        wire.0.write_all(&most).await.unwrap();
        held.push(wire);
    }
    let mut more = world.dial_from([10, 9, 0, 250]);
    let more = timeout(Duration::from_millis(1), more.0.write_all(&[b' '; 2 * wire::PIPE])).await;
    assert!(more.is_ok_and(|sent| sent.is_err()), "one more is not taken");
    assert_eq!(world.hub.snapshot().unproven, limits::UNPROVEN);
    let growth = resident().saturating_sub(before);
    assert!(growth < MOST, "{} connections hold {} MiB", held.len(), growth >> 20);
    // What they were sent, and the pipes that stand in for sockets, are part of that.
    assert!(
        growth > limits::UNPROVEN * limits::BEFORE_HELLO / 4,
        "{growth} bytes: nothing was measured"
    );

    // One byte more, and it is over.
    for wire in &mut held {
        let _ = wire.0.write_all(b"  ").await;
    }
    while world.hub.snapshot().unproven > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.serves_others().await;
}
