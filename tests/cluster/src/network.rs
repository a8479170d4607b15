//! Two hosts on one machine: network namespaces, joined by a bridge in the namespace of the harness.
//!
//! ```text
//! harness 198.51.100.254 ── bridge ─┬─ cloud-1 198.51.100.1   pods 203.0.113.0/25
//!                                   └─ edge-1  198.51.100.2   pods 203.0.113.128/25
//! ```

use std::{
    fs::File,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context, anyhow};
use nix::sched::{CloneFlags, setns};

use crate::{
    process::{output, run},
    site::command,
};

/// A host.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// Its name, and that of its network namespace and of its node.
    pub name: &'static str,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its pods' addresses.
    pub pods: &'static str,
    /// The harness's end of its cable.
    pub link: &'static str,
}

/// Where the control plane runs.
pub const CLOUD: Host = Host {
    name: "cloud-1",
    address: Ipv4Addr::new(198, 51, 100, 1),
    pods: "203.0.113.0/25",
    link: "to-cloud",
};

/// The edge.
pub const EDGE: Host = Host {
    name: "edge-1",
    address: Ipv4Addr::new(198, 51, 100, 2),
    pods: "203.0.113.128/25",
    link: "to-edge",
};

const BRIDGE: &str = "hosts";
/// The address of the harness.
pub const HARNESS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 254);

/// Makes the bridge and both hosts, with routes to each other's pods.
pub fn make() -> anyhow::Result<()> {
    ip(&format!("link add {BRIDGE} type bridge"))?;
    ip(&format!("link set {BRIDGE} up"))?;
    ip(&format!("addr add {HARNESS}/24 dev {BRIDGE}"))?;
    for host in [CLOUD, EDGE] {
        host.make().with_context(|| format!("making host {}", host.name))?;
    }
    for (host, other) in [(CLOUD, EDGE), (EDGE, CLOUD)] {
        host.ip(&format!("route add {} via {}", other.pods, other.address))?;
        ip(&format!("route add {} via {}", host.pods, host.address))?;
        // Whatever is not known goes to the harness, which answers at once that there is nothing.
        host.ip(&format!("route add default via {HARNESS}"))?;
    }
    Ok(())
}

impl Host {
    fn make(self) -> anyhow::Result<()> {
        let Self {
            name, link, address, ..
        } = self;
        ip(&format!("netns add {name}"))?;
        ip(&format!("link add {link} type veth peer name eth0 netns {name}"))?;
        ip(&format!("link set {link} master {BRIDGE} up"))?;
        self.ip("link set lo up")?;
        self.ip(&format!("addr add {address}/24 dev eth0"))?;
        self.ip("link set eth0 up")?;
        output(command(name, Path::new("sysctl")).args(["-qw", "net.ipv4.ip_forward=1"])).map(drop)
    }

    /// Cuts the host off, as if its cable were pulled.
    pub fn cut(self) -> anyhow::Result<()> {
        ip(&format!("link set {} down", self.link))
    }

    /// Plugs the cable in again.
    pub fn restore(self) -> anyhow::Result<()> {
        ip(&format!("link set {} up", self.link))
    }

    /// Does something in the host's network.
    pub fn within<T: Send + 'static>(
        self,
        act: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
    ) -> anyhow::Result<T> {
        within(format!("/run/netns/{}", self.name).into(), act)
    }

    fn ip(self, arguments: &str) -> anyhow::Result<()> {
        ip(&format!("-n {} {arguments}", self.name))
    }
}

/// Does something in a network that is known by a file.
pub fn within<T: Send + 'static>(
    network: PathBuf,
    act: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let there = move || {
        let network = File::open(&network).with_context(|| network.display().to_string())?;
        // Of this thread alone, which ends with this.
        setns(network, CloneFlags::CLONE_NEWNET)?;
        act()
    };
    let done = thread::spawn(there).join();
    done.map_err(|_| anyhow!("the thread in that network ended"))?
}

fn ip(arguments: &str) -> anyhow::Result<()> {
    run("ip", &arguments.split(' ').collect::<Vec<_>>()).map(drop)
}

/// Does something with both hosts in networks that nobody else has; nothing where this machine does not allow that.
#[cfg(test)]
pub(crate) fn alone(act: impl FnOnce() -> anyhow::Result<()> + Send + 'static) -> anyhow::Result<()> {
    use nix::{
        mount::{MsFlags, mount},
        sched::unshare,
    };

    const NOTHING: Option<&str> = None;
    // Namespaces are a thread's own, and those that it starts.
    let there = move || {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS) {
            eprintln!("skipped: no network of its own: {error}");
            return Ok(());
        }
        mount(NOTHING, "/", NOTHING, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NOTHING)?;
        mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), NOTHING)?;
        make()?;
        act()
    };
    let done = thread::spawn(there).join();
    done.map_err(|_| anyhow!("the thread ended"))?
}
