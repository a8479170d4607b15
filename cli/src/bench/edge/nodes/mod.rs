//! The simulated nodes, all in one process: each is the protocol crate's session over a socket of its own, as in a local
//! controller, with a store in memory. What they cost is not measured.

mod ledger;
mod store;
mod traffic;

use std::{collections::BTreeMap, io, net::SocketAddr, ops::Range, path::Path, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use rustls::ClientConfig;
use skerry_edge::{
    identity::{
        Authority, NodeKey,
        trust::{Trust, node_config},
    },
    link::{self, Signals},
    node::{Identity, Session, State},
    transport::{
        client::{Dialer, TcpDialer},
        tls::TlsDialer,
    },
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    sync::watch,
    task::JoinHandle,
    time::interval,
};
use tokio_util::sync::CancellationToken;

use self::{
    ledger::Ledger,
    store::Memory,
    traffic::{Counting, Traffic},
};
use super::orders::{Answer, Looked, Order, node};
use crate::failure::Failure;

/// For how long certificates are good: longer than any bench.
const LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 7);
/// How many times in a second nodes are started, where they are started slowly.
const STEPS: u32 = 20;

/// Carries out orders from stdin until there are no more.
pub(super) async fn run() -> Result<(), Failure> {
    let gone = |error: io::Error| Failure::new(format!("the bench is gone: {error}"), "start the bench, not this part");
    let mut nodes = Nodes::default();
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    let mut answers = tokio::io::stdout();
    while let Some(order) = orders.next_line().await.map_err(gone)? {
        let answer = match serde_json::from_str(&order) {
            Ok(order) => nodes.carry_out(order).await,
            Err(error) => Answer::Failed(error.to_string()),
        };
        let mut answer = serde_json::to_string(&answer).map_err(Failure::defect)?;
        answer.push('\n');
        answers.write_all(answer.as_bytes()).await.map_err(gone)?;
        answers.flush().await.map_err(gone)?;
    }
    Ok(())
}

#[derive(Default)]
struct Nodes {
    all: BTreeMap<u32, Node>,
    ledger: Arc<Ledger>,
    traffic: Arc<Traffic>,
}

/// One node, whether it is connected or not.
#[derive(Default)]
struct Node {
    store: Arc<Memory>,
    /// Its certificate, once it needed one.
    config: Option<Arc<ClientConfig>>,
    link: Option<Link>,
}

struct Link {
    signals: Signals,
    task: JoinHandle<()>,
}

impl Nodes {
    async fn carry_out(&mut self, order: Order) -> Answer {
        match order {
            Order::Start {
                manager,
                authority,
                nodes,
                per_second,
            } => match self.start(manager, authority.as_deref(), nodes, per_second).await {
                Ok(()) => Answer::Done,
                Err(why) => Answer::Failed(why),
            },
            Order::Certify { authority, nodes } => match self.certify(&authority, nodes) {
                Ok(()) => Answer::Done,
                Err(why) => Answer::Failed(why),
            },
            Order::Stop => {
                self.stop().await;
                Answer::Done
            }
            Order::Copy => {
                for node in self.all.values() {
                    node.store.copy();
                }
                Answer::Done
            }
            Order::PutBack => {
                self.stop().await;
                self.ledger.forget();
                for node in self.all.values() {
                    node.store.put_back();
                }
                Answer::Done
            }
            Order::Expect(generations) => {
                self.ledger.expect(generations);
                Answer::Done
            }
            Order::Look => Answer::Looked(self.look()),
            Order::Stored => Answer::Stored(self.ledger.take()),
            Order::Held => {
                let held = |(number, known): (&u32, &Node)| known.store.held(&node(*number));
                Answer::Held(self.all.iter().flat_map(held).collect())
            }
        }
    }

    async fn start(
        &mut self,
        manager: SocketAddr,
        authority: Option<&Path>,
        numbers: Range<u32>,
        per_second: u32,
    ) -> Result<(), String> {
        self.make(numbers.clone());
        if let Some(folder) = authority {
            self.certify(folder, numbers.clone())?;
        }
        let mut due = interval(Duration::from_secs(1) / STEPS);
        let step = per_second.div_ceil(STEPS).max(1);
        for (started, number) in (0..).zip(numbers) {
            if started % step == 0 {
                due.tick().await;
            }
            let Some(node) = self.all.get_mut(&number) else {
                continue;
            };
            let address = manager.to_string();
            match (authority, &node.config) {
                (Some(_), Some(config)) => {
                    let dialer = TlsDialer::new(address, watch::channel(config.clone()).1);
                    node.connect(number, Counting::new(dialer, self.traffic.clone()));
                }
                _ => node.connect(number, Counting::new(TcpDialer::new(address), self.traffic.clone())),
            }
        }
        Ok(())
    }

    /// Makes those that are not there yet.
    fn make(&mut self, numbers: Range<u32>) {
        for number in numbers {
            let ledger = &self.ledger;
            self.all.entry(number).or_insert_with(|| Node {
                store: Arc::new(Memory::new(ledger.clone())),
                ..Node::default()
            });
        }
    }

    /// Gives nodes that have none a certificate.
    fn certify(&mut self, folder: &Path, numbers: Range<u32>) -> Result<(), String> {
        self.make(numbers.clone());
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let authority = Authority::read(&read(super::authority::CERTIFICATE)?, &read(super::authority::KEY)?);
        let authority = authority.map_err(|error| error.to_string())?;
        for (number, node) in self.all.range_mut(numbers) {
            if node.config.is_none() {
                node.config = Some(certified(&authority, *number).map_err(|error| error.to_string())?);
            }
        }
        Ok(())
    }

    async fn stop(&mut self) {
        let links: Vec<Link> = self.all.values_mut().filter_map(|node| node.link.take()).collect();
        for link in &links {
            link.signals.stop.cancel();
        }
        for link in links {
            // A link that broke down has no session either.
            let _ = link.task.await;
        }
    }

    fn look(&self) -> Looked {
        let live = |node: &&Node| {
            let link = node.link.as_ref();
            link.is_some_and(|link| *link.signals.state.borrow() == State::Live)
        };
        let mut looked = Looked {
            live: u32::try_from(self.all.values().filter(live).count()).unwrap_or(u32::MAX),
            missing: self.ledger.missing(),
            ..self.traffic.so_far()
        };
        for node in self.all.values() {
            let counts = node.store.counts();
            looked.bodies += counts.bodies;
            looked.deletions += counts.deletions;
            looked.backwards += counts.backwards;
        }
        looked
    }
}

impl Node {
    fn connect<D: Dialer + 'static>(&mut self, number: u32, dialer: D) {
        let identity = Identity {
            node: node(number),
            boot: format!("{:016x}", rand::random::<u64>()),
            agent: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let (position, holds) = self.store.stands();
        let session = Session::new(identity, position, holds);
        let signals = Signals::new(CancellationToken::new());
        let task = tokio::spawn(link::run(
            session,
            dialer,
            self.store.clone(),
            signals.clone(),
            rand::random::<f64>,
        ));
        // One that was connected already is replaced, as a node that was started twice.
        if let Some(before) = self.link.replace(Link { signals, task }) {
            before.signals.stop.cancel();
        }
    }
}

fn certified(authority: &Authority, number: u32) -> Result<Arc<ClientConfig>, Box<dyn std::error::Error>> {
    let key = NodeKey::generate()?;
    let certificate = authority.issue(&node(number), &key.request()?, Timestamp::now(), LIFETIME)?;
    let trust = Trust::Authority(authority.certificate().clone());
    Ok(Arc::new(node_config(trust, Some((certificate, &key)))?))
}
