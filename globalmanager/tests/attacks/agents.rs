//! The listener of Sedna's agents, where nobody proves who he is: the same slowness and the same sizes.

use std::time::Duration;

use skerry_edge::{limits, sedna::gateway::MAX_MESSAGE};
use skerry_globalmanager::hub::OldAgents;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
    time::Instant,
};

use super::{
    net::{World, about},
    wire::{CONTINUED, PIPE, TEXT, UPGRADE, Wire, head},
};

const MIB: u64 = 1 << 20;

/// A manager to which Sedna's agents come, and nobody else.
fn listening() -> World {
    let (world, net, stop) = World::new();
    let hub = world.hub.clone();
    tokio::spawn(async move { hub.serve_old_agents_on(OldAgents::default(), net, stop).await });
    world
}

/// The connection of an agent that has a session.
async fn live(world: &World, node: &str) -> Wire<DuplexStream> {
    let mut wire = world.dial();
    let named = UPGRADE.replace("\r\n\r\n", &format!("\r\nnode-name: {node}\r\n\r\n"));
    let answer = wire.ask(&named).await;
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    world.sessions(1).await;
    wire
}

/// Nothing is kept of whoever was there, and another agent is told what it is to hold.
async fn serves_others(world: &World) {
    world.sessions(0).await;
    while world.hub.doors().present() != (0, 0) {
        tokio::task::yield_now().await;
    }
    let name = format!("honest-{}", world.hub.snapshot().connections);
    world.place(&name, &name, 1);
    let mut wire = live(world, &name).await;
    while wire.frame().await["header"]["resourceName"] != name.as_str() {}
    wire.0.shutdown().await.unwrap();
    world.sessions(0).await;
}

#[tokio::test(start_paused = true)]
async fn slowness_in_the_head_of_the_upgrade() {
    let world = listening();
    about(world.dial().trickle(UPGRADE.as_bytes()).await, limits::HANDSHAKE);
    serves_others(&world).await;
}

#[tokio::test(start_paused = true)]
async fn one_request_after_the_other_and_never_a_session() {
    let world = listening();
    let mut wire = world.dial();
    let (began, mut answer) = (Instant::now(), [0; PIPE]);
    let request = b"GET / HTTP/1.1\r\nhost: manager\r\n\r\n";
    while wire.0.write_all(request).await.is_ok() && wire.0.read(&mut answer).await.unwrap_or_default() > 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    about(began.elapsed(), limits::REQUEST);
    serves_others(&world).await;
}

#[tokio::test(start_paused = true)]
async fn slowness_in_the_middle_of_a_message() {
    let world = listening();
    let mut wire = live(&world, "edge-1").await;
    // Bytes that make no message are no sign of life.
    about(wire.trickle(&head(TEXT, true, 100_000)).await, limits::IDLE);
    serves_others(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_claims_to_be_too_large() {
    let world = listening();
    for claimed in [MAX_MESSAGE as u64 + 1, 64 * MIB, u64::from(u32::MAX), u64::MAX >> 1] {
        let mut wire = live(&world, &format!("edge-{claimed}")).await;
        let began = Instant::now();
        wire.0.write_all(&head(TEXT, true, claimed)).await.unwrap();
        wire.refused().await;
        assert_eq!(began.elapsed(), Duration::ZERO, "its bytes are not waited for");
        world.sessions(0).await;
    }
    serves_others(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_in_endless_fragments() {
    let world = listening();
    let mut wire = live(&world, "edge-1").await;
    let piece = [b' '; 1000];
    let (mut sent, mut code) = (0, TEXT);
    loop {
        let mut fragment = head(code, false, piece.len() as u64);
        fragment.extend(piece);
        if wire.0.write_all(&fragment).await.is_err() {
            break;
        }
        sent += piece.len();
        code = CONTINUED;
        assert!(sent < 2 * MAX_MESSAGE, "all of it is taken");
    }
    assert!(sent > MAX_MESSAGE, "{sent} bytes are not too many");
    serves_others(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_too_large() {
    let world = listening();
    let mut wire = world.dial();
    let head = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(2 * limits::BEFORE_HELLO));
    // It may be over before all was sent.
    let _ = wire.0.write_all(head.as_bytes()).await;
    let mut answer = String::new();
    let _ = wire.0.read_to_string(&mut answer).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    serves_others(&world).await;
}
