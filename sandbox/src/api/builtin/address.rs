//! Addresses of services, which are loopback ones, so that a process can really listen there.

use std::{collections::BTreeSet, ops::RangeInclusive};

use serde_json::{Map, Value, json};

use super::node_ports::{self, NodePorts};
use crate::api::{
    field_error::FieldError,
    object::{child, map},
};

/// The addresses and node ports that services hold. Rebuilt from nothing, kept in step by [`Self::note`].
pub(in crate::api) struct Addresses {
    /// 127.`block`.0.0/16, from .0.1 on.
    block: u8,
    taken: BTreeSet<u32>,
    next: u32,
    node_ports: NodePorts,
}

/// Why a service gets nothing.
pub(in crate::api) enum Refusal {
    /// Its fields are wrong.
    Fields(Vec<FieldError>),
    /// What Kubernetes says without naming a field.
    Unnamed(String),
    /// What the server failed at.
    Internal(String),
}

impl From<Vec<FieldError>> for Refusal {
    fn from(wrong: Vec<FieldError>) -> Self {
        Self::Fields(wrong)
    }
}

impl From<FieldError> for Refusal {
    fn from(wrong: FieldError) -> Self {
        Self::Fields(vec![wrong])
    }
}

fn parse(address: &str) -> Option<u32> {
    address.parse::<std::net::Ipv4Addr>().ok().map(u32::from)
}

fn address(spec: &Map<String, Value>) -> &str {
    spec.get("clusterIP").and_then(Value::as_str).unwrap_or_default()
}

impl Addresses {
    pub(in crate::api) fn new(block: u8) -> Self {
        Self {
            block,
            taken: BTreeSet::new(),
            next: 0,
            node_ports: NodePorts::new(),
        }
    }

    /// Gives a service what its type needs and it lacks. With `old`, what it had is kept. It holds nothing of it before it
    /// is stored.
    pub(in crate::api) fn give(&self, service: &mut Value, old: Option<&Value>) -> Result<(), Refusal> {
        let spec = child(map(service), "spec");
        let old = old.and_then(|old| old.get("spec")).and_then(Value::as_object);
        if let Some(old) = old {
            keep(spec, old);
        }
        if is_elsewhere(spec) {
            return Ok(());
        }
        let wanted = address(spec).to_owned();
        if !matches!(wanted.as_str(), "" | "None") && parse(&wanted).is_none() {
            return Err(FieldError::invalid("spec.clusterIPs[0]", wanted, NO_ADDRESS).into());
        }
        choose_families(spec, wanted == "None")?;
        // An address that differs from the one before is refused later, by the rules.
        let stays = !wanted.is_empty() && old.is_some_and(|old| !address(old).is_empty());
        let given = if wanted == "None" || stays {
            wanted
        } else {
            self.address(&wanted)
                .map_err(|why| FieldError::invalid("spec.clusterIPs", json!([wanted]), why))?
        };
        spec.insert("clusterIP".into(), given.as_str().into());
        spec.insert("clusterIPs".into(), json!([given]));
        self.node_ports.give(spec, old)
    }

    /// Notes what a service holds that is stored, in place of what it held before.
    pub(in crate::api) fn note(&mut self, old: Option<&Value>, new: Option<&Value>) {
        let held = |service: Option<&Value>| {
            let spec = service?.get("spec")?.as_object()?;
            parse(address(spec))
        };
        let (before, now) = (held(old), held(new));
        if before != now {
            // Whoever had an address just now may still be spoken to there. One that was asked for changes nothing in that.
            if let Some(chosen) = now.filter(|now| Some(*now) == self.free()) {
                self.next = chosen + 1;
            }
            if let Some(address) = before {
                self.taken.remove(&address);
            }
            self.taken.extend(now);
        }
        self.node_ports.note(old, new);
    }

    fn range(&self) -> RangeInclusive<u32> {
        u32::from_be_bytes([127, self.block, 0, 1])..=u32::from_be_bytes([127, self.block, 255, 254])
    }

    /// The one that is chosen next.
    fn free(&self) -> Option<u32> {
        let (first, last) = self.range().into_inner();
        let start = self.next.clamp(first, last);
        (start..=last)
            .chain(first..start)
            .find(|number| !self.taken.contains(number))
    }

    fn address(&self, wanted: &str) -> Result<String, String> {
        let number = if wanted.is_empty() {
            self.free().ok_or("failed to allocate IP: range is full")?
        } else {
            let number = parse(wanted)
                .filter(|number| self.range().contains(number))
                .ok_or_else(|| {
                    format!("failed to allocate IP {wanted}: the provided network does not match the current range")
                })?;
            if self.taken.contains(&number) {
                return Err(format!(
                    "failed to allocate IP {wanted}: provided IP is already allocated"
                ));
            }
            number
        };
        Ok(std::net::Ipv4Addr::from(number).to_string())
    }
}

/// What is said of an address that is none.
pub(super) const NO_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

