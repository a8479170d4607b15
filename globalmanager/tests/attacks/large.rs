//! Size: what is too large is refused by its head, and nothing is read of it.

use std::time::Duration;

use rstest::rstest;
use skerry_edge::limits;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::{Instant, timeout},
};

use super::{
    net::World,
    wire::{CONTINUED, PIPE, TEXT, head, hello, whole},
};

const MIB: u64 = 1 << 20;

fn above(bytes: u64) -> String {
    format!(
        "a message of {bytes} bytes is above the limit of {}",
        limits::MAX_UPSTREAM
    )
}

#[rstest]
#[case::plain(World::plain)]
#[case::tls(World::tls)]
#[tokio::test(start_paused = true)]
async fn a_frame_of_64_mib(#[case] world: fn() -> World) {
    let world = world();
    let mut wire = world.live("edge-1").await;
    wire.send(&head(TEXT, true, 64 * MIB)).await.unwrap();
    let (mut reading, mut writing) = tokio::io::split(wire.0);
    let sending = async {
        let mut sent = 0;
        while timeout(limits::IDLE, writing.write_all(&[b'x'; PIPE]))
            .await
            .is_ok_and(|sent| sent.is_ok())
        {
            sent += PIPE;
        }
        sent
    };
    let mut heard = Vec::new();
    let (sent, _) = tokio::join!(sending, reading.read_to_end(&mut heard));
    // TLS keeps as much as 16 of these here.
    assert!(sent < 32 * PIPE, "{sent} bytes were taken");
    let heard = String::from_utf8_lossy(&heard);
    assert!(heard.contains(&above(64 * MIB)), "{heard}");
    assert_eq!(world.hub.snapshot().ended, [("violation", 1)].into());
    world.serves_others().await;
}

#[rstest]
#[case::plain(World::plain)]
#[case::tls(World::tls)]
#[tokio::test(start_paused = true)]
async fn a_frame_that_claims_to_be(#[case] world: fn() -> World) {
    let world = world();
    for claimed in [
        64 * MIB,
        limits::MAX_UPSTREAM as u64 + 1,
        u64::from(u32::MAX),
        u64::MAX >> 1,
    ] {
        let mut wire = world.live("edge-1").await;
        let began = Instant::now();
        wire.send(&head(TEXT, true, claimed)).await.unwrap();
        assert_eq!(wire.refused().await, Some(above(claimed)));
        assert_eq!(began.elapsed(), Duration::ZERO, "its bytes are not waited for");
    }
    world.serves_others().await;
}

#[rstest]
#[case::plain(World::plain)]
#[case::tls(World::tls)]
#[tokio::test(start_paused = true)]
async fn a_message_in_endless_fragments(#[case] world: fn() -> World) {
    let world = world();
    let mut wire = world.live("edge-1").await;
    let piece = [b' '; 1000];
    let mut sent = 0;
    let mut code = TEXT;
    while sent <= limits::MAX_UPSTREAM {
        let mut fragment = head(code, false, piece.len() as u64);
        fragment.extend(piece);
        wire.send(&fragment).await.unwrap();
        sent += piece.len();
        code = CONTINUED;
    }
    let refused = wire.refused().await.unwrap();
    assert!(refused.contains("is above the limit of 262144"), "{refused}");
    world.serves_others().await;
}

#[rstest]
#[case::plain(World::plain)]
#[case::tls(World::tls)]
#[tokio::test(start_paused = true)]
async fn a_message_of_the_largest_size_is_none(#[case] world: fn() -> World) {
    let world = world();
    let mut wire = world.live("edge-1").await;
    let frame = r#"{"ack":{"version":1}}"#;
    let largest = format!("{frame}{}", " ".repeat(limits::MAX_UPSTREAM - frame.len()));
    wire.text(&largest).await.unwrap();
    world.place("edge-1", "d", 1);
    assert_eq!(
        wire.frame().await["put"]["object"]["generation"],
        1,
        "the session goes on"
    );
}

#[rstest]
#[case::plain(World::plain)]
#[case::tls(World::tls)]
#[tokio::test(start_paused = true)]
async fn anything_large_before_a_hello(#[case] world: fn() -> World) {
    let world = world();
    let large = "x".repeat(limits::BEFORE_HELLO);
    for first in [
        whole(TEXT, large.as_bytes()),
        hello(&large).into_bytes(),
        head(TEXT, true, 64 * MIB),
    ] {
        let mut wire = world.come("edge-1").await;
        wire.upgrade().await;
        let began = Instant::now();
        // It may be over before all was sent.
        let _ = wire.send(&first).await;
        wire.refused().await;
        assert!(began.elapsed() <= limits::CLOSE, "{:?}", began.elapsed());
    }
    // And in the head of the upgrade.
    let mut wire = world.come("edge-1").await;
    let head = format!("GET / HTTP/1.1\r\nx: {large}{large}\r\n\r\n");
    let _ = wire.send(head.as_bytes()).await;
    let mut answer = String::new();
    let _ = wire.0.read_to_string(&mut answer).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    assert_eq!(world.hub.doors().present(), (0, 0));
    assert!(world.hub.nodes().is_empty());
    world.serves_others().await;
}
