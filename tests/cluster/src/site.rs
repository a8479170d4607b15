//! Where a control plane lives: its address, processors and memory, and what it runs with.

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{artifacts::Kubernetes, pki::kubeconfig_name, process::output, processors::Processors, rights};

/// The administrator of a control plane.
pub(crate) const ADMIN: &str = "admin";

/// What a test needs to reach a control plane.
#[derive(Clone, Debug)]
pub struct Access {
    /// The kubeconfig of its administrator.
    pub admin: PathBuf,
    /// The kubeconfig of the account that the chart makes for the manager, and binds its role to.
    pub manager: Option<PathBuf>,
    /// The address of etcd's HTTP interface.
    pub etcd: String,
}

/// How a component's memory is cleaned, in the words of Go's runtime.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// By how many percent of what is in use the heap grows until it is cleaned.
    growth: &'static str,
    /// What it grows to before it is cleaned whatever that costs.
    limit: &'static str,
}

/// Where several control planes work side by side: memory is cheaper than time, as long as there is some. With all of our kinds
/// and Sedna's, what an API server has in use is some 400 MiB.
pub const AMONG_OTHERS: Memory = Memory {
    growth: "800",
    limit: "1300MiB",
};
/// Where one has hosts, on which Sedna's definitions and newer ones of ours come and go. With as little as [`AMONG_OTHERS`],
/// cleaning took 18 % of its API server's processor time.
pub const WITH_HOSTS: Memory = Memory {
    growth: "800",
    limit: "2GiB",
};
/// Where one has half of the machine and thousands of objects: cleaning costs as much as there is in use, which is not what is
/// measured. The limit is out of reach: whoever meets it only with the larger of two loads is slow with that alone.
pub const ALONE: Memory = Memory {
    growth: "400",
    limit: "16GiB",
};
/// As Go has it by itself, and so everybody's API server, where loads of two sizes are compared. With [`ALONE`] its heap grew
/// to 8 GiB with a thousand services, of which 2.6 GiB are enough.
pub const USUAL: Memory = Memory {
    growth: "100",
    limit: "16GiB",
};

/// How long a node may give no sign of life until it is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// As long as by default: 50 s, for nodes that give one every ten.
    Usual,
    /// Four signs of kubelets that give one every three seconds, as those of our hosts do.
    WithHosts,
    /// Seconds, and its pods are given up seconds later, as tests that cannot wait for minutes ask.
    Hardly,
}

/// Where a control plane lives.
#[derive(Clone, Debug)]
pub struct Site {
    /// Its programs.
    pub kubernetes: Kubernetes,
    /// Where it keeps what it needs; empty at first.
    pub folder: PathBuf,
    /// The address that all listen on.
    pub address: Ipv4Addr,
    /// The first of four ports.
    pub port: u16,
    /// What all of it runs on.
    pub processors: Processors,
    /// The network namespace to run in; none for that of the caller.
    pub netns: Option<String>,
    /// What is there before the controllers start, if anything: a file or a folder. Kinds, say, of which the garbage
    /// collector would otherwise hear half a minute late.
    pub known: Option<PathBuf>,
    /// How long nodes may be silent.
    pub patience: Patience,
    /// The memory of each component: [`AMONG_OTHERS`], [`WITH_HOSTS`], [`ALONE`] or [`USUAL`].
    pub memory: Memory,
    /// Controllers that do not run, of those that do by default.
    pub without: &'static [&'static str],
    /// The namespace that the chart installs the manager into, if it does.
    pub manager_in: Option<&'static str>,
    /// Whether an object holds up the deletion of its owner only if whoever says so may hold that up, as on `OpenShift`.
    pub strict: bool,
}

impl Site {
    /// A command that runs at this site.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = match self.netns.as_deref() {
            Some(netns) => command(netns, program),
            None => self.processors.command(program),
        };
        let Memory { growth, limit } = self.memory;
        command.env("GOGC", growth).env("GOMEMLIMIT", limit);
        command
    }

    /// How tests reach the control plane that is here, or will be.
    pub fn access(&self) -> Access {
        let kubeconfig = |user: &str| self.folder.join(kubeconfig_name(user));
        Access {
            admin: kubeconfig(ADMIN),
            manager: self.manager().as_deref().map(kubeconfig),
            etcd: format!("http://127.0.0.1:{}", self.port + 1),
        }
    }

    /// The address of the API server.
    pub(crate) fn server(&self) -> String {
        format!("https://{}:{}", self.address, self.port)
    }

    /// Whether the API server listens yet: a kubectl for each look takes from it what it needs to start.
    pub(crate) fn is_listened_to(&self) -> anyhow::Result<bool> {
        let mut look = self.command(Path::new("ss"));
        look.args(["--listening", "--tcp", "--numeric", "--no-header"])
            .arg(format!("sport = :{}", self.port));
        Ok(!output(&mut look)?.is_empty())
    }

    /// The manager's user: the service account of the chart.
    pub(crate) fn manager(&self) -> Option<String> {
        let namespace = self.manager_in?;
        Some(format!("system:serviceaccount:{namespace}:{}", rights::ACCOUNT))
    }
}

/// A command in a network namespace.
pub(crate) fn command(netns: &str, program: &Path) -> Command {
    // `ip netns exec` would hide /sys/fs/cgroup.
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{netns}")).arg("--").arg(program);
    command
}
