//! The memory that those can hold who are nodes by their word alone, with as much of everything as they get: measured of this
//! process, so it has a process of its own.

#![cfg(target_os = "linux")]
// A set-up that fails is the test's verdict.
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod common;
#[path = "common/memory.rs"]
#[allow(dead_code, reason = "no test uses all of it")]
mod memory;
#[path = "attacks/net.rs"]
#[allow(dead_code, reason = "no test uses all of it")]
mod net;
#[path = "attacks/wire.rs"]
#[allow(dead_code, reason = "no test uses all of it")]
mod wire;

use memory::resident;
use net::World;
use skerry_edge::limits;
use wire::{TEXT, head, hello};

/// What `docs/edge-limits.md` says of messages, but for what each of as many as there may be can bring all the same.
const MOST_OF_MESSAGES: usize = 80 << 20;
/// And of claims.
const MOST_OF_CLAIMS: usize = 256 << 20;

#[tokio::test(start_paused = true)]
async fn those_who_only_say_a_name_hold_little_memory() {
    let world = World::plain();
    world.serves_others().await;
    unfinished_messages(&world).await;
    world.serves_others().await;
    what_they_claim_to_hold(&world).await;
    world.serves_others().await;
}

/// Each is in the midst of as large a message as there may be.
async fn unfinished_messages(world: &World) {
    const NODES: usize = 1_500;
    let (before, mut held) = (resident(), Vec::new());
    let mut most = head(TEXT, true, limits::MAX_UPSTREAM as u64);
    most.resize(limits::MAX_UPSTREAM, b' ');
    for node in 0..NODES {
        let mut wire = world.live(&format!("invented-{node}")).await;
        // Whoever is one too many is turned away in the midst of it.
        let _ = wire.send(&most).await;
        held.push(wire);
    }
    let turned = || {
        world
            .hub
            .doors()
            .turned()
            .get("unfinished")
            .copied()
            .unwrap_or_default()
    };
    let there = world.hub.snapshot().sessions;
    let whole = limits::SAID_BYTES / limits::MAX_UPSTREAM;
    assert!((whole - 1..=whole + 1).contains(&there), "{there} go on");
    assert_eq!(usize::try_from(turned()).unwrap() + there, NODES);
    let growth = resident().saturating_sub(before);
    println!("unfinished messages: {} MiB", growth >> 20);
    assert!(
        (limits::SAID_BYTES / 2..MOST_OF_MESSAGES).contains(&growth),
        "{} MiB",
        growth >> 20
    );
    drop(held);
    world.sessions(0).await;
}

/// Each claims to hold as many objects as one may, of a kind that nobody has heard of.
async fn what_they_claim_to_hold(world: &World) {
    const EACH: usize = 50_000;
    let (before, mut held) = (resident(), Vec::new());
    for node in 0..limits::SAID_ROWS / EACH {
        let node = format!("claimant-{node}");
        let mut wire = world.come(&node).await;
        let last = wire.claim(&hello(&node), EACH).await;
        assert!(last["synced"].is_object(), "{last}");
        held.push(wire);
    }
    let last = world.come("one-more").await.claim(&hello("one-more"), EACH).await;
    assert!(last["restarting"].is_object(), "it is to come back: {last}");
    let growth = resident().saturating_sub(before);
    println!("claims: {} MiB", growth >> 20);
    assert!(
        (limits::SAID_ROWS * 64..MOST_OF_CLAIMS).contains(&growth),
        "{} MiB",
        growth >> 20
    );
    drop(held);
    world.sessions(0).await;
    let last = world.come("one-more").await.claim(&hello("one-more"), EACH).await;
    assert!(last["synced"].is_object(), "once there is room: {last}");
}
