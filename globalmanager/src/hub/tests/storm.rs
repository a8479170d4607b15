//! Nodes that come all at once.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use skerry_edge::{
    Downstream, Epoch, ObjectKey, Upstream,
    cloud::Server,
    message::{Hello, Received},
    transport::{
        Event,
        client::{self, NodeSocket},
    },
};
use tokio::{
    io::DuplexStream,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    super::{Answers, Hub, Reported, Reports},
    cluster::{PipeDialer, pipes},
};

/// Nobody reports here.
pub(super) struct NoReports;

#[async_trait]
impl Reports for NoReports {
    async fn take(&self, _: &ObjectKey, _: &[Reported]) -> Answers {
        Answers {
            each: Vec::new(),
            asked: false,
        }
    }
}

/// A node's session, or when it is to come back.
pub(super) async fn come(dialer: &PipeDialer, node: usize) -> Result<NodeSocket<DuplexStream>, Duration> {
    let mut socket = client::connect(dialer).await.unwrap();
    socket.send(Upstream::Hello(Hello {
        node: format!("edge-{node}"),
        boot: "boot".to_owned(),
        protocol: 1,
        agent: "test".to_owned(),
        stored: None,
        holds: 0,
        window: None,
    }));
    loop {
        match socket.next().await.unwrap() {
            Event::Frame(Ok(Received::Message(Downstream::Welcome { .. }))) => return Ok(socket),
            Event::Frame(Ok(Received::Message(Downstream::Restarting { reconnect_after_ms }))) => {
                return Err(Duration::from_millis(reconnect_after_ms));
            }
            Event::Heard | Event::Pong(_) => {}
            Event::Frame(frame) => panic!("{frame:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_nodes_that_come_all_at_once_each_has_its_turn_and_all_are_in_soon() {
    const NODES: usize = 3_000;
    let hub = Hub::with_jitter(|| 0.0);
    let (cluster, lease) = ("c".to_owned(), "l".to_owned());
    let epoch = Epoch {
        lease,
        transitions: 0,
        made: None,
    };
    hub.lead(Server { cluster, epoch }, Arc::new(NoReports));
    let (dialer, taken) = pipes();
    let serving = hub.clone();
    tokio::spawn(async move { serving.serve_on(taken, CancellationToken::new()).await });

    let (mut live, mut later) = (Vec::new(), Vec::new());
    let began = Instant::now();
    for node in 0..NODES {
        match come(&dialer, node).await {
            Ok(session) => live.push(session),
            Err(after) => later.push((node, after)),
        }
    }
    assert_eq!(began.elapsed(), Duration::ZERO, "all at once");
    assert_eq!((live.len(), later.len()), (2_000, 1_000));
    assert!(
        later.windows(2).all(|pair| pair[0].1 < pair[1].1),
        "each has a time of its own"
    );
    assert!(later.iter().all(|(_, after)| *after <= Duration::from_secs(1)));
    assert_eq!(hub.snapshot().refused, [("busy", 1_000)].into());
    for (node, after) in later {
        sleep_until(began + after).await;
        live.push(come(&dialer, node).await.expect("it comes when it was told to"));
    }
    assert_eq!(hub.snapshot().sessions, NODES);
    // Those who come one after the other never notice.
    sleep(Duration::from_secs(2)).await;
    for node in NODES..NODES + 2_000 {
        live.push(come(&dialer, node).await.expect("there is room again"));
    }
}
