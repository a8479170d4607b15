//! The settings of a local controller: Sedna's environment variables, and the same as flags.
//!
//! Decides what a valid setting is and says, by the variable's name, what would be right. It reads nothing but what it
//! is given; [`Args::resolve`] alone looks at `HOSTNAME`.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use clap::{Args as ClapArgs, ValueEnum};
use skerry_edge::object::is_dns_name;
use thiserror::Error;

use crate::{identity, worker_api::Network};

/// Sedna's worker library looks for its local controller on this port.
const DEFAULT_PORT: u16 = 9100;

/// Where Sedna's chart mounts the host's root.
const DEFAULT_ROOTFS: &str = "/rootfs";

/// The settings as the command line and the environment have them, not yet checked.
#[derive(ClapArgs, Clone, Debug, Default)]
pub struct Args {
    /// Where the global manager listens for nodes: wss://HOST:PORT over mutual TLS, HOST:PORT in plain
    #[arg(long, env = "GM_ADDRESS", value_name = "ADDRESS")]
    pub gm_address: Option<String>,

    /// What the global manager speaks: skerry, or sedna where it is still Sedna's own [default: skerry]
    #[arg(long, env = "MANAGER_PROTOCOL", value_name = "PROTOCOL")]
    pub manager_protocol: Option<String>,

    /// Says once more that it may be Sedna's protocol: it proves nothing, and everybody on the way can read and change it
    #[arg(long, env = "MANAGER_PLAINTEXT", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub manager_plaintext: Option<String>,

    /// A file with the join token, for a node that has not joined yet; may go once it has
    #[arg(long, env = "JOIN_TOKEN_FILE", value_name = "FILE")]
    pub join_token_file: Option<String>,

    /// The folder of the node's key and certificate [default: var/lib/skerry/identity of the host]
    #[arg(long, env = "IDENTITY_DIR", value_name = "DIR")]
    pub identity_dir: Option<String>,

    /// The name of this node in Kubernetes; `HOSTNAME` where it is absent
    #[arg(long = "node-name", env = "NODENAME", value_name = "NAME")]
    pub node_name: Option<String>,

    /// The address on which workers are served [default: 0.0.0.0]
    #[arg(long, env = "BIND_ADDRESS", value_name = "IP")]
    pub bind_address: Option<String>,

    /// The port on which workers are served [default: 9100]
    #[arg(long, env = "BIND_PORT", value_name = "PORT")]
    pub bind_port: Option<String>,

    /// Networks of this node's pods that its routes do not show, with commas between
    #[arg(long, env = "WORKERS_FROM", value_name = "CIDRS")]
    pub workers_from: Option<String>,

    /// Where the host's root is mounted; empty where this is the host itself [default: /rootfs]
    #[arg(long, env = "ROOTFS_MOUNT_DIR", value_name = "DIR")]
    pub rootfs_mount_dir: Option<String>,

    /// How log lines are written
    #[arg(long, env = "LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The settings of one local controller, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The global manager's `host:port`.
    pub gm_address: String,
    /// What the global manager speaks.
    pub protocol: Protocol,
    /// The node's name.
    pub node_name: String,
    /// Where workers are served. Port 0 takes any free one.
    pub bind: SocketAddr,
    /// Networks whose workers are served beside those that the node's routes show.
    pub workers_from: Vec<Network>,
    /// Where the host's root is: every path of the host is looked up under it.
    pub rootfs: PathBuf,
}

/// What the global manager speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Our own protocol.
    Skerry {
        /// How the node proves who it is; nothing where the link is plain.
        identity: Option<identity::Settings>,
    },
    /// Sedna's, which is plain and proves nothing.
    Sedna,
}

/// A setting that is missing or wrong.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// There is no default for where the manager is.
    #[error("GM_ADDRESS (--gm-address) is not set: give the global manager's address, such as wss://gm.sedna:9443")]
    NoManager,
    /// Not an address that can be dialled.
    #[error(
        "GM_ADDRESS (--gm-address) is {0:?}: it has to be host:port, such as gm.sedna:9000 or [fd00::1]:9000, after wss:// for \
         mutual TLS"
    )]
    Manager(String),
    /// Not a protocol.
    #[error("MANAGER_PROTOCOL (--manager-protocol) is {0:?}: it has to be skerry or sedna")]
    Protocol(String),
    /// Neither yes nor no.
    #[error("MANAGER_PLAINTEXT (--manager-plaintext) is {0:?}: it has to be true or false")]
    NoBool(String),
    /// Has to be said twice.
    #[error(
        "MANAGER_PROTOCOL (--manager-protocol) is sedna, which hides nothing and proves nothing: say MANAGER_PLAINTEXT=true \
         (--manager-plaintext), too, if the network to the manager is trusted as a whole"
    )]
    Plaintext,
    /// Sedna's manager has no TLS.
    #[error(
        "MANAGER_PROTOCOL (--manager-protocol) is sedna, and GM_ADDRESS (--gm-address) begins with wss://: Sedna's manager has \
         no TLS, its address is host:port"
    )]
    SednaTls,
    /// A plain link proves nothing.
    #[error(
        "JOIN_TOKEN_FILE (--join-token-file) is set, and GM_ADDRESS is {0:?}: a node joins over wss://host:port alone"
    )]
    PlainToken(String),
    /// Neither variable names the node.
    #[error("NODENAME (--node-name) is not set, nor is HOSTNAME: give the node's name in Kubernetes")]
    NoNode,
    /// Not the name of a node.
    #[error("{variable} is {value:?}: a node's name has lower-case letters, digits, '-' and '.', at most 253")]
    Node {
        /// From which variable it came.
        variable: &'static str,
        /// What it was.
        value: String,
    },
    /// Not an address.
    #[error("BIND_ADDRESS (--bind-address) is {0:?}: it has to be an IP address, such as 0.0.0.0 or 127.0.0.1")]
    Address(String),
    /// Not a port.
    #[error("BIND_PORT (--bind-port) is {0:?}: it has to be a number from 0 (any free port) to 65535")]
    Port(String),
    /// Not a network.
    #[error(
        "WORKERS_FROM (--workers-from) has {0:?}: it has to be networks with commas between, such as \
         10.42.7.0/24,fd00:7::/64"
    )]
    Network(String),
    /// A relative path means another directory wherever the process starts.
    #[error(
        "ROOTFS_MOUNT_DIR (--rootfs-mount-dir) is {0:?}: it has to be an absolute path, or empty for the host's own root"
    )]
    Rootfs(String),
}

