//! The manager of one node: takes its connections, tells it what is declared, keeps what it reports.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use skerry_edge::{
    Downstream, Epoch, Item, ItemKey, ReportResult, Row, Upstream,
    cloud::{End, Input, Node, Output, Peer, Server, Session, Verdict},
    message::{Received, Start},
    report::Report,
    transport::{
        Event,
        server::{self, ManagerSocket},
    },
};
use tokio::{
    net::TcpListener,
    sync::watch,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Longer than anything here takes, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A manager, and its cluster.
pub struct Cloud {
    shared: Arc<Shared>,
    port: u16,
    listening: Option<DropGuard>,
}

struct Shared {
    origin: Instant,
    state: Mutex<State>,
    sessions: AtomicU64,
    /// Sent whenever anything changes.
    changed: watch::Sender<()>,
}

struct State {
    server: Server,
    node: Node,
    /// Whether it is known what the node holds.
    synced: bool,
    declared: BTreeMap<ItemKey, Item>,
    reports: Vec<Report>,
    gaps: u64,
    /// Whether it asks nodes where they belong.
    checks: bool,
    /// Why the node has refused the manager.
    refused: Option<String>,
    /// Of the present run of the manager.
    run: CancellationToken,
}

impl Cloud {
    /// A cluster whose manager is not up; nodes find nothing at its address.
    pub async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let state = State {
            server: Server {
                cluster: "cluster".to_owned(),
                epoch: Epoch {
                    lease: "lease".to_owned(),
                    transitions: 0,
                    made: None,
                },
            },
            node: Node::default(),
            synced: false,
            declared: BTreeMap::new(),
            reports: Vec::new(),
            gaps: 0,
            checks: true,
            refused: None,
            run: CancellationToken::new(),
        };
        let shared = Shared {
            origin: Instant::now(),
            state: Mutex::new(state),
            sessions: AtomicU64::new(0),
            changed: watch::Sender::new(()),
        };
        Self {
            shared: Arc::new(shared),
            port: listener.local_addr().unwrap().port(),
            listening: None,
        }
    }

    /// A cluster whose manager is up.
    pub async fn up() -> Self {
        let mut cloud = Self::new().await;
        cloud.start().await;
        cloud
    }

    /// Another cluster, with nothing declared, whose manager is up and takes any node for one of its own.
    pub async fn of_another_cluster() -> Self {
        let mut cloud = Self::new().await;
        {
            let mut state = cloud.shared.lock();
            "another".clone_into(&mut state.server.cluster);
            state.checks = false;
        }
        cloud.start().await;
        cloud
    }

    /// The manager's address.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Starts a run of the manager: it knows what is declared and nothing of the node.
    pub async fn start(&mut self) {
        self.stop();
        {
            let mut state = self.shared.lock();
            state.server.epoch.transitions += 1;
            state.node = Node::default();
            state.synced = false;
            state.run = CancellationToken::new();
            let State { node, declared, .. } = &mut *state;
            for item in declared.values() {
                node.objects.set(Duration::ZERO, item.clone());
            }
        }
        let listener = loop {
            match TcpListener::bind(self.address()).await {
                Ok(listener) => break listener,
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        };
        let shared = self.shared.clone();
        let router = server::router(move |peer, socket| shared.clone().serve(peer, socket));
        let stop = CancellationToken::new();
        self.listening = Some(stop.clone().drop_guard());
        tokio::spawn(server::serve(listener, router, stop));
    }

    /// Ends the run of the manager as a crash does.
    pub fn stop(&mut self) {
        self.listening = None;
        self.shared.lock().run.cancel();
    }

    /// Declares an item for the node, or a newer content of one.
    pub fn declare(&self, item: Item) {
        self.shared.change(|state, now| {
            state.node.objects.set(now, item.clone());
            state.declared.insert(item.key(), item);
        });
    }

    /// Declares that the node is to hold nothing under this key.
    pub fn withdraw(&self, key: &ItemKey) {
        self.shared.change(|state, now| {
            state.node.objects.remove(now, key);
            state.declared.remove(key);
        });
    }

    /// What the node should hold, in order.
    pub fn declared(&self) -> Vec<Row> {
        let mut rows: Vec<_> = self.shared.lock().declared.values().map(Item::row).collect();
        rows.sort();
        rows
    }

    /// What the node has reported, in the order in which it came.
    pub fn reports(&self) -> Vec<Report> {
        self.shared.lock().reports.clone()
    }

    /// How many reports the node has given up.
    pub fn gaps(&self) -> u64 {
        self.shared.lock().gaps
    }

    /// Returns once the node has acknowledged all that is declared.
    pub async fn acknowledged(&self) {
        self.until("all to be acknowledged", |state| {
            state.synced && state.node.objects.counts().unacked == 0
        })
        .await;
    }

    /// Returns once the node has refused the manager, with why, or has acknowledged all that is declared.
    pub async fn done_with(&self) -> Option<String> {
        let acknowledged = |state: &State| state.synced && state.node.objects.counts().unacked == 0;
        self.until("the node to take it or leave it", |state| {
            state.refused.is_some() || acknowledged(state)
        })
        .await;
        self.shared.lock().refused.clone()
    }

    /// Returns once the node has said that it has given up so many reports.
    pub async fn gave_up(&self, reports: u64) {
        self.until("reports to be given up", |state| state.gaps == reports)
            .await;
    }

    /// Returns once the node has reported what satisfies this.
    pub async fn reported(&self, what: impl Fn(&[Report]) -> bool) {
        self.until("reports", |state| what(&state.reports)).await;
    }

    async fn until(&self, what: &str, reached: impl Fn(&State) -> bool) {
        let mut changed = self.shared.changed.subscribe();
        let waiting = async {
            while !reached(&self.shared.lock()) {
                changed.changed().await.unwrap();
            }
        };
        if timeout(PATIENCE, waiting).await.is_err() {
            let state = self.shared.lock();
            panic!(
                "waited for {what}: {:?}, {} reports",
                state.node.objects.counts(),
                state.reports.len()
            );
        }
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State, Duration)) {
        change(&mut self.lock(), self.origin.elapsed());
        self.changed.send_replace(());
    }

    async fn serve(self: Arc<Self>, peer: Peer, mut socket: ManagerSocket) {
        let Ok(Event::Frame(Ok(Received::Message(Upstream::Hello(hello))))) = socket.next().await else {
            panic!("a session begins with a hello");
        };
        assert_eq!(hello.node, super::NODE);
        let number = self.sessions.fetch_add(1, Ordering::Relaxed);
        let mut changed = self.changed.subscribe();
        let (mut session, outputs, run) = {
            let mut state = self.lock();
            let State {
                server,
                node,
                run,
                checks,
                ..
            } = &mut *state;
            if *checks {
                server.check(&peer, &hello).unwrap();
            }
            let (session, outputs) = Session::start(self.origin.elapsed(), number, server, &peer, hello, node);
            (session, outputs, run.clone())
        };
        self.carry_out(&session, outputs, &mut socket);
        while let Some(wake_at) = session.wake_at() {
            let input = tokio::select! {
                () = run.cancelled() => return,
                event = socket.next() => match event {
                    Ok(Event::Frame(frame)) => Input::Frame(frame),
                    Ok(Event::Heard) => Input::Heard,
                    Ok(Event::Pong(_)) => Input::Pong,
                    Err(_) => return,
                },
                _ = changed.changed() => Input::Wake,
                () = sleep_until(self.origin + wake_at) => Input::Wake,
            };
            let outputs = session.handle(self.origin.elapsed(), input, &mut self.lock().node, &|_| true);
            self.changed.send_replace(());
            // Our own change is no news to us; what comes of the outputs is.
            changed.mark_unchanged();
            self.carry_out(&session, outputs, &mut socket);
        }
        socket.close().await;
    }

    fn carry_out(&self, session: &Session, outputs: Vec<Output>, socket: &mut ManagerSocket) {
        for output in outputs {
            match output {
                Output::Send(frame) => {
                    match &frame {
                        Downstream::Welcome { start, .. } => self.lock().synced = *start == Start::Resume {},
                        Downstream::Synced { .. } => self.lock().synced = true,
                        _ => {}
                    }
                    socket.send(frame);
                }
                Output::Ping => socket.ping(),
                Output::Close { end, cause } => {
                    eprintln!("the manager ends a session: {cause}");
                    if end == End::RefusedByNode {
                        self.lock().refused = Some(cause);
                        self.changed.send_replace(());
                    }
                }
                Output::Report(report) => {
                    let mut state = self.lock();
                    let done = Verdict::Done(ReportResult::Accepted {});
                    state.node.finish_report(session.boot(), report.seq, done);
                    state.reports.push(report);
                    drop(state);
                    self.changed.send_replace(());
                }
                Output::Gap { count } => self.lock().gaps += count,
                Output::Denied(denial) => eprintln!("the manager refuses a report: {denial}"),
                Output::Acked { .. } | Output::Strays(_) => {}
            }
        }
    }
}
