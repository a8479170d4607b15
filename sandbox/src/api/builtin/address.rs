//! Addresses and node ports of services. Addresses are loopback ones, so that a process can really listen there.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::defaults::each;
use crate::api::{
    field_error::FieldError,
    object::{child, map},
};

/// Node ports, as Kubernetes has them.
const PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;

/// What is given out. Rebuilt from nothing, kept in step by [`Self::take`] and [`Self::release`].
pub(in crate::api) struct Addresses {
    /// 127.`block`.0.0/16, from .0.1 on.
    block: u8,
    taken: BTreeSet<u32>,
    next: u32,
    ports: BTreeSet<u16>,
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
            ports: BTreeSet::new(),
        }
    }

    /// Gives a service what its type needs and it lacks. With `old`, what it had is kept. The errors name the fields.
    pub(in crate::api) fn take(
        &mut self,
        service: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<(), Vec<FieldError>> {
        let spec = child(map(service), "spec");
        if spec.get("type").is_some_and(|kind| kind == "ExternalName") {
            give_up(spec, old);
            return Ok(());
        }
        keep(spec, old);
        let old_address = old.map_or("", |old| {
            old.pointer("/spec/clusterIP").and_then(Value::as_str).unwrap_or("")
        });
        let wanted = address(spec).to_owned();
        if !matches!(wanted.as_str(), "" | "None") && parse(&wanted).is_none() {
            return Err(vec![FieldError::invalid("spec.clusterIPs[0]", wanted, NO_ADDRESS)]);
        }
        choose_families(spec, wanted == "None")?;
        // An address that differs from the one before is refused later, by the rules.
        let given = if wanted == "None" || (!wanted.is_empty() && !old_address.is_empty()) {
            wanted
        } else {
            self.address(&wanted, dry_run)
                .map_err(|why| vec![FieldError::invalid("spec.clusterIPs", json!([wanted]), why)])?
        };
        spec.insert("clusterIP".into(), given.as_str().into());
        spec.insert("clusterIPs".into(), json!([given]));
        let external = matches!(
            spec.get("type").and_then(Value::as_str),
            Some("NodePort" | "LoadBalancer")
        );
        let olds = ports(old);
        for (index, port) in each(spec, "ports").enumerate() {
            let path = format!("spec.ports[{index}].nodePort");
            let number = port
                .get("nodePort")
                .and_then(Value::as_u64)
                .and_then(|port| u16::try_from(port).ok());
            match number.filter(|port| *port != 0) {
                Some(number) if external && !olds.contains(&number) => {
                    if self.ports.contains(&number) {
                        let why = "provided port is already allocated";
                        return Err(vec![FieldError::invalid(path, number, why)]);
                    }
                    if !PORTS.contains(&number) {
                        let why = "provided port is not in the valid range. The range of valid ports is 30000-32767";
                        return Err(vec![FieldError::invalid(path, number, why)]);
                    }
                    self.mark(number, dry_run);
                }
                None if external => {
                    let free = PORTS.into_iter().find(|port| !self.ports.contains(port));
                    let Some(free) = free else { continue };
                    self.mark(free, dry_run);
                    port.insert("nodePort".into(), free.into());
                }
                // What was given before goes with the type; what is asked for now is refused by the rules.
                Some(number) if !external && olds.contains(&number) => drop(port.shift_remove("nodePort")),
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes back what a service had.
    pub(in crate::api) fn release(&mut self, service: &Value) {
        let held = service
            .pointer("/spec/clusterIP")
            .and_then(Value::as_str)
            .and_then(parse);
        if let Some(address) = held {
            self.taken.remove(&address);
        }
        for port in ports(Some(service)) {
            self.ports.remove(&port);
        }
    }

    fn mark(&mut self, port: u16, dry_run: bool) {
        if !dry_run {
            self.ports.insert(port);
        }
    }

    fn address(&mut self, wanted: &str, dry_run: bool) -> Result<String, String> {
        let (first, last) = (
            u32::from_be_bytes([127, self.block, 0, 1]),
            u32::from_be_bytes([127, self.block, 255, 254]),
        );
        let number = if wanted.is_empty() {
            let start = self.next.clamp(first, last);
            let free = (start..=last)
                .chain(first..start)
                .find(|number| !self.taken.contains(number));
            free.ok_or("failed to allocate IP: range is full")?
        } else {
            let number = parse(wanted)
                .filter(|number| (first..=last).contains(number))
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
        if !dry_run {
            self.taken.insert(number);
            self.next = number + 1;
        }
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

/// A service that becomes the name of another gives up the address that it had.
fn give_up(spec: &mut Map<String, Value>, old: Option<&Value>) {
    let had = old.and_then(|old| old.pointer("/spec/clusterIP"));
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

fn ports(service: Option<&Value>) -> Vec<u16> {
    let ports = service
        .and_then(|service| service.pointer("/spec/ports"))
        .and_then(Value::as_array);
    let numbers = ports
        .into_iter()
        .flatten()
        .filter_map(|port| port.get("nodePort")?.as_u64());
    numbers.filter_map(|number| u16::try_from(number).ok()).collect()
}

/// What an update leaves out stays as it was.
fn keep(spec: &mut Map<String, Value>, old: Option<&Value>) {
    let Some(old) = old.and_then(|old| old.get("spec")).and_then(Value::as_object) else {
        return;
    };
    let external = |spec: &Map<String, Value>| {
        matches!(
            spec.get("type").and_then(Value::as_str),
            Some("NodePort" | "LoadBalancer")
        )
    };
    let policy = "externalTrafficPolicy";
    if !external(spec) && external(old) && spec.get(policy) == old.get(policy) {
        spec.shift_remove(policy);
    }
    if address(spec).is_empty() && !address(old).is_empty() {
        spec.insert("clusterIP".into(), address(old).into());
    }
    for field in ["ipFamilies", "ipFamilyPolicy"] {
        if let Some(value) = old.get(field).filter(|_| !spec.contains_key(field)) {
            spec.insert(field.into(), value.clone());
        }
    }
    let olds: Vec<Value> = old.get("ports").and_then(Value::as_array).cloned().unwrap_or_default();
    for port in each(spec, "ports") {
        let same = |old: &&Value| {
            ["port", "protocol"]
                .iter()
                .all(|field| old.get(field) == port.get(*field))
        };
        let number = olds.iter().find(same).and_then(|old| old.get("nodePort")).cloned();
        if let Some(number) = number.filter(|_| !port.contains_key("nodePort")) {
            port.insert("nodePort".into(), number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_given_kept_and_taken_back() {
        let mut addresses = Addresses::new(96);
        let service = || json!({"spec": {"type": "ClusterIP", "ports": [{"port": 80}]}});
        let (mut a, mut b) = (service(), service());
        addresses.take(&mut a, None, false).unwrap();
        addresses.take(&mut b, None, false).unwrap();
        assert_eq!(
            (&a["spec"]["clusterIP"], &b["spec"]["clusterIP"]),
            (&json!("127.96.0.1"), &json!("127.96.0.2"))
        );
        let mut updated = service();
        addresses.take(&mut updated, Some(&a), false).unwrap();
        assert_eq!(updated["spec"]["clusterIP"], "127.96.0.1");
        let mut wanted = json!({"spec": {"type": "ClusterIP", "clusterIP": "127.96.0.1"}});
        assert!(addresses.take(&mut wanted.clone(), None, false).is_err());
        addresses.release(&a);
        addresses.take(&mut wanted, None, false).unwrap();
        let mut foreign = json!({"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1"}});
        assert!(addresses.take(&mut foreign, None, false).is_err());
    }

    #[test]
    fn a_service_of_any_family_gets_no_selector_where_there_is_one_family() {
        let mut addresses = Addresses::new(96);
        let mut service = json!({"spec": {"type": "ClusterIP", "clusterIP": "None"}});
        addresses.take(&mut service, None, false).unwrap();
        assert_eq!(service["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
        let mut selecting = service.clone();
        selecting["spec"]["selector"] = json!({"a": "b"});
        let wrong = addresses.take(&mut selecting, Some(&service), false).unwrap_err();
        let wrong: Vec<_> = wrong.iter().map(|error| error.path.as_str()).collect();
        assert_eq!(wrong, ["spec.ipFamilyPolicy", "spec.ipFamilies[1]"]);
    }

    #[test]
    fn node_ports_come_and_go_with_the_type() {
        let mut addresses = Addresses::new(96);
        let mut service = json!({"spec": {"type": "NodePort", "ports": [{"port": 80}]}});
        addresses.take(&mut service, None, false).unwrap();
        assert_eq!(service["spec"]["ports"][0]["nodePort"], 30000);
        let mut inner = json!({"spec": {"type": "ClusterIP", "ports": [{"port": 80}]}});
        addresses.take(&mut inner, Some(&service), false).unwrap();
        assert_eq!(inner["spec"]["ports"][0].get("nodePort"), None);
    }
}
