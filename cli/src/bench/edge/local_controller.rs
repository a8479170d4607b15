//! What the real local controller costs on its node: memory idle and under load, processor time and syncs of the disk for
//! each change from the manager and each report of a worker.
//!
//! Its Datasets name files that are not there, so each edit of one makes it look for a file, and report that there is none.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::json;
use skerry_dist::binaries;
use skerry_localcontroller::worker_api::limits;
use tokio::{
    task::spawn_blocking,
    time::{Instant, interval, sleep},
};

use super::{
    super::{costs::Costs, figures::Round, manager::Manager, say},
    Sizes,
    declared::{Declared, Kind},
    fleet::Target,
    orders::node,
    syncs::Syncs,
    world::{Link, World},
};
use crate::{
    failure::Failure,
    process::{Process, free_port},
    scrape::scrape,
};

/// How often it is asked how it stands: another process raises no event here.
const LOOK: Duration = Duration::from_millis(100);
/// Whatever takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(600);
/// Where there is no local controller to measure.
const HINT: &str = "name one with --local-controller, or leave this measurement out with --only";

/// Measures with so many objects: in plain, then over TLS, which weighs more and leaves the disk as it is.
pub(super) async fn take(world: &World, objects: u32, sizes: &Sizes) -> Result<Round, Failure> {
    let subject = Subject::find(sizes.local_controller.clone()).await?;
    let datasets = world.load(Kind::Dataset, objects, 1);
    let service = world.load(Kind::Service, 1, 1);
    datasets.declare().await?;
    service.declare().await?;
    let mut round = Round::new(world.conditions([
        ("objects", json!(objects)),
        ("reports", json!(sizes.reports)),
        ("binary", json!(subject.program)),
        ("binary_kind", json!(subject.kind)),
    ]));
    round.took("localcontroller_binary_bytes", subject.bytes, "bytes");
    for link in Link::ALL {
        let (manager, target) = world.manager(link).await?;
        let controller = Controller::start(&subject.program, world, link, &target).await?;
        controller
            .until("all objects", |items| items >= f64::from(objects + 1))
            .await?;
        manager.quiet().await;
        let worker = service.edge_worker(0).await?;
        let loads = Loads {
            world,
            datasets: &datasets,
            manager: &manager,
            controller: &controller,
            worker: &worker,
            sizes,
        };
        loads.weigh(link, &mut round).await?;
        if link == Link::Plain {
            loads.count_syncs(&mut round).await?;
        }
        controller.process.end().await;
        manager.end().await;
    }
    Ok(round)
}

/// The program that is measured.
struct Subject {
    program: PathBuf,
    /// Which one it is, for the conditions.
    kind: &'static str,
    bytes: f64,
}

impl Subject {
    /// The one that is named, or else one that is built now as it is shipped: never another one, which may weigh twice as much,
    /// nor one of before.
    async fn find(named: Option<PathBuf>) -> Result<Self, Failure> {
        let (program, kind) = match named {
            Some(named) => (named, "as it was named"),
            None => Self::build().await?,
        };
        let file = std::fs::metadata(&program)
            .map_err(|error| Failure::new(format!("{}: {error}", program.display()), HINT))?;
        #[expect(clippy::cast_precision_loss, reason = "the size of a binary fits")]
        let bytes = file.len() as f64;
        Ok(Self { program, kind, bytes })
    }

    async fn build() -> Result<(PathBuf, &'static str), Failure> {
        say("the local controller is built as it is shipped, which takes minutes where that was not done before");
        let cargo = || binaries::local_controller(&skerry_dist::root());
        let built = spawn_blocking(cargo).await.map_err(|error| Failure::new(error, HINT))?;
        let built = built.map_err(|error| Failure::new(format!("{error:#}"), HINT))?;
        let kind = if built.shipped {
            "as it is shipped"
        } else {
            "as it is shipped, but with this machine's C library instead of musl"
        };
        Ok((built.binary, kind))
    }
}

/// A local controller that runs.
struct Controller {
    process: Process,
    costs: Costs,
    address: SocketAddr,
}

impl Controller {
    /// Starts one with nothing in its store.
    async fn start(program: &Path, world: &World, link: Link, target: &Target) -> Result<Self, Failure> {
        let (folder, name) = (world.folder(), node(0));
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let port = address.port().to_string();
        let root = folder.join(format!("node-{}", link.word())).display().to_string();
        let (manager, token) = match link {
            Link::Plain => (target.manager.to_string(), None),
            Link::Tls => (format!("wss://{}", target.manager), Some(world.invite(&name).await?)),
        };
        let token = token.map(|file| file.display().to_string());
        let mut arguments = vec![
            "--gm-address",
            &manager,
            "--node-name",
            &name,
            "--bind-address",
            "127.0.0.1",
            "--bind-port",
            &port,
            "--rootfs-mount-dir",
            &root,
        ];
        arguments.extend(token.iter().flat_map(|file| ["--join-token-file", file]));
        let process = Process::start_program(program, "localcontroller", &arguments, &[], folder)?;
        let hint = || format!("{} says more", folder.join("localcontroller.log").display());
        let costs = Costs::of(&process).ok_or_else(|| Failure::new("the local controller ended at once", hint()))?;
        Ok(Self {
            process,
            costs,
            address,
        })
    }

