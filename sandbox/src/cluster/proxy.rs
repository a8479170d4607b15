//! The service proxy: each port of a Service's cluster IP leads to its ready endpoints, one after the other. A Service
//! without ready endpoints refuses connections.
//!
//! TCP only. It serves the whole sandbox: there is no difference between nodes.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client, ResourceExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::cache::Table;
use super::endpoints::SERVICE_NAME;
use super::forward::{forward, reset};
use super::watching::watch_all;

/// How long after a failure to listen the next try comes.
const RETRY: Duration = Duration::from_millis(500);

/// Where connections to an address lead.
type Routes = BTreeMap<SocketAddr, Vec<SocketAddr>>;

/// Forwards until it is dropped.
pub(crate) async fn run(client: Client) {
    let mut services = watch_all(Api::<Service>::all(client.clone()));
    let mut slices = watch_all(Api::<EndpointSlice>::all(client));
    let (mut known_services, mut known_slices) = (Table::default(), Table::default());
    let mut listeners: BTreeMap<SocketAddr, Listening> = BTreeMap::new();
    loop {
        tokio::select! {
            Some(event) = services.next() => drop(known_services.watched(event)),
            Some(event) = slices.next() => drop(known_slices.watched(event)),
        }
        if !known_services.listed() || !known_slices.listed() {
            continue;
        }
        let routes = routes(known_services.all(), known_slices.all());
        listeners.retain(|address, _| routes.contains_key(address));
        for (address, targets) in routes {
            let listening = listeners
                .entry(address)
                .or_insert_with(|| Listening::start(address, targets.clone()));
            listening.targets.send_if_modified(|known| {
                let changed = *known != targets;
                *known = targets;
                changed
            });
        }
    }
}

/// An address that is served; no more, when this is dropped. Connections that are open go on.
struct Listening {
    targets: watch::Sender<Vec<SocketAddr>>,
    _task: JoinSet<()>,
}

impl Listening {
    fn start(address: SocketAddr, targets: Vec<SocketAddr>) -> Self {
        let (sender, receiver) = watch::channel(targets);
        let mut task = JoinSet::new();
        task.spawn(listen(address, receiver));
        Self {
            targets: sender,
            _task: task,
        }
    }
}

async fn listen(address: SocketAddr, targets: watch::Receiver<Vec<SocketAddr>>) {
    let next = AtomicUsize::new(0);
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => {
                while let Ok((connection, _)) = listener.accept().await {
                    let targets = in_turn(&targets.borrow(), next.fetch_add(1, Ordering::Relaxed));
                    // A connection outlives changes of the routes, as with the real proxy.
                    tokio::spawn(connect(connection, targets));
                }
            }
            Err(error) => tracing::warn!(%address, %error, "a Service's address cannot be listened on"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// The targets in the order in which they are tried.
fn in_turn(targets: &[SocketAddr], turn: usize) -> Vec<SocketAddr> {
    let mut targets = targets.to_vec();
    let first = turn.checked_rem(targets.len()).unwrap_or_default();
    targets.rotate_left(first);
    targets
}

/// Connects to the first target that answers: one may have ended a moment ago.
async fn connect(connection: TcpStream, targets: Vec<SocketAddr>) {
    for target in targets {
        if let Ok(reached) = TcpStream::connect(target).await {
            drop(reached);
            // What goes wrong from here on concerns the two ends only.
            let _ = forward(connection, target).await;
            return;
        }
    }
    reset(connection);
}

/// Every address of a Service that has ready endpoints.
fn routes<'a>(
    services: impl Iterator<Item = &'a Arc<Service>>,
    slices: impl Iterator<Item = &'a Arc<EndpointSlice>>,
) -> Routes {
    let slices: Vec<_> = slices.collect();
    let mut routes = Routes::new();
    for service in services {
        let Some(spec) = &service.spec else { continue };
        let Some(ip) = spec.cluster_ip.as_deref().and_then(|ip| ip.parse::<Ipv4Addr>().ok()) else {
            continue;
        };
        let name = service.name_any();
        let own = |slice: &&&Arc<EndpointSlice>| {
            slice.namespace() == service.namespace() && slice.labels().get(SERVICE_NAME) == Some(&name)
        };
        for port in spec
            .ports
            .iter()
            .flatten()
            .filter(|port| port.protocol.as_deref().is_none_or(|of| of == "TCP"))
        {
            let Ok(number) = u16::try_from(port.port) else { continue };
            let mut targets: Vec<_> = slices
                .iter()
                .filter(own)
                .flat_map(|slice| targets(slice, port))
                .collect();
            targets.sort_unstable();
            targets.dedup();
            if !targets.is_empty() {
                routes.insert(SocketAddr::V4(SocketAddrV4::new(ip, number)), targets);
            }
        }
    }
    routes
}

/// Where a slice's ready endpoints serve a port.
fn targets(slice: &EndpointSlice, port: &ServicePort) -> Vec<SocketAddr> {
    let mut ports = slice.ports.iter().flatten();
    let same = |name: &Option<String>| name.as_deref().unwrap_or_default() == port.name.as_deref().unwrap_or_default();
    let number = ports
        .find(|candidate| same(&candidate.name))
        .and_then(|found| u16::try_from(found.port?).ok());
    let Some(number) = number else { return vec![] };
    let ready = slice.endpoints.iter().filter(|endpoint| {
        endpoint
            .conditions
            .as_ref()
            .is_none_or(|conditions| conditions.ready != Some(false))
    });
    ready
        .flat_map(|endpoint| &endpoint.addresses)
        .filter_map(|address| Some(SocketAddr::new(address.parse().ok()?, number)))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse<K: serde::de::DeserializeOwned>(value: Value) -> Arc<K> {
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn service(name: &str, ip: &str) -> Arc<Service> {
        parse(json!({"metadata": {"name": name, "namespace": "default"},
            "spec": {"clusterIP": ip, "ports": [{"name": "tcp-0", "port": 80}, {"name": "udp", "port": 53, "protocol": "UDP"}]}}))
    }

    fn slice(service: &str, endpoints: &[(&str, bool)]) -> Arc<EndpointSlice> {
        let endpoints: Vec<_> = endpoints
            .iter()
            .map(|(address, ready)| json!({"addresses": [address], "conditions": {"ready": ready}}))
            .collect();
        parse(json!({
            "metadata": {"name": "s", "namespace": "default", "labels": {SERVICE_NAME: service}},
            "addressType": "IPv4", "ports": [{"name": "tcp-0", "port": 8080}], "endpoints": endpoints,
        }))
    }

    #[test]
    fn ready_endpoints_are_routed_to() {
        let services = [
            service("web", "127.96.0.1"),
            service("empty", "127.96.0.2"),
            service("headless", "None"),
        ];
        let slices = [
            slice(
                "web",
                &[("127.32.1.3", true), ("127.32.1.2", true), ("127.32.1.4", false)],
            ),
            slice("empty", &[("127.32.1.5", false)]),
            slice("headless", &[("127.32.1.6", true)]),
        ];
        let targets = ["127.32.1.2:8080", "127.32.1.3:8080"].map(|address| address.parse().unwrap());
        let expected = Routes::from([("127.96.0.1:80".parse().unwrap(), targets.to_vec())]);
        assert_eq!(routes(services.iter(), slices.iter()), expected);
    }

    #[test]
    fn targets_take_turns() {
        let [a, b, c] = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        assert_eq!(in_turn(&[a, b, c], 4), [b, c, a]);
        assert_eq!(in_turn(&[], 4), []);
    }
}
