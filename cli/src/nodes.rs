//! `skerry nodes`: who is there on the edge link and how it stands, who may join it, and who may no more.
//!
//! Those that have joined are read from their `EdgeNode`s, whose status is there also when the manager is not; of all others
//! the manager alone knows, so it is asked.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use skerry_crds::skerry::v1alpha1::Session;
use skerry_edge::limits::MAX_NAME;
use skerry_globalmanager::{
    hub::NodeStatus,
    identity::{
        IdentityError,
        operator::{self, NodeRow},
    },
};
use tokio::time::timeout;

use crate::failure::{Failure, print};

/// How long the manager may take to tell of nodes: those that have joined are listed without it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Which cluster, and what to do about its nodes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Kubeconfig of somebody who may read and write Secrets and `EdgeNode`s in the manager's namespace
    #[arg(long, env = "KUBECONFIG", value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,
    /// The manager's namespace
    #[arg(short, long, default_value = "sedna", global = true)]
    namespace: String,
    /// Where the manager serves /nodes, if it is no pod of the chart: its adminAddress
    #[arg(long, value_name = "ADDRESS:PORT")]
    admin_address: Option<SocketAddr>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Print a token by which one node can join, once
    JoinToken {
        /// The node's name in Kubernetes
        node: String,
        /// For how long
        #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = lifetime)]
        expires: SignedDuration,
    },
    /// Turn a node away: end its session, and heed none of its certificates and join tokens any more
    Revoke {
        /// The node's name
        node: String,
    },
}

/// From a second to a month: a token is a password that lies about.
fn lifetime(text: &str) -> Result<SignedDuration, String> {
    let hint = "it is a time such as 30m or 24h, from one second to a month (720h)";
    let duration: SignedDuration = text.parse().map_err(|_| hint.to_owned())?;
    if (1..=30 * 24 * 3600).contains(&duration.as_secs()) {
        Ok(duration)
    } else {
        Err(hint.to_owned())
    }
}

/// Does it.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let Args {
        command,
        kubeconfig,
        namespace,
        admin_address,
    } = args;
    let client = connect(kubeconfig).await?;
    match command {
        None => {
            let mut nodes = operator::list(&client, &namespace)
                .await
                .map_err(|error| failure(&error))?;
            match known(&client, &namespace, admin_address).await {
                Ok(known) => nodes = operator::with_others(nodes, &known, Timestamp::now()),
                Err(why) => eprintln!(
                    "only nodes that have joined over TLS are listed, and how they stood when a manager last wrote it, \
                     which may be long ago: the manager cannot be asked: {why}"
                ),
            }
            print(&table(&nodes))
        }
        Some(Command::JoinToken { node, expires }) => {
            let token = operator::invite(&client, &namespace, &node, expires).await;
            let token = token.map_err(|error| failure(&error))?;
            print(&format!("{}\n", token.reveal()))
        }
        Some(Command::Revoke { node }) => {
            let before = operator::revoke(&client, &namespace, &node).await;
            let before = before.map_err(|error| failure(&error))?;
            print(&format!("{node}: what it got before {before} is revoked\n"))
        }
    }
}

/// What the manager knows of nodes, if it tells that soon.
async fn known(client: &Client, namespace: &str, admin_address: Option<SocketAddr>) -> Result<Vec<NodeStatus>, String> {
    let asked = async {
        match admin_address {
            Some(address) => ask(address).await,
            None => operator::ask_leader(client, namespace)
                .await
                .map_err(|error| error.to_string()),
        }
    };
    let asked = timeout(PATIENCE, asked).await;
    asked.unwrap_or_else(|_| Err(format!("it has not answered within {} s", PATIENCE.as_secs())))
}

/// What the manager with this admin address knows of nodes.
async fn ask(address: SocketAddr) -> Result<Vec<NodeStatus>, String> {
    let asked = async {
        let client = reqwest::Client::builder().no_proxy().build()?;
        let answer = client.get(format!("http://{address}/nodes")).send().await?;
        answer.error_for_status()?.text().await
    };
    let answer = asked.await.map_err(|error| error.to_string())?;
    serde_json::from_str(&answer).map_err(|error| error.to_string())
}

