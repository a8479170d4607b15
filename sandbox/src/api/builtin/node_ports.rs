//! Node ports of services.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use serde_json::{Map, Value};

use super::{address::Refusal, defaults::each};
use crate::api::field_error::FieldError;

/// Node ports, as Kubernetes has them.
const PORTS: RangeInclusive<u16> = 30000..=32767;

/// From here on they are given to whoever does not ask for one, as long as there are any: those below are for the others.
const GIVEN_FROM: u16 = 30086;

/// Those that services hold.
pub(super) struct NodePorts {
    taken: BTreeSet<u16>,
    /// Where the next one is looked for: whoever had one just now may still be spoken to there.
    next: u16,
}

impl NodePorts {
    pub(super) fn new() -> Self {
        Self {
            taken: BTreeSet::new(),
            next: GIVEN_FROM,
        }
    }

    /// Gives a service the node ports that it needs and lacks.
    pub(super) fn give(&self, spec: &mut Map<String, Value>, old: Option<&Map<String, Value>>) -> Result<(), Refusal> {
        if !needed(spec) {
            return Ok(());
        }
        let mut free = Free {
            taken: self.taken.clone(),
            next: self.next,
        };
        match old {
            None => give_to_new(spec, &mut free),
            Some(old) => give_to_old(spec, &all(old), &mut free),
        }
    }

    /// Notes what a service holds that is stored, in place of what it held before.
    pub(super) fn note(&mut self, old: Option<&Value>, new: Option<&Value>) {
        for port in old.map(held).unwrap_or_default() {
            self.taken.remove(&port);
        }
        self.taken.extend(new.map(held).unwrap_or_default());
        while self.taken.contains(&self.next) {
            self.next += 1;
        }
    }
}

/// Whether a service is reached on its nodes.
pub(super) fn needed(spec: &Map<String, Value>) -> bool {
    let kind = spec.get("type").and_then(Value::as_str);
    matches!(kind, Some("NodePort" | "LoadBalancer"))
}

/// The node ports that a service holds.
fn held(service: &Value) -> BTreeSet<u16> {
    let spec = service.get("spec").and_then(Value::as_object);
    spec.map(all).unwrap_or_default()
}

fn all(spec: &Map<String, Value>) -> BTreeSet<u16> {
    ports(spec).filter_map(node_port).collect()
}

fn ports(spec: &Map<String, Value>) -> impl Iterator<Item = &Map<String, Value>> {
    let ports = spec.get("ports").and_then(Value::as_array);
    ports.into_iter().flatten().filter_map(Value::as_object)
}

/// The node port that a port has or asks for.
fn node_port(port: &Map<String, Value>) -> Option<u16> {
    let number = port.get("nodePort").and_then(Value::as_u64);
    number
        .and_then(|port| u16::try_from(port).ok())
        .filter(|port| *port != 0)
}

fn set(port: &mut Map<String, Value>, number: u16) {
    port.insert("nodePort".into(), number.into());
}

/// What an update leaves out stays: a port without a node port has that of the port which had its name, unless another has
/// it now. Where none are needed any more they go, unless new ones are asked for.
pub(super) fn keep(spec: &mut Map<String, Value>, old: &Map<String, Value>) {
    let had = all(old);
    let mut used = all(spec);
    if !needed(old) {
        return;
    }
    if !needed(spec) {
        if used.is_subset(&had) {
            each(spec, "ports").for_each(|port| drop(port.shift_remove("nodePort")));
        }
        return;
    }
    let name = |port: &Map<String, Value>| port.get("name").cloned();
    let named: Vec<_> = ports(old)
        .filter_map(|port| Some((name(port), node_port(port)?)))
        .collect();
    for port in each(spec, "ports").filter(|port| node_port(port).is_none()) {
        let of_its_name = named.iter().find(|(named, _)| *named == name(port));
        if let Some((_, number)) = of_its_name
            && used.insert(*number)
        {
            set(port, *number);
        }
    }
}