/// The families of addresses that a service has, one alone where it is given one: there are no others.
fn choose_families(spec: &mut Map<String, Value>, without_address: bool) -> Result<(), Vec<FieldError>> {
    const ONLY: &str = "IPv4";
    const BOTH: &str = "RequireDualStack";
    // Where somebody else says which addresses there are, they may be of any kind.
    let any = without_address && spec.get("selector").is_none();
    let (families, policy) = if any {
        (json!([ONLY, "IPv6"]), BOTH)
    } else {
        (json!([ONLY]), "SingleStack")
    };
    spec.entry("ipFamilies").or_insert(families);
    spec.entry("ipFamilyPolicy").or_insert_with(|| policy.into());
    if any {
        return Ok(());
    }
    let both = spec.get("ipFamilyPolicy").is_some_and(|policy| policy == BOTH);
    let policy = both.then(|| {
        let why = "this cluster is not configured for dual-stack services";
        FieldError::invalid("spec.ipFamilyPolicy", BOTH, why)
    });
    let families = spec.get("ipFamilies").and_then(Value::as_array);
    let families = families.into_iter().flatten().enumerate();
    let families = families.filter(|(_, family)| *family != ONLY).map(|(index, family)| {
        let path = format!("spec.ipFamilies[{index}]");
        FieldError::invalid(path, family.clone(), "not configured on this cluster")
    });
    let wrong: Vec<_> = policy.into_iter().chain(families).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// Whether a service is but the name of another, and has no address.
fn is_elsewhere(spec: &Map<String, Value>) -> bool {
    spec.get("type").is_some_and(|kind| kind == "ExternalName")
}

/// A service that becomes the name of another gives up the address that it had.
fn give_up(spec: &mut Map<String, Value>, old: &Map<String, Value>) {
    let had = old.get("clusterIP");
    if had.is_some() && spec.get("clusterIP") == had {
        for field in [
            "clusterIP",
            "clusterIPs",
            "ipFamilies",
            "ipFamilyPolicy",
            "internalTrafficPolicy",
        ] {
            spec.shift_remove(field);
        }
    }
}

/// What an update leaves out stays as it was.
fn keep(spec: &mut Map<String, Value>, old: &Map<String, Value>) {
    // What only some types have goes with them, unless it is asked for anew.
    let balanced = |spec: &Map<String, Value>| spec.get("type").is_some_and(|kind| kind == "LoadBalancer");
    for (field, belongs) in [
        (
            "externalTrafficPolicy",
            (node_ports::needed(old), node_ports::needed(spec)),
        ),
        ("allocateLoadBalancerNodePorts", (balanced(old), balanced(spec))),
        ("loadBalancerClass", (balanced(old), balanced(spec))),
    ] {
        if belongs == (true, false) && spec.get(field) == old.get(field) {
            spec.shift_remove(field);
        }
    }
    node_ports::keep(spec, old);
    if is_elsewhere(spec) {
        return give_up(spec, old);
    }
    if address(spec).is_empty() && !address(old).is_empty() {
        spec.insert("clusterIP".into(), address(old).into());
    }
    for field in ["ipFamilies", "ipFamilyPolicy"] {
        if let Some(value) = old.get(field).filter(|_| !spec.contains_key(field)) {
            spec.insert(field.into(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is made of a service that is stored, or why it is not.
    fn store(addresses: &mut Addresses, mut service: Value, old: Option<&Value>) -> Result<Value, Vec<String>> {
        match addresses.give(&mut service, old) {
            Ok(()) => {
                addresses.note(old, Some(&service));
                Ok(service)
            }
            Err(Refusal::Fields(wrong)) => Err(wrong.into_iter().map(|wrong| wrong.path).collect()),
            Err(Refusal::Unnamed(why) | Refusal::Internal(why)) => Err(vec![why]),
        }
    }

    #[test]
    fn addresses_are_given_kept_and_taken_back() {
        let mut addresses = Addresses::new(96);
        let service = || json!({"spec": {"type": "ClusterIP", "ports": [{"port": 80}]}});
        let a = store(&mut addresses, service(), None).unwrap();
        let b = store(&mut addresses, service(), None).unwrap();
        assert_eq!(
            (&a["spec"]["clusterIP"], &b["spec"]["clusterIP"]),
            (&json!("127.96.0.1"), &json!("127.96.0.2"))
        );
        let updated = store(&mut addresses, service(), Some(&a)).unwrap();
        assert_eq!(updated["spec"]["clusterIP"], "127.96.0.1");
        let wanted = json!({"spec": {"type": "ClusterIP", "clusterIP": "127.96.0.1"}});
        store(&mut addresses, wanted.clone(), None).unwrap_err();
        addresses.note(Some(&updated), None);
        store(&mut addresses, wanted, None).unwrap();
        let foreign = json!({"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1"}});
        store(&mut addresses, foreign, None).unwrap_err();
    }

    #[test]
    fn a_service_of_any_family_gets_no_selector_where_there_is_one_family() {
        let mut addresses = Addresses::new(96);
        let service = json!({"spec": {"type": "ClusterIP", "clusterIP": "None"}});
        let service = store(&mut addresses, service, None).unwrap();
        assert_eq!(service["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
        let mut selecting = service.clone();
        selecting["spec"]["selector"] = json!({"a": "b"});
        let wrong = store(&mut addresses, selecting, Some(&service)).unwrap_err();
        assert_eq!(wrong, ["spec.ipFamilyPolicy", "spec.ipFamilies[1]"]);
    }

    #[test]
    fn what_is_not_stored_holds_nothing() {
        let mut addresses = Addresses::new(96);
        let twice = json!([{"name": "p", "port": 80, "nodePort": 30086}, {"name": "q", "port": 81, "nodePort": 30086}]);
        let service = json!({"spec": {"type": "NodePort", "ports": twice}});
        assert_eq!(
            store(&mut addresses, service, None).unwrap_err(),
            ["spec.ports[1].nodePort"]
        );
        let service = json!({"spec": {"type": "NodePort", "ports": [{"port": 80}]}});
        let service = store(&mut addresses, service, None).unwrap();
        assert_eq!(service["spec"]["ports"][0]["nodePort"], 30086);
        assert_eq!(service["spec"]["clusterIP"], "127.96.0.1");
    }
}