async fn connect(kubeconfig: Option<PathBuf>) -> Result<Client, Failure> {
    let hint = "name a kubeconfig with --kubeconfig";
    let config = match kubeconfig.filter(|file| !file.as_os_str().is_empty()) {
        Some(file) => {
            let read = Kubeconfig::read_from(&file).map_err(|error| {
                Failure::new(
                    format!("the kubeconfig {} cannot be read: {error}", file.display()),
                    hint,
                )
            })?;
            Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await
        }
        None => Config::from_kubeconfig(&KubeConfigOptions::default()).await,
    };
    let mut config = config.map_err(|error| Failure::new(error, hint))?;
    // Whoever types a command is told at once what is wrong, and may type it again.
    config.default_retry = false;
    Client::try_from(config).map_err(|error| Failure::new(error, hint))
}

fn failure(error: &IdentityError) -> Failure {
    let hint = match error {
        IdentityError::Api {
            source: kube::Error::Api(status),
            ..
        } => match status.code {
            404 => {
                "name the manager's namespace with --namespace; the manager needs --edge-tls-address, and the definitions of `skerry crds`"
            }
            403 => "ask for the right to read and write Secrets and EdgeNodes in the manager's namespace",
            _ => "the API server's log says more",
        },
        IdentityError::Api { .. } => "see whether the kubeconfig's cluster can be reached",
        IdentityError::Secret { .. } => {
            "put back what was there; a manager makes the authority where the Secret is absent"
        }
        IdentityError::Authority(_) => "correct the name",
        _ => return Failure::defect(error),
    };
    Failure::new(error, hint)
}

