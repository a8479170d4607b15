//! The kernel's routes, as it tells of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network, such as `10.42.7.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    pub(super) prefix: u32,
}

impl Network {
    /// Reads an address and how many of its bits count.
    pub fn read(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let (address, prefix): (IpAddr, u32) = (address.parse().ok()?, prefix.parse().ok()?);
        let most = if address.is_ipv4() { 32 } else { 128 };
        (prefix <= most).then_some(Self { address, prefix })
    }

    pub(super) fn is_one_host(&self) -> bool {
        self.prefix == if self.address.is_ipv4() { 32 } else { 128 }
    }

    pub(super) fn covers(&self, address: IpAddr) -> bool {
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

/// A route of the kernel.
#[derive(Debug, PartialEq)]
pub(super) struct Route {
    pub(super) link: String,
    pub(super) to: Network,
    pub(super) gateway: IpAddr,
}

/// A line of `/proc/net/route`: the link, then the destination, the gateway and, sixth after that, the mask, each the bytes
/// of an address as the processor has them in a word.
pub(super) fn route_v4(line: &str) -> Option<Route> {
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
pub(super) fn route_v6(line: &str) -> Option<Route> {
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
