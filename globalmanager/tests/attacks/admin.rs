//! What can be done to the admin port, which proves nobody.

use std::time::Duration;

use axum::{Router, routing::get};
use skerry_edge::limits;
use skerry_globalmanager::admin;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::sleep,
};

use super::net::{World, about};

const ASKS: &[u8] = b"GET / HTTP/1.1\r\nhost: manager\r\n\r\n";

/// A manager whose admin port is served, and nothing else.
fn world() -> World {
    let (world, net, stop) = World::new();
    let routes = Router::new().route("/", get(async || "ok\n"));
    tokio::spawn(admin::serve(net, routes, stop));
    world
}

#[tokio::test(start_paused = true)]
async fn a_head_that_never_ends_is_not_waited_for() {
    let world = world();
    about(world.dial().trickle(b"x").await, limits::HANDSHAKE);
    let mut silent = world.dial();
    assert_eq!(
        silent.0.read(&mut [0; 1]).await.unwrap(),
        0,
        "nor one that never begins"
    );
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_for_one_request() {
    let world = world();
    let mut wire = world.dial();
    wire.0.write_all(ASKS).await.unwrap();
    let mut answer = String::new();
    wire.0.read_to_string(&mut answer).await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok\n"),
        "{answer}"
    );
    assert!(answer.contains("connection: close"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn connections_are_few_in_all_and_from_one_address() {
    let world = world();
    let from = |last: u8| {
        let dial = |_| world.dial_from([10, 0, 0, last]);
        (0..admin::CONNECTIONS_PER_ADDRESS).map(dial).collect::<Vec<_>>()
    };
    let mut held: Vec<_> = (0..4).flat_map(&from).collect();
    assert_eq!(held.len(), admin::CONNECTIONS);
    let mut another = from(9).remove(0);
    assert_eq!(
        another.0.read(&mut [0; 1]).await.unwrap(),
        0,
        "there are so many in all"
    );
    held.truncate(admin::CONNECTIONS_PER_ADDRESS);
    sleep(Duration::from_millis(1)).await;
    let mut same = from(0).remove(0);
    assert_eq!(
        same.0.read(&mut [0; 1]).await.unwrap(),
        0,
        "and so many from one address"
    );
    let mut another = from(9).remove(0);
    another.0.write_all(ASKS).await.unwrap();
    let mut answer = String::new();
    another.0.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("ok\n"), "{answer}");
}
