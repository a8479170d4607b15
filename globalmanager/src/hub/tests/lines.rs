//! What the manager logs of a node that is denied what it says.

use std::{io, net::Ipv4Addr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::{Value, json};
use skerry_edge::{
    Epoch, ObjectKey,
    cloud::{Peer, Server},
    limits,
    seldom::LOG_EVERY,
};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{
    Dispatch, Level,
    subscriber::{DefaultGuard, NoSubscriber},
};

use super::{
    super::Hub,
    cluster::{NODE, Running, pipes},
    storm::NoReports,
};

/// The warnings of this thread.
struct Log {
    written: Arc<Mutex<Vec<u8>>>,
    _guard: DefaultGuard,
    /// As long as there is but one subscriber, a line that another test's thread comes upon first is off for all threads.
    _second: Dispatch,
}

impl Log {
    fn start() -> Self {
        let written = Arc::<Mutex<Vec<u8>>>::default();
        let subscriber = tracing_subscriber::fmt().json().with_max_level(Level::WARN);
        let to = Writer(written.clone());
        let subscriber = subscriber.with_writer(move || to.clone()).finish();
        Self {
            written,
            _guard: tracing::subscriber::set_default(subscriber),
            _second: Dispatch::new(NoSubscriber::default()),
        }
    }

    /// What the lines say so far.
    fn lines(&self) -> Vec<Value> {
        let written = String::from_utf8(self.written.lock().clone()).unwrap();
        let lines = written.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|mut line| line["fields"].take()).collect()
    }
}

#[derive(Clone)]
struct Writer(Arc<Mutex<Vec<u8>>>);

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_flood_of_denied_reports_one_line_is_logged_now_and_then_and_nothing_is_kept() {
    let log = Log::start();
    let hub = Hub::default();
    let epoch = Epoch {
        lease: "l".to_owned(),
        transitions: 0,
        made: None,
    };
    let cluster = "c".to_owned();
    hub.lead(Server { cluster, epoch }, Arc::new(NoReports));
    let (dialer, taken) = pipes();
    let serving = hub.clone();
    tokio::spawn(async move { serving.serve_on(taken, CancellationToken::new()).await });
    let node = Running::start(dialer);
    let of_others = ObjectKey::new("dataset", "default", "of-others");
    let denied = async |count: usize| {
        for _ in 0..count {
            node.disk.lock().invent(&of_others, "uid");
        }
        node.signals.outbox.notify_one();
        while !node.disk.lock().outbox.is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let line = |left_out: u64| {
        json!({
            "message": "a node may not report that", "node": NODE,
            "denial": format!("{of_others} is not placed on this node"), "left_out": left_out,
        })
    };

    let began = Instant::now();
    denied(100).await;
    assert_eq!(log.lines(), [line(0)]);
    assert!(began.elapsed() < LOG_EVERY);
    sleep_until(began + LOG_EVERY).await;
    assert_eq!(log.lines(), [line(0)], "where nothing more is denied nothing is said");
    // The first was denied within a second after it began.
    sleep(Duration::from_secs(1)).await;
    denied(1).await;
    assert_eq!(log.lines(), [line(0), line(99)]);
    assert_eq!(hub.snapshot().reports_denied, [("not_placed", 101)].into());

    node.stop().await;
    sleep(Duration::from_secs(1)).await;
    assert!(hub.nodes().is_empty(), "the hub keeps nothing of it");
}

#[tokio::test(start_paused = true)]
async fn of_a_flood_of_strangers_one_line_of_each_kind_is_logged_now_and_then() {
    let log = Log::start();
    let hub = Hub::default();
    let stranger = Peer {
        identity: None,
        confidential: false,
    };
    let flood = || {
        for _ in 0..100 {
            hub.refused("no_hello", &stranger, &"no hello");
        }
        let doors = hub.doors();
        let come = (0..limits::UNPROVEN_PER_ADDRESS + 100).map(|_| doors.enter(Ipv4Addr::LOCALHOST.into()));
        let turned = come.collect::<Vec<_>>().iter().filter(|came| came.is_err()).count();
        assert_eq!(turned, 100);
    };
    let line = |message: &str, left_out: u64| (message.to_owned(), left_out);
    let lines = || {
        let of = |line: Value| {
            (
                line["message"].as_str().unwrap().to_owned(),
                line["left_out"].as_u64().unwrap(),
            )
        };
        log.lines().into_iter().map(of).collect::<Vec<_>>()
    };
    let (refused, turned) = ("a node was refused", "a connection was turned away");
    flood();
    assert_eq!(lines(), [line(refused, 0), line(turned, 0)]);
    sleep(LOG_EVERY).await;
    flood();
    assert_eq!(lines()[2..], [line(refused, 99), line(turned, 99)]);
}