impl Args {
    /// The settings, checked; `HOSTNAME` of the environment stands in for a node's name that is not given.
    pub fn resolve(self) -> Result<Config, ConfigError> {
        self.resolve_on(std::env::var("HOSTNAME").ok())
    }

    /// Where the host's root is, checked; for what needs no other setting.
    pub fn rootfs(self) -> Result<PathBuf, ConfigError> {
        rootfs(self.rootfs_mount_dir)
    }

    fn resolve_on(self, hostname: Option<String>) -> Result<Config, ConfigError> {
        let Self {
            gm_address,
            manager_protocol,
            manager_plaintext,
            join_token_file,
            identity_dir,
            node_name,
            bind_address,
            bind_port,
            workers_from,
            rootfs_mount_dir,
            log_format: _,
        } = self;
        let rootfs = rootfs(rootfs_mount_dir)?;
        let (tls, gm_address) = manager(given(gm_address).ok_or(ConfigError::NoManager)?)?;
        let token_file = given(join_token_file).map(PathBuf::from);
        if !tls && token_file.is_some() {
            return Err(ConfigError::PlainToken(gm_address));
        }
        let folder = given(identity_dir).map_or_else(|| rootfs.join(identity::PATH), PathBuf::from);
        let plaintext = yes(given(manager_plaintext))?;
        let protocol = match given(manager_protocol).as_deref() {
            None | Some("skerry") => Protocol::Skerry {
                identity: tls.then_some(identity::Settings { folder, token_file }),
            },
            Some("sedna") if tls => return Err(ConfigError::SednaTls),
            Some("sedna") if !plaintext => return Err(ConfigError::Plaintext),
            Some("sedna") => Protocol::Sedna,
            Some(other) => return Err(ConfigError::Protocol(other.to_owned())),
        };
        Ok(Config {
            gm_address,
            protocol,
            node_name: node(given(node_name), given(hostname))?,
            bind: SocketAddr::new(address(given(bind_address))?, port(given(bind_port))?),
            workers_from: networks(given(workers_from).as_deref())?,
            rootfs,
        })
    }
}

/// A variable that is set to nothing is not set: that is how charts leave out a value.
fn given(value: Option<String>) -> Option<String> {
    value
        .map(|value| value.trim().to_owned())
        .filter(|value| !value.is_empty())
}

fn yes(value: Option<String>) -> Result<bool, ConfigError> {
    value.map_or(Ok(false), |value| value.parse().map_err(|_| ConfigError::NoBool(value)))
}

/// Whether the manager is reached over TLS, and its `host:port`.
fn manager(value: String) -> Result<(bool, String), ConfigError> {
    let (tls, address) = match value.split_once("://") {
        Some(("wss", address)) => (true, address),
        Some(("ws", address)) => (false, address),
        _ => (false, value.as_str()),
    };
    let valid = address.rsplit_once(':').is_some_and(|(host, port)| {
        let host_is_plain = !host.is_empty() && !host.contains([':', '/', '@', ' ', '[', ']']);
        let host_is_ipv6 = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .is_some_and(|host| host.parse::<std::net::Ipv6Addr>().is_ok());
        (host_is_plain || host_is_ipv6) && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if valid {
        Ok((tls, address.to_owned()))
    } else {
        Err(ConfigError::Manager(value))
    }
}

fn node(named: Option<String>, hostname: Option<String>) -> Result<String, ConfigError> {
    let (variable, value) = match (named, hostname) {
        (Some(value), _) => ("NODENAME (--node-name)", value),
        (None, Some(value)) => ("HOSTNAME (NODENAME is not set)", value),
        (None, None) => return Err(ConfigError::NoNode),
    };
    if is_dns_name(&value) {
        Ok(value)
    } else {
        Err(ConfigError::Node { variable, value })
    }
}

fn address(value: Option<String>) -> Result<IpAddr, ConfigError> {
    value.map_or(Ok(Ipv4Addr::UNSPECIFIED.into()), |value| {
        value.parse().map_err(|_| ConfigError::Address(value))
    })
}

fn port(value: Option<String>) -> Result<u16, ConfigError> {
    value.map_or(Ok(DEFAULT_PORT), |value| {
        value.parse().map_err(|_| ConfigError::Port(value))
    })
}

fn networks(value: Option<&str>) -> Result<Vec<Network>, ConfigError> {
    let network = |text: &str| Network::read(text.trim()).ok_or_else(|| ConfigError::Network(text.to_owned()));
    value
        .into_iter()
        .flat_map(|value| value.split(','))
        .map(network)
        .collect()
}

fn rootfs(value: Option<String>) -> Result<PathBuf, ConfigError> {
    let value = value.unwrap_or_else(|| DEFAULT_ROOTFS.to_owned());
    match value.trim() {
        "" => Ok(PathBuf::from("/")),
        path if path.starts_with('/') => Ok(PathBuf::from(path)),
        _ => Err(ConfigError::Rootfs(value)),
    }
}

#[cfg(test)]
mod tests;
