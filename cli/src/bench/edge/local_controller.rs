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
use skerry_localcontroller::worker_api::limits;
use tokio::time::{Instant, interval, sleep};

use super::{
    super::{costs::Costs, figures::Round, manager::Manager, say},
    Sizes,
    declared::{Declared, Kind},
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

/// Measures with so many objects.
pub(super) async fn take(world: &World, objects: u32, sizes: &Sizes) -> Result<Round, Failure> {
    let datasets = world.load(Kind::Dataset, objects, 1);
    let service = world.load(Kind::Service, 1, 1);
    datasets.declare().await?;
    service.declare().await?;
    let (manager, target) = world.manager(Link::Plain).await?;
    let binary = binary(sizes);
    let (program, role) = &binary;
    let controller = Controller::start(program, role, target.manager, world.folder())?;
    controller
        .until("all objects", |items| items >= f64::from(objects + 1))
        .await?;
    manager.quiet().await;
    let worker = service.edge_worker(0).await?;
    let idle = controller.costs.memory()?;

    let mut round = Round::new(world.conditions([
        ("objects", json!(objects)),
        ("reports", json!(sizes.reports)),
        ("binary", json!(program)),
    ]));
    round.took("localcontroller_rss_bytes", idle.resident, "bytes");
    let loads = Loads {
        world,
        datasets: &datasets,
        manager: &manager,
        controller: &controller,
        worker: &worker,
        sizes,
    };
    for load in [Load::Changes, Load::Reports] {
        let processor = controller.costs.processor_seconds()?;
        let messages = loads.put(load).await?;
        let processor = controller.costs.processor_seconds()? - processor;
        let message = load.word();
        round.took(
            format!("localcontroller_cpu_seconds_per_{message}"),
            processor / messages,
            "s",
        );
    }
    let loaded = controller.costs.memory()?;
    round.took("localcontroller_rss_after_load_bytes", loaded.resident, "bytes");
    round.took("localcontroller_rss_peak_bytes", loaded.peak, "bytes");
    // Once more, since whoever counts system calls makes them slow.
    for load in [Load::Changes, Load::Reports] {
        let Some(syncs) = Syncs::count(controller.costs.pid(), world.folder()).await else {
            say("syncs of the disk are not counted: strace is not there, or may not look at processes");
            break;
        };
        let messages = loads.put(load).await?;
        let counted = syncs.end().await?;
        round.took(
            format!("localcontroller_fsyncs_per_{}", load.word()),
            counted / messages,
            "fsyncs",
        );
    }
    if role.is_empty()
        && let Ok(file) = std::fs::metadata(program)
    {
        #[expect(clippy::cast_precision_loss, reason = "the size of a binary fits")]
        round.took("localcontroller_binary_bytes", file.len() as f64, "bytes");
    }
    controller.process.end().await;
    manager.end().await;
    Ok(round)
}

/// The binary to measure, and what makes it a local controller: one that is named, or built as it is shipped, or beside this;
/// or else this.
fn binary(sizes: &Sizes) -> (PathBuf, &'static [&'static str]) {
    const NAME: &str = "skerry-localcontroller";
    let this = std::env::current_exe().unwrap_or_default();
    // Where cargo puts what `skerry-dist` builds, from where it puts this.
    let folder = format!("{}-unknown-linux-musl/node", std::env::consts::ARCH);
    let shipped = this.ancestors().nth(2).map(|target| target.join(folder).join(NAME));
    let named = sizes.local_controller.clone();
    let there = |file: &PathBuf| file.exists();
    if let Some(shipped) = named.or_else(|| shipped.filter(there)) {
        return (shipped, &[]);
    }
    say("the local controller that is measured is not as small as the one that is shipped, which skerry-dist builds");
    let beside = Some(this.with_file_name(NAME)).filter(there);
    beside.map_or((this, &["localcontroller"]), |beside| (beside, &[]))
}

/// A local controller that runs.
struct Controller {
    process: Process,
    costs: Costs,
    address: SocketAddr,
}

impl Controller {
    fn start(program: &Path, role: &[&str], manager: SocketAddr, folder: &Path) -> Result<Self, Failure> {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let (manager, port) = (manager.to_string(), address.port().to_string());
        let (root, name) = (folder.join("node").display().to_string(), node(0));
        let arguments = [
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
        let arguments = [role, arguments.as_slice()].concat();
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
