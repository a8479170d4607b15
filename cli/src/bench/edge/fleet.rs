//! The process of simulated nodes, from outside: starts it, gives it orders, and waits for what comes of them.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    ops::Range,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::{Instant, sleep},
};

use super::{
    super::costs::Costs,
    orders::{Answer, Held, Looked, Order, Stored},
};
use crate::failure::Failure;

/// How often it is asked how it stands: it tells nothing by itself.
const LOOK: Duration = Duration::from_millis(100);
/// Whatever takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(1800);

/// With nothing new for so long, nothing more comes: longer than a manager takes to follow one that was killed, and than a
/// node waits before it dials again.
const SILENCE: Duration = Duration::from_secs(90);

/// Where nodes connect, and how.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// Where the manager listens, or whoever stands before it.
    pub(super) manager: SocketAddr,
    /// The folder of the authority, where nodes connect over TLS.
    pub(super) authority: Option<PathBuf>,
}

/// The process. It ends when this is dropped: its orders end.
pub(super) struct Fleet {
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Fleet {
    /// Starts the process; there are no nodes yet.
    pub(super) fn start(logs: &Path) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(
                format!("the process of nodes cannot be started: {error}"),
                "see whether the disk is full or the temporary directory forbids writing",
            )
        };
        let log = std::fs::File::create(logs.join("nodes.log")).map_err(failed)?;
        let mut child = Command::new(std::env::current_exe().map_err(failed)?)
            .args(["bench-part", "nodes"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let (orders, answers) = child.stdin.take().zip(child.stdout.take()).ok_or_else(gone)?;
        Ok(Self {
            child,
            orders,
            answers: BufReader::new(answers).lines(),
        })
    }

    /// What it costs.
    pub(super) fn costs(&self) -> Result<Costs, Failure> {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        id.and_then(Costs::of_id).ok_or_else(gone)
    }

    /// Has nodes connect, so many in a second, and waits until all nodes that were ever started have a session.
    pub(super) async fn connect(&mut self, target: &Target, nodes: Range<u32>, per_second: u32) -> Result<(), Failure> {
        let all = nodes.end;
        let Target { manager, authority } = target.clone();
        let order = Order::Start {
            manager,
            authority,
            nodes,
            per_second,
        };
        self.done(&order).await?;
        self.until("a session of every node", |looked| looked.live >= all)
            .await?;
        Ok(())
    }

    /// Makes the certificates of nodes that are to connect, where they need some.
    pub(super) async fn certify(&mut self, target: &Target, nodes: Range<u32>) -> Result<(), Failure> {
        match target.authority.clone() {
            Some(authority) => self.done(&Order::Certify { authority, nodes }).await,
            None => Ok(()),
        }
    }

    /// Ends all sessions.
    pub(super) async fn disconnect(&mut self) -> Result<(), Failure> {
        self.done(&Order::Stop).await
    }

    /// Keeps a copy of what each node has stored.
    pub(super) async fn copy(&mut self) -> Result<(), Failure> {
        self.done(&Order::Copy).await
    }

    /// Ends all sessions, and puts those copies in the place of what nodes have stored since.
    pub(super) async fn put_back(&mut self) -> Result<(), Failure> {
        self.done(&Order::PutBack).await
    }

    /// Waits until nodes have stored these generations of objects.
    pub(super) async fn have(&mut self, generations: BTreeMap<String, i64>) -> Result<(), Failure> {
        self.expect(generations).await?;
        self.until("all objects on their nodes", |looked| looked.missing == 0)
            .await?;
        Ok(())
    }

    /// The same, or until nothing has come for a while.
    pub(super) async fn settle(&mut self, generations: BTreeMap<String, i64>) -> Result<(), Failure> {
        self.expect(generations).await?;
        let (mut before, mut since) = (self.look().await?, Instant::now());
        while before.missing > 0 && since.elapsed() < SILENCE {
            sleep(LOOK).await;
            let now = self.look().await?;
            if (now.bodies, now.live) != (before.bodies, before.live) {
                since = Instant::now();
            }
            before = now;
        }
        Ok(())
    }

    /// Has these generations of objects waited for; see [`Looked::missing`].
    pub(super) async fn expect(&mut self, generations: BTreeMap<String, i64>) -> Result<(), Failure> {
        self.done(&Order::Expect(generations)).await
    }

    /// Waits until it stands as `is` wants.
    pub(super) async fn until(&mut self, what: &str, is: impl Fn(&Looked) -> bool) -> Result<Looked, Failure> {
        let begun = Instant::now();
        loop {
            let looked = self.look().await?;
            if is(&looked) {
                return Ok(looked);
            }
            if begun.elapsed() > PATIENCE {
                return Err(Failure::new(
                    format!("not seen within {PATIENCE:?}: {what}; there is {looked:?}"),
                    "the manager's log may say why; a smaller load may fit this machine",
                ));
            }
            sleep(LOOK).await;
        }
    }

    /// How it stands.
    pub(super) async fn look(&mut self) -> Result<Looked, Failure> {
        match self.ask(&Order::Look).await? {
            Answer::Looked(looked) => Ok(looked),
            other => Err(unfit(&other)),
        }
    }

    /// What was stored when, since this was asked last.
    pub(super) async fn stored(&mut self) -> Result<BTreeMap<String, Vec<Stored>>, Failure> {
        match self.ask(&Order::Stored).await? {
            Answer::Stored(stored) => Ok(stored),
            other => Err(unfit(&other)),
        }
    }

    /// What nodes hold.
    pub(super) async fn held(&mut self) -> Result<Vec<Held>, Failure> {
        match self.ask(&Order::Held).await? {
            Answer::Held(held) => Ok(held),
            other => Err(unfit(&other)),
        }
    }

    async fn done(&mut self, order: &Order) -> Result<(), Failure> {
        match self.ask(order).await? {
            Answer::Done => Ok(()),
            other => Err(unfit(&other)),
        }
    }

    async fn ask(&mut self, order: &Order) -> Result<Answer, Failure> {
        let mut order = serde_json::to_string(order).map_err(Failure::defect)?;
        order.push('\n');
        self.orders.write_all(order.as_bytes()).await.map_err(|_| gone())?;
        self.orders.flush().await.map_err(|_| gone())?;
        let answer = self.answers.next_line().await.ok().flatten().ok_or_else(gone)?;
        serde_json::from_str(&answer).map_err(Failure::defect)
    }
}

fn gone() -> Failure {
    Failure::new("the process of nodes has ended", "see whether there is memory enough")
}

fn unfit(answer: &Answer) -> Failure {
    match answer {
        Answer::Failed(why) => Failure::new(why, "see the limits of this machine: open files, memory"),
        other => Failure::defect(format!("the nodes answered {other:?}")),
    }
}
