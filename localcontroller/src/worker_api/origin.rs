//! From where workers may report: this host, and the pods of this node.
//!
//! Decides by the host's own routes, since no other of its sources knows every kind of pod network: a pod of this node is
//! reached over a link that leads nowhere else (a bridge, or a link of its own), everybody else over one by which some route
//! leaves the node. The routes are read for each connection; workers make few, and routes change.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::PathBuf,
};

use thiserror::Error;

/// Who is turned away.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{0} is neither this node nor a pod of it: a worker reports to the local controller of its own node (where it is on this \
     one all the same, WORKERS_FROM can name its network)"
)]
pub struct Stranger(pub IpAddr);

/// The routes of this host.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Where the kernel tells of its network.
    proc_net: PathBuf,
    /// Networks of the node's pods that its routes do not show.
    also: Vec<Network>,
}

/// A network, such as `10.42.7.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u32,
}

impl Network {
    /// Reads an address and how many of its bits count.
    pub fn read(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let (address, prefix): (IpAddr, u32) = (address.parse().ok()?, prefix.parse().ok()?);
        let most = if address.is_ipv4() { 32 } else { 128 };
        (prefix <= most).then_some(Self { address, prefix })
    }

    fn covers(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(ours), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - self.prefix).unwrap_or(0);
                (u32::from(ours) ^ u32::from(address)) & mask == 0
            }
            (IpAddr::V6(ours), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - self.prefix).unwrap_or(0);
                (u128::from(ours) ^ u128::from(address)) & mask == 0
            }
            _ => false,
        }
    }
}

impl Origin {
    /// This host's routes, and `also`.
    pub fn new(also: Vec<Network>) -> Self {
        Self::of("/proc/net", also)
    }

    /// The routes that a kernel tells of in this folder, and `also`.
    pub fn of(proc_net: impl Into<PathBuf>, also: Vec<Network>) -> Self {
        let proc_net = proc_net.into();
        Self { proc_net, also }
    }

    /// Whether a worker may report that comes from `from` and was reached at `at`.
    pub fn check(&self, from: IpAddr, at: IpAddr) -> Result<(), Stranger> {
        let (from, at) = (from.to_canonical(), at.to_canonical());
        // Who comes from the address that it goes to is on this host.
        let named = || self.also.iter().any(|network| network.covers(from));
        let here = from.is_loopback() || from == at || named() || self.attached(from);
        if here { Ok(()) } else { Err(Stranger(from)) }
    }

    /// Whether the way back to `address` is a link that leads nowhere else.
    fn attached(&self, address: IpAddr) -> bool {
        let routes = match address {
            IpAddr::V4(_) => self.read("route", route_v4),
            IpAddr::V6(_) => self.read("ipv6_route", route_v6),
        };
        let local = self.own_addresses();
        let leaves = |route: &Route| !route.gateway.is_unspecified() && !local.contains(&route.gateway);
        let ways = routes.iter().filter(|route| route.to.covers(address));
        let most_specific = ways.max_by_key(|route| route.to.prefix);
        most_specific.is_some_and(|route| {
            route.to.prefix > 0 && !routes.iter().any(|other| other.link == route.link && leaves(other))
        })
    }

    fn read(&self, file: &str, parse: fn(&str) -> Option<Route>) -> Vec<Route> {
        let text = fs::read_to_string(self.proc_net.join(file)).unwrap_or_default();
        text.lines().filter_map(parse).collect()
    }

    /// The addresses of this host, of version 4: some networks have it as the gateway to its own pods.
    fn own_addresses(&self) -> Vec<IpAddr> {
        let text = fs::read_to_string(self.proc_net.join("fib_trie")).unwrap_or_default();
        let mut address: Option<IpAddr> = None;
        let mut local = Vec::new();
        for line in text.lines().map(str::trim) {
            if let Some(leaf) = line.strip_prefix("|-- ") {
                address = leaf.parse().ok();
            } else if line.ends_with("host LOCAL") {
                local.extend(address);
            }
        }
        local
    }
}

