//! From where workers may report: this host, and the pods of this node.
//!
//! Decides by the host's own routes and links, since no other of its sources knows every kind of pod network: a pod of this node
//! is reached over a link to another network namespace, over a bridge of such links, or by an address of the host itself; everybody
//! else over a network card, a tunnel, or whatever else some route leaves the node by. They are read for each connection; workers
//! make few, and both change.

mod routes;

use std::{
    ffi::OsStr,
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
};

use thiserror::Error;

pub use routes::Network;
use routes::{Route, route_v4, route_v6};

/// Who is turned away.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{0} is neither this node nor a pod of it: a worker reports to the local controller of its own node (where it is on this \
     one all the same, WORKERS_FROM can name its network)"
)]
pub struct Stranger(pub IpAddr);

/// The routes and links of this host.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Where the kernel tells of its routes.
    proc_net: PathBuf,
    /// Where it tells of its links.
    links: PathBuf,
    /// Networks of the node's pods that its routes do not show.
    also: Vec<Network>,
}

impl Origin {
    /// This host's, and `also`.
    pub fn new(also: Vec<Network>) -> Self {
        Self::of("/proc/net", "/sys/class/net", also)
    }

    /// The routes and links that a kernel tells of in these folders, and `also`.
    pub fn of(proc_net: impl Into<PathBuf>, links: impl Into<PathBuf>, also: Vec<Network>) -> Self {
        let (proc_net, links) = (proc_net.into(), links.into());
        Self { proc_net, links, also }
    }

    /// Whether a worker may report that comes from `from` and was reached at `at`.
    pub fn check(&self, from: IpAddr, at: IpAddr) -> Result<(), Stranger> {
        let (from, at) = (from.to_canonical(), at.to_canonical());
        // Who comes from the address that it goes to is on this host.
        let named = || self.also.iter().any(|network| network.covers(from));
        let here = from.is_loopback() || from == at || named() || self.attached(from);
        if here { Ok(()) } else { Err(Stranger(from)) }
    }

    /// Whether the way back to `address` leads to pods of this node and to nobody else.
    fn attached(&self, address: IpAddr) -> bool {
        let routes = match address {
            IpAddr::V4(_) => self.read("route", route_v4),
            IpAddr::V6(_) => self.read("ipv6_route", route_v6),
        };
        let own = self.own_addresses();
        let leaves = |route: &Route| !route.gateway.is_unspecified() && !own.contains(&route.gateway);
        let ways = || routes.iter().filter(|route| route.to.covers(address));
        let Some(prefix) = ways().map(|route| route.to.prefix).max() else {
            return false;
        };
        // Every link has addresses that are told apart by the link alone: then all of the links have to be such.
        let mut ways = ways().filter(|route| route.to.prefix == prefix);
        prefix > 0
            && ways.all(|way| {
                // By an address of its own a host may reach pods of others, too: its own pods are in the network of that address.
                let by_itself = own.contains(&way.gateway) && way.to.covers(way.gateway);
                let is_ours = by_itself || (way.gateway.is_unspecified() && self.leads_to_pods(&way.link, &way.to));
                is_ours && !routes.iter().any(|other| other.link == way.link && leaves(other))
            })
    }

    /// Whether a route of this prefix by a link leads to another network namespace of this host, or a bridge of links that do.
    fn leads_to_pods(&self, link: &str, to: &Network) -> bool {
        let link = self.links.join(link);
        let Ok(ports) = fs::read_dir(link.join("brif")) else {
            return may_be_a_pair(&link) && (to.is_one_host() || is_a_pair(&link));
        };
        let mut ports = ports.flatten().map(|port| self.links.join(port.file_name()));
        // One that has gone meanwhile leads nowhere.
        ports.all(|port| !port.exists() || may_be_a_pair(&port))
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

/// Whether the other end of a link may be a link, in a pod, for all that the kernel tells of its kind: it is of Ethernet, and neither
/// a card nor anything on top of another link, nor a tunnel that says so.
fn may_be_a_pair(link: &Path) -> bool {
    let text = |file: &str| fs::read_to_string(link.join(file)).unwrap_or_default();
    let Ok(told) = fs::read_dir(link) else { return false };
    let is_more = |name: &OsStr| {
        let more = ["device", "tun_flags", "bonding", "brif"];
        name.to_str()
            .is_none_or(|name| more.contains(&name) || name.starts_with("lower_"))
    };
    let of_ethernet = text("type").trim() == "1";
    let has_a_kind = text("uevent").lines().any(|line| line.starts_with("DEVTYPE="));
    of_ethernet && !has_a_kind && !told.flatten().any(|file| is_more(&file.file_name()))
}

/// Whether it surely is one: the number of its other end is another. Each end has its number in its own namespace, so that some
/// pairs have the same.
fn is_a_pair(link: &Path) -> bool {
    let number = |file: &str| fs::read_to_string(link.join(file)).ok()?.trim().parse::<u32>().ok();
    let (own, other) = (number("ifindex"), number("iflink"));
    own.is_some() && other.is_some_and(|other| other > 0) && own != other
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

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
        for (index, (link, kind)) in (10..).zip(LINKS) {
            let link = folder.path().join(link);
            fs::create_dir(&link).unwrap();
            let tell = |file: &str, what: String| fs::write(link.join(file), what).unwrap();
            let (other, of, told) = match kind {
                Kind::Pair => (index + 1, 1, ""),
                Kind::PairOfOneNumber | Kind::Switch | Kind::Card | Kind::Bridge(_) => (index, 1, ""),
                Kind::Tunnel => (0, 768, ""),
                Kind::BoundTunnel => (1, 778, ""),
                Kind::NamedTunnel => (1, 1, "DEVTYPE=vxlan\n"),
                Kind::Vlan => (1, 1, "DEVTYPE=vlan\n"),
            };
            tell("ifindex", format!("{index}\n"));
            tell("iflink", format!("{other}\n"));
            tell("type", format!("{of}\n"));
            tell("uevent", format!("{told}IFINDEX={index}\n"));
            match kind {
                Kind::Bridge(ports) => {
                    for port in ports {
                        fs::create_dir_all(link.join("brif").join(port)).unwrap();
                    }
                }
                Kind::Card => fs::create_dir(link.join("device")).unwrap(),
                Kind::Vlan => fs::create_dir(link.join("lower_eth1")).unwrap(),
                _ => {}
            }
        }
        let origin = Origin::of(folder.path(), folder.path(), Vec::new());
        (folder, origin)
    }

    /// What a link is.
    #[derive(Clone, Copy)]
    enum Kind {
        /// Its other end is in a pod.
        Pair,
        /// The same, and it happens to have its number there.
        PairOfOneNumber,
        Bridge(&'static [&'static str]),
        Card,
        /// A network within that of `eth1`.
        Vlan,
        /// Of IP in IP, by any card.
        Tunnel,
        /// Of GRE, by one card.
        BoundTunnel,
        /// One whose kind is told.
        NamedTunnel,
        /// Of a switch of software, which tells no more of itself.
        Switch,
    }

