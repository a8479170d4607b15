//! Slowness: whoever takes its time holds up nobody, and not for long.

use std::time::Duration;

use rstest::rstest;
use skerry_edge::limits;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use super::{
    net::{World, about},
    wire::{PING, TEXT, UPGRADE, head, hello, report, whole},
};

#[tokio::test(start_paused = true)]
async fn in_the_handshake_of_tls() {
    let world = World::tls();
    let mut wire = world.dial();
    // A record of a handshake that never ends.
    let took = wire
        .trickle(&[0x16, 0x03, 0x01, 0x40, 0x00, 0x01, 0x00, 0x3f, 0xfc])
        .await;
    about(took, limits::HANDSHAKE);
    assert_eq!(world.hub.doors().turned(), [("handshake", 1)].into());
    assert_eq!(world.hub.doors().present(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn by_many_in_the_handshake_of_tls_while_a_node_gets_in() {
    let world = World::tls();
    let silent: Vec<_> = (0..200).map(|_| world.dial()).collect();
    let mut node = world.dial_tls(world.certified("edge-1")).await.unwrap();
    node.begin("edge-1").await;
    assert_eq!(world.hub.doors().present(), (silent.len(), 1));
    tokio::time::sleep(limits::HANDSHAKE).await;
    for mut silent in silent {
        assert_eq!(silent.0.read(&mut [0; 1]).await.unwrap_or_default(), 0);
    }
    assert_eq!(world.hub.doors().present(), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn in_the_head_of_the_upgrade() {
    let world = World::plain();
    about(world.dial().trickle(UPGRADE.as_bytes()).await, limits::HANDSHAKE);
    let world = World::tls();
    let mut wire = world.dial_tls(world.certified("edge-1")).await.unwrap();
    about(wire.trickle(UPGRADE.as_bytes()).await, limits::HANDSHAKE);
    let mut wire = world.dial_tls(world.stranger()).await.unwrap();
    about(wire.trickle(UPGRADE.as_bytes()).await, limits::HANDSHAKE);
    assert_eq!(world.hub.doors().present(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn with_one_request_after_the_other_and_never_a_session() {
    let world = World::tls();
    let mut wire = world.dial_tls(world.certified("edge-1")).await.unwrap();
    let began = tokio::time::Instant::now();
    let request = b"GET /nothing HTTP/1.1\r\nhost: manager\r\n\r\n";
    let mut answer = [0; 4096];
    while wire.0.write_all(request).await.is_ok() && wire.0.read(&mut answer).await.unwrap_or_default() > 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    about(began.elapsed(), limits::REQUEST);
    assert_eq!(world.hub.doors().present(), (0, 0));
}

#[rstest]
#[case::plain(World::plain)]
#[case::tls(World::tls)]
#[tokio::test(start_paused = true)]
async fn after_the_upgrade_with_no_hello(#[case] world: fn() -> World) {
    let world = world();
    for bytes in [whole(PING, b""), head(TEXT, true, 200)] {
        let mut wire = world.come("edge-1").await;
        wire.upgrade().await;
        about(wire.trickle(&bytes).await, limits::FIRST_MESSAGE);
    }
    assert_eq!(world.hub.snapshot().refused, [("no_hello", 2)].into());
    let mut wire = world.come("edge-1").await;
    wire.upgrade().await;
    assert_eq!(wire.refused().await.as_deref(), Some("no hello within 10 s"));
    assert!(world.hub.nodes().is_empty());
    world.serves_others().await;
}

#[rstest]
#[case::plain(World::plain)]
#[case::tls(World::tls)]
#[tokio::test(start_paused = true)]
async fn in_the_answer_to_a_digest(#[case] world: fn() -> World) {
    let world = world();
    let mut wire = world.come("edge-1").await;
    wire.upgrade().await;
    wire.text(&hello("edge-1")).await.unwrap();
    about(wire.trickle(&whole(PING, b"")).await, limits::ACK_TIMEOUT);
    assert_eq!(world.hub.snapshot().ended, [("behind", 1)].into());
    assert!(world.hub.nodes().is_empty(), "nothing is kept of it");
}

#[rstest]
#[case::plain(World::plain)]
#[case::tls(World::tls)]
#[tokio::test(start_paused = true)]
async fn in_the_middle_of_a_frame_of_a_session(#[case] world: fn() -> World) {
    let world = world();
    let mut wire = world.live("edge-1").await;
    // Bytes that make no frame are no sign of life.
    let endless = head(TEXT, true, 200_000);
    about(wire.trickle(&endless).await, limits::IDLE);
    assert_eq!(world.hub.snapshot().ended, [("silent", 1)].into());
    world.serves_others().await;
}

#[rstest]
#[case::plain(World::plain)]
#[case::tls(World::tls)]
#[tokio::test(start_paused = true)]
async fn in_acknowledging(#[case] world: fn() -> World) {
    let world = world();
    world.place("edge-1", "d", 1);
    let mut wire = world.live("edge-1").await;
    about(wire.trickle(&whole(PING, b"")).await, limits::ACK_TIMEOUT);
    assert_eq!(world.hub.snapshot().ended, [("behind", 1)].into());
    assert_eq!(world.hub.nodes()[0].assigned, 1, "it is told when it comes again");
}

#[rstest]
#[case::plain(World::plain)]
#[case::tls(World::tls)]
#[tokio::test(start_paused = true)]
async fn in_reading_while_it_sends(#[case] world: fn() -> World) {
    let world = world();
    let mut wire = world.live("edge-1").await;
    let denied = || world.hub.snapshot().reports_denied.values().sum::<u64>();
    let frame = whole(TEXT, report(1, "another", "uid").as_bytes());
    // It is taken from until as many answers wait for it as may.
    while timeout(Duration::from_secs(1), wire.0.write_all(&frame)).await.is_ok() {}
    let most = limits::QUEUED_FRAMES as u64;
    // Beside those that are written into the pipe, and into what TLS keeps: 64 KiB.
    assert!((most..=most + 700).contains(&denied()), "{}", denied());
    world.serves_others().await;
    tokio::time::sleep(limits::IDLE).await;
    world.sessions(0).await;
    assert_eq!(world.hub.snapshot().ended["silent"], 1);
    assert!(world.hub.nodes().iter().all(|node| node.name.starts_with("honest")));
}