/// Ports of one number share a node port, if only one of them asks for any: they differ in their protocols.
fn give_to_new(spec: &mut Map<String, Value>, free: &mut Free) -> Result<(), Refusal> {
    let number_of = |port: &Map<String, Value>| port.get("port").and_then(Value::as_u64);
    let mut asked = BTreeMap::new();
    for port in ports(spec) {
        if let Some(wanted) = node_port(port) {
            asked.entry(number_of(port)).or_insert(wanted);
        }
    }
    let mut given = BTreeMap::new();
    for (index, port) in each(spec, "ports").enumerate() {
        let number = number_of(port);
        match (given.get(&number), node_port(port)) {
            (None, _) => {
                let node_port = match asked.get(&number) {
                    Some(wanted) => free.take(*wanted, index)?,
                    None => free.any()?,
                };
                set(port, node_port);
                given.insert(number, node_port);
            }
            (Some(shared), None) => set(port, *shared),
            (Some(shared), Some(own)) if *shared == own => {}
            (Some(_), Some(own)) => drop(free.take(own, index)?),
        }
    }
    Ok(())
}

fn give_to_old(spec: &mut Map<String, Value>, had: &BTreeSet<u16>, free: &mut Free) -> Result<(), Refusal> {
    let mut own = had.clone();
    let mut seen = BTreeSet::new();
    for (index, port) in each(spec, "ports").enumerate() {
        let number = match node_port(port) {
            Some(number) if own.contains(&number) => number,
            Some(number) => free.take(number, index)?,
            None => {
                let number = free.any()?;
                set(port, number);
                number
            }
        };
        own.insert(number);
        let protocol = port.get("protocol").and_then(Value::as_str).unwrap_or("TCP");
        if !seen.insert((protocol, number)) {
            return Err(Refusal::Unnamed(format!("duplicate nodePort: {{{protocol} {number}}}")));
        }
    }
    Ok(())
}

/// What nobody holds.
struct Free {
    taken: BTreeSet<u16>,
    next: u16,
}

impl Free {
    fn take(&mut self, number: u16, index: usize) -> Result<u16, Refusal> {
        let wrong = |why: &str| FieldError::invalid(format!("spec.ports[{index}].nodePort"), number, why).into();
        if !PORTS.contains(&number) {
            let why = "provided port is not in the valid range. The range of valid ports is 30000-32767";
            return Err(wrong(why));
        }
        if !self.taken.insert(number) {
            return Err(wrong("provided port is already allocated"));
        }
        Ok(number)
    }

    fn any(&mut self) -> Result<u16, Refusal> {
        let number = (self.next..=*PORTS.end())
            .chain(GIVEN_FROM..=*PORTS.end())
            .chain(PORTS)
            .find(|port| self.taken.insert(*port));
        number.ok_or_else(|| Refusal::Unnamed("failed to allocate a nodePort: range is full".into()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The node ports of a service with these ports, where nobody else holds any.
    fn given(ports: &Value, old: Option<&[(&str, u16)]>) -> Vec<u64> {
        let mut spec = json!({"type": "NodePort", "ports": ports});
        let spec = spec.as_object_mut().unwrap();
        let old = old.map(|old| {
            let ports: Vec<_> = old
                .iter()
                .map(|(name, port)| json!({"name": name, "nodePort": port}))
                .collect();
            json!({"type": "NodePort", "ports": ports}).as_object().unwrap().clone()
        });
        let mut ports = NodePorts::new();
        if let Some(old) = &old {
            ports.note(None, Some(&json!({"spec": old})));
            keep(spec, old);
        }
        assert!(ports.give(spec, old.as_ref()).is_ok());
        spec["ports"]
            .as_array()
            .unwrap()
            .iter()
            .map(|port| port["nodePort"].as_u64().unwrap())
            .collect()
    }

    #[test]
    fn they_come_and_go_with_the_type() {
        assert_eq!(given(&json!([{"port": 80}]), None), [30086]);
        let mut inner = json!({"type": "ClusterIP", "ports": [{"port": 80, "nodePort": 30086}]});
        let old = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30086}]});
        keep(inner.as_object_mut().unwrap(), old.as_object().unwrap());
        assert_eq!(inner["ports"][0].get("nodePort"), None);
    }

    #[test]
    fn they_stay_with_names() {
        let old = Some(&[("p", 30086)][..]);
        assert_eq!(given(&json!([{"name": "p", "port": 81}]), old), [30086]);
        assert_eq!(given(&json!([{"port": 80}]), old), [30087]);
        let taken = json!([{"name": "p", "port": 80}, {"name": "q", "port": 82, "nodePort": 30086}]);
        assert_eq!(given(&taken, old), [30087, 30086]);
    }

    #[test]
    fn ports_of_one_number_share_one() {
        let both = json!([{"name": "p", "port": 80}, {"name": "q", "port": 80, "protocol": "UDP", "nodePort": 30010}]);
        assert_eq!(given(&both, None), [30010, 30010]);
    }
}