fn table(nodes: &[NodeRow]) -> String {
    let time = |time: Option<Timestamp>| time.map_or_else(|| "-".to_owned(), |time| time.to_string());
    let columns = [
        "NAME",
        "CONNECTED SINCE",
        "VERSION",
        "ASSIGNED",
        "ACKED",
        "OLDEST UNACKED",
        "OUTBOX",
        "ROUND TRIP",
        "CERTIFIED",
        "EXPIRES",
        "REVOKED BEFORE",
    ];
    let mut rows = vec![columns.map(str::to_owned)];
    rows.extend(nodes.iter().map(|node| {
        let NodeRow {
            name,
            session,
            certificate,
            revoked_before,
        } = node;
        let of_session = |read: fn(&Session) -> Option<String>| {
            let read = session.as_ref().and_then(read);
            read.unwrap_or_else(|| "-".to_owned())
        };
        let since = |session: &Session| session.connected.then(|| session.since.0.to_string());
        let acked = |session: &Session| Some((session.assigned - session.unacknowledged).max(0).to_string());
        let oldest = |session: &Session| session.oldest_unacknowledged.as_ref().map(|time| time.0.to_string());
        let outbox = |session: &Session| {
            let outbox = session.outbox.as_ref()?;
            Some(format!(
                "{} ({} KiB)",
                outbox.messages,
                u64::try_from(outbox.bytes).unwrap_or_default().div_ceil(1024)
            ))
        };
        [
            printable(name),
            of_session(since),
            of_session(|session| session.version.as_deref().map(printable)),
            of_session(|session| Some(session.assigned.to_string())),
            of_session(acked),
            of_session(oldest),
            of_session(outbox),
            of_session(|session| session.round_trip_milliseconds.map(|time| format!("{time} ms"))),
            time(certificate.map(|(issued, _)| issued)),
            time(certificate.map(|(_, expires)| expires)),
            time(*revoked_before),
        ]
    }));
    let widths: [usize; 11] = std::array::from_fn(|at| {
        rows.iter()
            .filter_map(|row| row.get(at))
            .map(String::len)
            .max()
            .unwrap_or_default()
    });
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// As much of it as a terminal takes for letters: in plain, a node may say anything.
fn printable(said: &str) -> String {
    let letters = said.chars().filter(char::is_ascii_graphic);
    letters.take(MAX_NAME).collect()
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        fs,
        future::pending,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kube::client::Body;
    use serde_json::json;
    use skerry_crds::skerry::v1alpha1::Outbox;
    use tempfile::NamedTempFile;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    #[test]
    fn what_is_known_is_in_columns() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let nodes = [
            NodeRow {
                name: "edge-1".to_owned(),
                session: Some(Session {
                    connected: true,
                    since: Time(at("2026-01-01T06:00:00Z")),
                    version: Some("0.1.0\u{1b}\u{7}\n".to_owned()),
                    assigned: 12,
                    unacknowledged: 2,
                    oldest_unacknowledged: Some(Time(at("2026-01-03T06:00:00Z"))),
                    outbox: Some(Outbox {
                        messages: 70,
                        bytes: 20_000,
                    }),
                    round_trip_milliseconds: Some(41),
                }),
                certificate: Some((at("2026-01-01T00:00:00Z"), at("2026-04-01T00:00:00Z"))),
                revoked_before: None,
            },
            NodeRow {
                name: "edge-17".to_owned(),
                session: None,
                certificate: None,
                revoked_before: Some(at("2026-01-02T00:00:00Z")),
            },
        ];
        let expected = "\
NAME     CONNECTED SINCE       VERSION  ASSIGNED  ACKED  OLDEST UNACKED        OUTBOX       ROUND TRIP  CERTIFIED             EXPIRES               REVOKED BEFORE
edge-1   2026-01-01T06:00:00Z  0.1.0    12        10     2026-01-03T06:00:00Z  70 (20 KiB)  41 ms       2026-01-01T00:00:00Z  2026-04-01T00:00:00Z  -
edge-17  -                     -        -         -      -                     -            -           -                     -                     2026-01-02T00:00:00Z
";
        assert_eq!(table(&nodes), expected);
    }

    /// A manager that leads by its Lease, and whose pod gives this answer when it is asked for its nodes.
    async fn led(proxied: &'static str) -> (Client, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let kubeconfig = NamedTempFile::new().unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": server}}],
            "users": [{"name": "it", "user": {}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        });
        fs::write(kubeconfig.path(), config.to_string()).unwrap();
        let asked = Arc::<AtomicUsize>::default();
        let counted = asked.clone();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 4096];
                let length = stream.read(&mut request).await.unwrap();
                let lease = json!({"metadata": {}, "spec": {"holderIdentity": "manager-7_a-b"}}).to_string();
                let (status, body) = if String::from_utf8_lossy(&request[..length]).contains("/proxy/nodes") {
                    counted.fetch_add(1, Ordering::Relaxed);
                    (proxied, "error trying to reach service")
                } else {
                    ("200 OK", &*lease)
                };
                let head = format!(
                    "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            }
        });
        (connect(Some(kubeconfig.path().to_owned())).await.unwrap(), asked)
    }

    #[tokio::test]
    async fn a_manager_that_is_away_is_asked_once() {
        let (client, asked) = led("503 Service Unavailable").await;
        let error = known(&client, "sedna", None).await.unwrap_err();
        assert!(error.contains("error trying to reach service"), "{error}");
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_manager_that_does_not_answer_is_not_waited_for() {
        let silent = tower::service_fn(|_: http::Request<Body>| pending::<Result<http::Response<Body>, Infallible>>());
        let error = known(&Client::new(silent, "sedna"), "sedna", None).await.unwrap_err();
        assert_eq!(error, "it has not answered within 5 s");
    }

    #[test]
    fn a_token_lasts_from_a_second_to_a_month() {
        assert_eq!(lifetime("1h"), Ok(SignedDuration::from_hours(1)));
        for wrong in ["", "1", "0s", "-1h", "721h", "soon"] {
            assert!(lifetime(wrong).unwrap_err().contains("720h"), "{wrong}");
        }
    }
}
