//! How the manager is configured: Sedna's YAML file, and the same as flags and environment variables, which win.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use jiff::SignedDuration;
use serde::Deserialize;
use skerry_workloads::Settings;
use thiserror::Error;

use crate::identity::Terms;

/// Why the configuration is refused.
#[derive(Debug, Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("the configuration file {path} cannot be read: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file does not say what it may say; the message has the line.
    #[error("the configuration file {path} is refused: {message}")]
    Refused {
        /// The file.
        path: PathBuf,
        /// What and where.
        message: String,
    },
    /// A duration that makes no sense.
    #[error("{key} is {duration:#}: it has to be at least {least} s and at most a hundred years, such as 2160h")]
    Duration {
        /// The key of the file.
        key: &'static str,
        /// What it was.
        duration: SignedDuration,
        /// What it may be at least, in seconds.
        least: i64,
    },
    /// Old agents are to be served, and that this is in clear was said once only.
    #[error(
        "sednaAgentsAddress serves agents that prove nothing, in clear: say so with sednaAgentsPlaintext: true as well, or leave it out"
    )]
    Plaintext,
}

/// The command line of `skerry-globalmanager`.
#[derive(Args, Clone, Debug, Default)]
pub struct Flags {
    /// YAML file with Sedna's keys (kubeConfig, master, namespace, websocket, localController, …).
    #[arg(long, env = "SKERRY_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Kubeconfig; without it the service account of the pod is used.
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Address of the API server, instead of the one that the kubeconfig names.
    #[arg(long, env = "SKERRY_MASTER", value_name = "URL")]
    pub master: Option<String>,
    /// The one namespace to look after; all where none is given.
    #[arg(long, env = "SKERRY_NAMESPACE", value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Address on which edge nodes connect.
    #[arg(long, env = "SKERRY_WEBSOCKET_ADDRESS", value_name = "ADDRESS")]
    pub websocket_address: Option<String>,
    /// Port on which edge nodes connect.
    #[arg(long, env = "SKERRY_WEBSOCKET_PORT", value_name = "PORT")]
    pub websocket_port: Option<u16>,
    /// Address on which edge nodes connect over mutual TLS, and join; they cannot where it is not given.
    #[arg(long, env = "SKERRY_EDGE_TLS_ADDRESS", value_name = "ADDRESS:PORT")]
    pub edge_tls_address: Option<String>,
    /// How long the certificate of a node is good, such as `2160h`; it is renewed after two thirds of that.
    #[arg(long, env = "SKERRY_EDGE_CERTIFICATE_LIFETIME", value_name = "DURATION")]
    pub edge_certificate_lifetime: Option<SignedDuration>,
    /// How long after that it can still be renewed, such as `720h`, by nodes that were away.
    #[arg(long, env = "SKERRY_EDGE_CERTIFICATE_GRACE", value_name = "DURATION")]
    pub edge_certificate_grace: Option<SignedDuration>,
    /// Address on which Sedna's own local controllers connect, under any name and in clear; they cannot where it is not given.
    #[arg(long, env = "SKERRY_SEDNA_AGENTS_ADDRESS", value_name = "ADDRESS:PORT")]
    pub sedna_agents_address: Option<String>,
    /// Says once more that they may: their protocol proves nothing, and everybody on the way can read and change it.
    #[arg(long, env = "SKERRY_SEDNA_AGENTS_PLAINTEXT", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub sedna_agents_plaintext: Option<bool>,
    /// Sends them the content of Secrets, too: to whoever says the name of a node.
    #[arg(long, env = "SKERRY_SEDNA_AGENTS_CREDENTIALS", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub sedna_agents_credentials: Option<bool>,
    /// Where workers in their node's network find the local controller (`LC_SERVER`).
    #[arg(long, env = "SKERRY_LOCAL_CONTROLLER_SERVER", value_name = "URL")]
    pub local_controller_server: Option<String>,
    /// Sedna's knowledge base for lifelong learning; without effect so far.
    #[arg(long, env = "SKERRY_KNOWLEDGE_BASE_SERVER", value_name = "URL")]
    pub knowledge_base_server: Option<String>,
    /// Sedna's resync of its caches; without effect, because no event is lost here.
    #[arg(long, env = "SKERRY_MIN_RESYNC_PERIOD_SECONDS", value_name = "SECONDS")]
    pub min_resync_period_seconds: Option<i64>,
    /// Image of the container that fetches models and data before a worker starts.
    #[arg(long, env = "SKERRY_STORAGE_INITIALIZER_IMAGE", value_name = "IMAGE")]
    pub storage_initializer_image: Option<String>,
    /// Address for /healthz, /readyz and /metrics.
    #[arg(long, env = "SKERRY_ADMIN_ADDRESS", value_name = "ADDRESS:PORT")]
    pub admin_address: Option<String>,
    /// Namespace of the Lease.
    #[arg(long, env = "SKERRY_LEASE_NAMESPACE", value_name = "NAMESPACE")]
    pub lease_namespace: Option<String>,
    /// How logs are written.
    #[arg(long, env = "SKERRY_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The file. Keys and defaults are Sedna's; those after `min_resync_period_seconds` are ours.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct File {
    kube_config: Option<String>,
    master: Option<String>,
    namespace: Option<String>,
    websocket: Listen,
    local_controller: Server,
    /// Sedna's lifelong-learning key: accepted, and used once those jobs are.
    #[serde(rename = "knowledgeBaseServer")]
    _knowledge_base_server: Server,
    /// Sedna's informer resync: accepted; the engine needs none, because it never loses an event.
    #[serde(rename = "minResyncPeriodSeconds")]
    _min_resync_period_seconds: Option<i64>,
    storage_initializer_image: Option<String>,
    edge_tls_address: Option<String>,
    edge_certificate_lifetime: Option<SignedDuration>,
    edge_certificate_grace: Option<SignedDuration>,
    sedna_agents_address: Option<String>,
    sedna_agents_plaintext: Option<bool>,
    sedna_agents_credentials: Option<bool>,
    admin_address: Option<String>,
    lease_namespace: Option<String>,
    log_format: Option<LogFormat>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Listen {
    address: Option<String>,
    port: Option<u16>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Server {
    server: Option<String>,
}

/// The listener for edge nodes with certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeTls {
    /// `address:port`.
    pub address: String,
    /// For how long certificates are good.
    pub terms: Terms,
}

/// The listener for Sedna's own local controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SednaAgents {
    /// `address:port`.
    pub address: String,
    /// Whether they are sent the content of Secrets.
    pub credentials: bool,
}