    async fn figure(&self, name: &str) -> Option<f64> {
        scrape(self.address)
            .await?
            .total(&format!("skerry_localcontroller_{name}"))
    }

    /// Waits until its store holds so many items.
    async fn until(&self, what: &str, is: impl Fn(f64) -> bool) -> Result<(), Failure> {
        let begun = Instant::now();
        while !self.figure("items").await.is_some_and(&is) {
            if begun.elapsed() > PATIENCE {
                return Err(Failure::new(
                    format!("not seen at the local controller within {PATIENCE:?}: {what}"),
                    "its log may say why",
                ));
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// Waits until its outbox is empty.
    async fn delivered(&self) -> Result<(), Failure> {
        let begun = Instant::now();
        while self.figure("outbox_reports").await != Some(0.0) {
            if begun.elapsed() > PATIENCE {
                return Err(Failure::new(
                    format!("the outbox of the local controller is not empty within {PATIENCE:?}"),
                    "its log may say why",
                ));
            }
            sleep(LOOK).await;
        }
        Ok(())
    }
}

/// What a local controller has to do.
#[derive(Clone, Copy)]
enum Load {
    /// It stores what the manager sends.
    Changes,
    /// It takes what a worker reports.
    Reports,
}

impl Load {
    fn word(self) -> &'static str {
        match self {
            Self::Changes => "change",
            Self::Reports => "report",
        }
    }
}

struct Loads<'a> {
    world: &'a World,
    datasets: &'a Declared<'a>,
    manager: &'a Manager,
    controller: &'a Controller,
    /// The one that reports.
    worker: &'a str,
    sizes: &'a Sizes,
}

impl Loads<'_> {
    /// What it weighs before, after and at most, and what a message costs it.
    async fn weigh(&self, link: Link, round: &mut Round) -> Result<(), Failure> {
        let costs = &self.controller.costs;
        let suffix = match link {
            Link::Plain => "",
            Link::Tls => ".tls",
        };
        let idle = costs.memory()?;
        round.took(format!("localcontroller_rss_bytes{suffix}"), idle.resident, "bytes");
        for load in [Load::Changes, Load::Reports] {
            let before = costs.processor_seconds()?;
            let messages = self.put(load).await?;
            let processor = costs.processor_seconds()? - before;
            let name = format!("localcontroller_cpu_seconds_per_{}{suffix}", load.word());
            round.took(name, processor / messages, "s");
        }
        let loaded = costs.memory()?;
        for (figure, bytes) in [("after_load", loaded.resident), ("peak", loaded.peak)] {
            round.took(format!("localcontroller_rss_{figure}_bytes{suffix}"), bytes, "bytes");
        }
        Ok(())
    }

    /// How often a message has it sync the disk. Once more, since whoever counts system calls makes them slow.
    async fn count_syncs(&self, round: &mut Round) -> Result<(), Failure> {
        for load in [Load::Changes, Load::Reports] {
            let Some(syncs) = Syncs::count(self.controller.costs.pid(), self.world.folder()).await else {
                say("syncs of the disk are not counted: strace is not there, or may not look at processes");
                break;
            };
            let messages = self.put(load).await?;
            let counted = syncs.end().await?;
            let name = format!("localcontroller_fsyncs_per_{}", load.word());
            round.took(name, counted / messages, "fsyncs");
        }
        Ok(())
    }

    /// Puts one on it, and waits until all is done; how many messages that were.
    async fn put(&self, load: Load) -> Result<f64, Failure> {
        let messages = match load {
            Load::Changes => {
                let before = self.controller.figure("changes_stored_total").await;
                self.datasets.edit_in_rounds(self.sizes.rounds).await?;
                self.manager.quiet().await;
                let after = self.controller.figure("changes_stored_total").await;
                let stored = after.zip(before).map(|(after, before)| after - before);
                stored
                    .filter(|stored| *stored > 0.0)
                    .ok_or_else(|| Failure::new("the local controller has stored nothing", "its log may say why"))?
            }
            Load::Reports => {
                self.report().await?;
                f64::from(self.sizes.reports)
            }
        };
        self.controller.delivered().await?;
        Ok(messages)
    }

    /// Reports as a worker of the service does, many times, as fast as one may for long.
    async fn report(&self) -> Result<(), Failure> {
        let client = reqwest::Client::new();
        let address = format!("http://{}/sedna/workers/{}/info", self.controller.address, self.worker);
        let mut due = interval(limits::EVERY.mul_f64(1.05));
        for number in 0..self.sizes.reports {
            due.tick().await;
            let message = json!({
                "name": self.worker, "namespace": self.world.namespace(), "ownerName": "service-00000",
                "ownerKind": "jointinferenceservice", "kind": "inference",
                "ownerInfo": {"inferenceNumber": number, "hardExampleNumber": 0, "uploadCloudRatio": 0.0},
            });
            let request = client.post(&address).header("content-type", "application/json");
            let answer = request.body(message.to_string()).send().await;
            answer.and_then(reqwest::Response::error_for_status).map_err(|error| {
                Failure::new(
                    format!("the local controller did not take a report: {error}"),
                    "its log may say why",
                )
            })?;
        }
        Ok(())
    }
}