/// A route of the kernel.
#[derive(Debug, PartialEq)]
struct Route {
    link: String,
    to: Network,
    gateway: IpAddr,
}

/// A line of `/proc/net/route`: the link, then the destination, the gateway and, sixth after that, the mask, each the bytes
/// of an address as the processor has them in a word.
fn route_v4(line: &str) -> Option<Route> {
    let fields: Vec<_> = line.split_ascii_whitespace().collect();
    let address = |at: usize| {
        let word = u32::from_str_radix(fields.get(at)?, 16).ok()?;
        Some(Ipv4Addr::from(word.to_ne_bytes()))
    };
    Some(Route {
        link: (*fields.first()?).to_owned(),
        to: Network {
            address: address(1)?.into(),
            prefix: u32::from(address(7)?).leading_ones(),
        },
        gateway: address(2)?.into(),
    })
}

/// A line of `/proc/net/ipv6_route`: the destination, its prefix, the source and its prefix, the gateway, four numbers, the
/// link.
fn route_v6(line: &str) -> Option<Route> {
    let fields: Vec<_> = line.split_ascii_whitespace().collect();
    let address = |at: usize| u128::from_str_radix(fields.get(at)?, 16).ok().map(Ipv6Addr::from);
    let prefix = u32::from_str_radix(fields.get(1)?, 16).ok();
    let route = Route {
        link: (*fields.get(9)?).to_owned(),
        to: Network {
            address: address(0)?.into(),
            prefix: prefix.filter(|prefix| *prefix <= 128)?,
        },
        gateway: address(4)?.into(),
    };
    // The kernel has the routes to nowhere at the loopback.
    Some(route).filter(|route| route.link != "lo")
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A host with these routes of version 4 (link, destination, gateway, prefix) and addresses.
    fn host(routes: &[(&str, [u8; 4], [u8; 4], u32)], own: &[[u8; 4]]) -> (TempDir, Origin) {
        let folder = TempDir::new().unwrap();
        let word = |address: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(address));
        let mut text =
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n".to_owned();
        for (link, to, gateway, prefix) in routes {
            let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0).to_be_bytes();
            let line = [word(*to), word(*gateway), "0001\t0\t0\t0".to_owned(), word(mask)].join("\t");
            text.extend([*link, "\t", &line, "\t0\t0\t0\n"]);
        }
        fs::write(folder.path().join("route"), text).unwrap();
        let trie: Vec<_> = own
            .iter()
            .map(|own| format!("  |-- {}\n     /32 host LOCAL\n", Ipv4Addr::from(*own)))
            .collect();
        fs::write(folder.path().join("fib_trie"), trie.concat()).unwrap();
        let origin = Origin::of(folder.path(), Vec::new());
        (folder, origin)
    }

    const NOWHERE: [u8; 4] = [0; 4];
    const NODE: [u8; 4] = [192, 168, 1, 7];
    const ROUTER: [u8; 4] = [192, 168, 1, 1];

    fn served(origin: &Origin, from: [u8; 4]) -> bool {
        origin.check(from.into(), NODE.into()).is_ok()
    }

    #[test]
    fn pods_of_a_bridge_are_served_and_those_of_other_nodes_are_not() {
        let (_folder, origin) = host(
            &[
                ("eth0", NOWHERE, ROUTER, 0),
                ("eth0", [192, 168, 1, 0], NOWHERE, 24),
                ("cni0", [10, 244, 1, 0], NOWHERE, 24),
                ("eth0", [10, 244, 2, 0], [192, 168, 1, 8], 24),
                ("flannel.1", [10, 244, 3, 0], [10, 244, 3, 0], 24),
            ],
            &[NODE],
        );
        assert!(served(&origin, [10, 244, 1, 9]));
        assert!(served(&origin, [127, 0, 0, 1]));
        assert!(served(&origin, NODE), "a pod in the node's network");
        for stranger in [[10, 244, 2, 9], [10, 244, 3, 9], [192, 168, 1, 8], [8, 8, 8, 8]] {
            assert!(!served(&origin, stranger), "{stranger:?}");
        }
    }

    #[test]
    fn pods_with_a_link_each_are_served() {
        let (_folder, origin) = host(
            &[
                ("eth0", NOWHERE, ROUTER, 0),
                ("cali1", [10, 244, 1, 9], NOWHERE, 32),
                ("eth0", [10, 244, 1, 0], [192, 168, 1, 8], 24),
            ],
            &[NODE],
        );
        assert!(served(&origin, [10, 244, 1, 9]));
        assert!(!served(&origin, [10, 244, 1, 10]));
    }

    #[test]
    fn pods_behind_an_address_of_the_node_itself_are_served() {
        let own = [10, 0, 0, 15];
        let (_folder, origin) = host(
            &[("eth0", NOWHERE, ROUTER, 0), ("cilium_host", [10, 0, 0, 0], own, 24)],
            &[NODE, own],
        );
        assert!(served(&origin, [10, 0, 0, 99]));
        assert!(!served(&origin, [10, 0, 1, 99]));
    }

    #[test]
    fn without_routes_the_host_alone_is_served() {
        let origin = Origin::of("/nonexistent", Vec::new());
        assert!(served(&origin, [127, 0, 0, 1]) && served(&origin, NODE));
        assert!(!served(&origin, [10, 244, 1, 9]));
        let origin = Origin {
            also: vec![Network::read("10.244.1.0/24").unwrap()],
            ..origin
        };
        assert!(served(&origin, [10, 244, 1, 9]), "an operator has said so");
        assert!(!served(&origin, [10, 244, 2, 9]));
        for wrong in [
            "",
            "10.244.1.0",
            "10.244.1.0/",
            "10.244.1.0/33",
            "fd00::/129",
            "/8",
            "pods/8",
        ] {
            assert_eq!(Network::read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn addresses_of_version_6_are_told_apart_as_those_of_4_are() {
        let folder = TempDir::new().unwrap();
        let line = |to: &str, prefix: u32, gateway: &str, link: &str| {
            let word = |address: &str| format!("{:032x}", u128::from(address.parse::<Ipv6Addr>().unwrap()));
            let (to, gateway, none) = (word(to), word(gateway), word("::"));
            format!("{to} {prefix:02x} {none} 00 {gateway} 00000400 00000001 00000000 00000001 {link}\n")
        };
        let lines = [
            line("::", 0, "fe80::1", "eth0"),
            line("2001:db8::", 64, "::", "eth0"),
            line("fd00:1::", 64, "::", "cni0"),
            line("fd00:2::", 64, "2001:db8::8", "eth0"),
            line("::", 0, "::", "lo"),
        ];
        fs::write(folder.path().join("ipv6_route"), lines.concat()).unwrap();
        let origin = Origin::of(folder.path(), Vec::new());
        let served = |from: &str| {
            let at: IpAddr = "2001:db8::7".parse().unwrap();
            origin.check(from.parse().unwrap(), at).is_ok()
        };
        assert!(served("::1") && served("fd00:1::9") && served("2001:db8::7") && served("::ffff:127.0.0.1"));
        assert!(!served("fd00:2::9") && !served("2001:db8::8") && !served("2001:db9::1"));
    }

    #[test]
    fn the_routes_of_this_machine_can_be_read() {
        let origin = Origin::new(Vec::new());
        let text = fs::read_to_string("/proc/net/route").unwrap();
        assert_eq!(
            origin.read("route", route_v4).len(),
            text.lines().count().saturating_sub(1)
        );
        let own = origin.own_addresses();
        assert!(own.contains(&Ipv4Addr::LOCALHOST.into()), "{own:?}");
    }
}