    /// The links of a host, as the kernel tells of them.
    const LINKS: [(&str, Kind); 15] = [
        ("eth0", Kind::Card),
        ("eth1", Kind::Card),
        ("eth1.7", Kind::Vlan),
        ("tunl0", Kind::Tunnel),
        ("gre1", Kind::BoundTunnel),
        ("flannel.1", Kind::NamedTunnel),
        ("tun0", Kind::Switch),
        ("veth1", Kind::Pair),
        ("veth2", Kind::PairOfOneNumber),
        ("cali1", Kind::Pair),
        ("cali2", Kind::PairOfOneNumber),
        ("cilium_host", Kind::Pair),
        ("cni0", Kind::Bridge(&["veth1", "veth2", "gone"])),
        ("br-lan", Kind::Bridge(&["eth1", "veth1"])),
        ("br-far", Kind::Bridge(&["flannel.1", "veth1"])),
    ];

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
                ("cali2", [10, 244, 1, 11], NOWHERE, 32),
                ("eth0", [10, 244, 1, 0], [192, 168, 1, 8], 24),
            ],
            &[NODE],
        );
        assert!(served(&origin, [10, 244, 1, 9]) && served(&origin, [10, 244, 1, 11]));
        assert!(!served(&origin, [10, 244, 1, 10]));
    }

    #[test]
    fn pods_behind_an_address_of_the_node_itself_are_served() {
        let own = [10, 0, 0, 15];
        let (_folder, origin) = host(
            &[
                ("eth0", NOWHERE, ROUTER, 0),
                ("cilium_host", [10, 0, 0, 0], own, 24),
                ("cilium_host", own, NOWHERE, 32),
                ("cilium_host", [10, 0, 1, 0], own, 24),
            ],
            &[NODE, own],
        );
        assert!(served(&origin, [10, 0, 0, 99]));
        assert!(!served(&origin, [10, 0, 1, 99]));
    }

    #[test]
    fn who_is_behind_a_card_or_a_tunnel_is_a_stranger_although_no_route_leaves_the_node_by_it() {
        for link in [
            "eth1",
            "eth1.7",
            "tunl0",
            "gre1",
            "flannel.1",
            "tun0",
            "br-lan",
            "br-far",
            "unknown",
        ] {
            let (_folder, origin) = host(
                &[
                    ("eth0", NOWHERE, ROUTER, 0),
                    ("cni0", [10, 244, 1, 0], NOWHERE, 24),
                    (link, [10, 244, 0, 0], NOWHERE, 16),
                ],
                &[NODE],
            );
            assert!(served(&origin, [10, 244, 1, 9]), "{link}");
            assert!(!served(&origin, [10, 244, 2, 9]), "{link}");
        }
        let (_folder, origin) = host(
            &[("tunl0", NOWHERE, NOWHERE, 0), ("tunl0", [10, 64, 64, 64], NOWHERE, 32)],
            &[NODE],
        );
        assert!(!served(&origin, [10, 64, 64, 64]), "the other end of a line");
        assert!(!served(&origin, [8, 8, 8, 8]));
    }

    #[test]
    fn without_routes_the_host_alone_is_served() {
        let origin = Origin::of("/nonexistent", "/nonexistent", Vec::new());
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
        let (folder, origin) = host(&[], &[]);
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
            line("fe80::", 64, "::", "eth0"),
            line("fe80::", 64, "::", "cni0"),
            line("::", 0, "::", "lo"),
        ];
        fs::write(folder.path().join("ipv6_route"), lines.concat()).unwrap();
        let served = |from: &str| {
            let at: IpAddr = "2001:db8::7".parse().unwrap();
            origin.check(from.parse().unwrap(), at).is_ok()
        };
        assert!(served("::1") && served("fd00:1::9") && served("2001:db8::7") && served("::ffff:127.0.0.1"));
        assert!(!served("fd00:2::9") && !served("2001:db8::8") && !served("2001:db9::1"));
        assert!(!served("fe80::9"), "it may be of either link");
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
        assert!(fs::exists("/sys/class/net/lo/iflink").unwrap() && !may_be_a_pair(Path::new("/sys/class/net/lo")));
    }
}