/// What is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Kubeconfig; in-cluster where there is none.
    pub kubeconfig: Option<PathBuf>,
    /// The API server's URL, where it is not the kubeconfig's.
    pub master: Option<String>,
    /// The one namespace to look after.
    pub namespace: Option<String>,
    /// `address:port` on which edge nodes connect.
    pub edge_address: String,
    /// Where and how edge nodes connect over mutual TLS, if they can.
    pub edge_tls: Option<EdgeTls>,
    /// Where Sedna's own local controllers connect, if they can.
    pub sedna_agents: Option<SednaAgents>,
    /// `address:port` for health, readiness and metrics.
    pub admin_address: String,
    /// Namespace of the Lease.
    pub lease_namespace: String,
    /// What plans are given.
    pub settings: Settings,
    /// How logs are written.
    pub log_format: LogFormat,
}

impl Config {
    /// Puts flags over the file over the defaults.
    pub fn load(flags: Flags) -> Result<Self, Error> {
        let file = match &flags.config {
            Some(path) => File::read(path)?,
            None => File::default(),
        };
        let some = |text: Option<String>| text.filter(|text| !text.is_empty());
        let Flags {
            config: _,
            kubeconfig,
            master,
            namespace,
            websocket_address,
            websocket_port,
            edge_tls_address,
            edge_certificate_lifetime,
            edge_certificate_grace,
            sedna_agents_address,
            sedna_agents_plaintext,
            sedna_agents_credentials,
            local_controller_server,
            knowledge_base_server: _,
            min_resync_period_seconds: _,
            storage_initializer_image,
            admin_address,
            lease_namespace,
            log_format,
        } = flags;
        let defaults = Settings::default();
        let address = some(websocket_address.or(file.websocket.address)).unwrap_or_else(|| "0.0.0.0".to_owned());
        let lifetime = edge_certificate_lifetime.or(file.edge_certificate_lifetime);
        let grace = edge_certificate_grace.or(file.edge_certificate_grace);
        let terms = Terms {
            lifetime: at_least(
                1,
                "edgeCertificateLifetime",
                lifetime.unwrap_or(Terms::default().lifetime),
            )?,
            grace: at_least(0, "edgeCertificateGrace", grace.unwrap_or(Terms::default().grace))?,
        };
        let edge_tls = some(edge_tls_address.or(file.edge_tls_address)).map(|address| EdgeTls { address, terms });
        let sedna_agents = match some(sedna_agents_address.or(file.sedna_agents_address)) {
            None => None,
            Some(_) if sedna_agents_plaintext.or(file.sedna_agents_plaintext) != Some(true) => {
                return Err(Error::Plaintext);
            }
            Some(address) => Some(SednaAgents {
                address,
                credentials: sedna_agents_credentials.or(file.sedna_agents_credentials) == Some(true),
            }),
        };
        let port = websocket_port.or(file.websocket.port).unwrap_or(9000);
        Ok(Self {
            kubeconfig: kubeconfig
                .filter(|path| !path.as_os_str().is_empty())
                .or(some(file.kube_config).map(PathBuf::from)),
            master: some(master.or(file.master)),
            namespace: some(namespace.or(file.namespace)),
            edge_address: format!("{address}:{port}"),
            edge_tls,
            sedna_agents,
            admin_address: some(admin_address.or(file.admin_address)).unwrap_or_else(|| "0.0.0.0:9090".to_owned()),
            lease_namespace: some(lease_namespace.or(file.lease_namespace)).unwrap_or_else(|| "sedna".to_owned()),
            settings: Settings {
                local_controller_server: some(local_controller_server.or(file.local_controller.server))
                    .unwrap_or(defaults.local_controller_server),
                storage_initializer_image: some(storage_initializer_image.or(file.storage_initializer_image))
                    .unwrap_or(defaults.storage_initializer_image),
                ..defaults
            },
            log_format: log_format.or(file.log_format).unwrap_or_default(),
        })
    }
}

/// A duration of at least so many seconds, and at most a hundred years.
fn at_least(least: i64, key: &'static str, duration: SignedDuration) -> Result<SignedDuration, Error> {
    const MOST: i64 = 100 * 365 * 24 * 3600;
    if (least..=MOST).contains(&duration.as_secs()) {
        Ok(duration)
    } else {
        Err(Error::Duration { key, duration, least })
    }
}

impl File {
    fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        serde_saphyr::from_str(&text).map_err(|error| Error::Refused {
            path: path.to_owned(),
            message: error.without_snippet().to_string(),
        })
    }
}

#[cfg(test)]
mod tests;
