//! What changes between an agent's admission and its session.

use skerry_sandbox::api::{Fault, Match};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;

/// Asks for an upgrade whose answer does not fit on the way.
async fn ask(dialer: PipeDialer) -> DuplexStream {
    let mut io = dialer.holding(16).dial().await.unwrap();
    let request = format!(
        "GET / HTTP/1.1\r\nHost: gm.sedna:9000\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {}\r\nNode-Name: {NODE}\r\n\r\n",
        STANDARD.encode([7; 16]),
    );
    io.write_all(request.as_bytes()).await.unwrap();
    io
}

/// Reads the answer, and goes on with the connection.
async fn upgraded(mut io: DuplexStream) -> SednaLc {
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(io.read_u8().await.unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 101 "), "{answer:?}");
    SednaLc {
        wire: WebSocketStream::from_raw_socket(io, Role::Client, None).await,
        held: Held::new(),
        told: Vec::new(),
        contents: Vec::new(),
        last: None,
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_let_in_terms_before_its_upgrade_ends_belongs_to_the_present_one() {
    let (cluster, dialer) = world(OldAgents::default()).await;
    let mut lc = SednaLc::up_to_date(&dialer).await;
    lc.settle().await;
    let writes = Match::writes().resource("datasets").subresource("status");
    let away = cluster.api.faults().inject(writes, Fault::InternalError);
    lc.report("dataset", "d", &json!({"numberOfSamples": 9})).await;
    sleep(Duration::from_secs(1)).await;
    assert!(away.hits() > 0, "it was tried, and waits");
    drop(lc);
    settle().await;

    let io = ask(dialer).await;
    sleep(Duration::from_secs(1)).await;
    // Another manager has led in between, and was told newer figures, say.
    cluster.hub.stand_down();
    cluster.lead_in(2, |engine| Arc::new(engine));
    away.remove();
    let mut lc = upgraded(io).await;
    cluster.edit(&dataset(), &json!({"spec": {"url": "/var/e.txt"}})).await;
    lc.until("it is told by the present term", |lc| lc.held.contains_key(DATASET))
        .await;
    lc.settle().await;
    let counted = async || cluster.status(&dataset()).await["numberOfSamples"].clone();
    assert_eq!(counted().await, Value::Null, "what was before counts no more");
    lc.report("dataset", "d", &json!({"numberOfSamples": 10})).await;
    lc.settle().await;
    assert_eq!(counted().await, 10);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_let_in_before_a_local_controller_of_ours_comes_does_not_take_its_place() {
    let (cluster, dialer) = world(OldAgents::default()).await;
    let io = ask(dialer).await;
    sleep(Duration::from_secs(1)).await;
    let node = Running::start(cluster.serve());
    sleep(Duration::from_secs(1)).await;
    let agent = || {
        let state = cluster.hub.shared.state.lock();
        state.connected.get(NODE).map(|connected| connected.agent.clone())
    };
    assert_eq!(agent().as_deref(), Some("test"));
    upgraded(io).await.ended().await;
    assert_eq!(agent().as_deref(), Some("test"));
    assert_eq!(cluster.hub.snapshot().refused, [("proves", 1)].into());
    node.stop().await;
}
