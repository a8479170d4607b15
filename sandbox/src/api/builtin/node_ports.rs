//! Node ports of services.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use serde_json::{Map, Value};

use super::{address::Refusal, defaults::each};
use crate::api::field_error::FieldError;

/// Node ports, as Kubernetes has them.
const PORTS: RangeInclusive<i64> = 30000..=32767;

/// From here on they are given to whoever does not ask for one, as long as there are any: those below are for the others.
const GIVEN_FROM: i64 = 30086;

/// Where a balancer asks which nodes have endpoints of a service.
const HEALTH: &str = "healthCheckNodePort";

/// Those that services hold.
pub(super) struct NodePorts {
    taken: BTreeSet<i64>,
    /// Where the next one is looked for: whoever had one just now may still be spoken to there.
    next: i64,
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
            None => give_to_new(spec, &mut free)?,
            Some(old) => give_to_old(spec, held_by(old), &mut free)?,
        }
        if needs_health(spec) && !old.is_some_and(needs_health) {
            let number = match number(spec, HEALTH) {
                Some(wanted) => free.take(wanted, || format!("spec.{HEALTH}"))?,
                None => free.any()?,
            };
            spec.insert(HEALTH.into(), number.into());
        }
        Ok(())
    }

    /// Notes what a service holds that is stored, in place of what it held before.
    pub(super) fn note(&mut self, old: Option<&Value>, new: Option<&Value>) {
        fn spec(service: Option<&Value>) -> Option<&Map<String, Value>> {
            service?.get("spec")?.as_object()
        }
        let (old, new) = (spec(old), spec(new));
        // What ends gives up all that it names, as in Kubernetes, even if another holds it.
        let given_up = if new.is_some() { held_by } else { named };
        for port in old.map(given_up).unwrap_or_default() {
            self.taken.remove(&port);
        }
        self.taken.extend(new.map(held_by).unwrap_or_default());
        while self.taken.contains(&self.next) {
            self.next += 1;
        }
        if !PORTS.contains(&self.next) {
            self.next = GIVEN_FROM;
        }
    }
}

/// Whether a service is reached on its nodes.
pub(super) fn needed(spec: &Map<String, Value>) -> bool {
    let kind = spec.get("type").and_then(Value::as_str);
    matches!(kind, Some("NodePort" | "LoadBalancer"))
}

/// Whether node ports are given to it that it does not ask for.
fn are_given(spec: &Map<String, Value>) -> bool {
    spec.get("type").is_some_and(|kind| kind == "NodePort")
        || spec.get("allocateLoadBalancerNodePorts") != Some(&Value::Bool(false))
}

fn needs_health(spec: &Map<String, Value>) -> bool {
    let is = |field: &str, wanted: &str| spec.get(field).is_some_and(|value| value == wanted);
    is("type", "LoadBalancer") && is("externalTrafficPolicy", "Local")
}

/// The node ports that a service holds: one that needs none may name some, and holds none.
fn held_by(spec: &Map<String, Value>) -> BTreeSet<i64> {
    if needed(spec) { named(spec) } else { BTreeSet::new() }
}

/// Those that a service names.
fn named(spec: &Map<String, Value>) -> BTreeSet<i64> {
    ports(spec).filter_map(node_port).chain(number(spec, HEALTH)).collect()
}

fn ports(spec: &Map<String, Value>) -> impl Iterator<Item = &Map<String, Value>> {
    let ports = spec.get("ports").and_then(Value::as_array);
    ports.into_iter().flatten().filter_map(Value::as_object)
}

/// The node port that a port has or asks for.
fn node_port(port: &Map<String, Value>) -> Option<i64> {
    number(port, "nodePort")
}

fn number(fields: &Map<String, Value>, name: &str) -> Option<i64> {
    fields.get(name).and_then(Value::as_i64).filter(|number| *number != 0)
}

fn set(port: &mut Map<String, Value>, number: i64) {
    port.insert("nodePort".into(), number.into());
}

/// What an update leaves out stays: a port without a node port has that of the port which had its name, unless another has
/// it now. Where none are needed any more they go, unless new ones are asked for.
pub(super) fn keep(spec: &mut Map<String, Value>, old: &Map<String, Value>) {
    let had = number(old, HEALTH).filter(|_| needs_health(old));
    match (had, number(spec, HEALTH)) {
        (Some(had), None) if needs_health(spec) => drop(spec.insert(HEALTH.into(), had.into())),
        (Some(had), Some(has)) if had == has && !needs_health(spec) => drop(spec.shift_remove(HEALTH)),
        _ => {}
    }
    if !needed(old) {
        return;
    }
    let of_ports = |spec| ports(spec).filter_map(node_port).collect::<BTreeSet<_>>();
    let mut used = of_ports(spec);
    if !needed(spec) {
        if used.is_subset(&of_ports(old)) {
            each(spec, "ports").for_each(|port| drop(port.shift_remove("nodePort")));
        }
        return;
    }
    let name = |port: &Map<String, Value>| port.get("name").cloned();
    let olds: Vec<_> = ports(old)
        .filter_map(|port| Some((name(port), node_port(port)?)))
        .collect();
    for port in each(spec, "ports").filter(|port| node_port(port).is_none()) {
        let of_its_name = olds.iter().find(|(named, _)| *named == name(port));
        if let Some((_, number)) = of_its_name
            && used.insert(*number)
        {
            set(port, *number);
        }
    }
}

/// Ports of one number share a node port, if only one of them asks for any: they differ in their protocols.
fn give_to_new(spec: &mut Map<String, Value>, free: &mut Free) -> Result<(), Refusal> {
    let (are_given, number_of) = (are_given(spec), |port: &Map<String, Value>| number(port, "port"));
    let mut asked = BTreeMap::new();
    for port in ports(spec) {
        if let Some(wanted) = node_port(port) {
            asked.entry(number_of(port)).or_insert(wanted);
        }
    }
    let mut given = BTreeMap::new();
    for (index, port) in each(spec, "ports").enumerate() {
        let (number, own) = (number_of(port), node_port(port));
        if own.is_none() && !are_given {
            continue;
        }
        match (given.get(&number), own) {
            (None, _) => {
                let node_port = match asked.get(&number) {
                    Some(wanted) => free.take(*wanted, || path(index))?,
                    None => free.any()?,
                };
                set(port, node_port);
                given.insert(number, node_port);
            }
            (Some(shared), None) => set(port, *shared),
            (Some(shared), Some(own)) if *shared == own => {}
            (Some(_), Some(own)) => drop(free.take(own, || path(index))?),
        }
    }
    Ok(())
}

/// What it had is its own, and so is what it has asked for.
fn give_to_old(spec: &mut Map<String, Value>, mut own: BTreeSet<i64>, free: &mut Free) -> Result<(), Refusal> {
    let are_given = are_given(spec);
    let mut seen = BTreeSet::new();
    for (index, port) in each(spec, "ports").enumerate() {
        let number = match node_port(port) {
            Some(number) => {
                if own.insert(number) {
                    free.take(number, || path(index))?;
                }
                number
            }
            None if are_given => {
                let number = free.any()?;
                set(port, number);
                number
            }
            None => continue,
        };
        let protocol = port.get("protocol").and_then(Value::as_str).unwrap_or("TCP");
        if !seen.insert((protocol, number)) {
            return Err(Refusal::Unnamed(format!("duplicate nodePort: {{{protocol} {number}}}")));
        }
    }
    Ok(())
}

fn path(index: usize) -> String {
    format!("spec.ports[{index}].nodePort")
}

/// What nobody holds.
struct Free {
    taken: BTreeSet<i64>,
    next: i64,
}

impl Free {
    fn take(&mut self, number: i64, path: impl Fn() -> String) -> Result<i64, Refusal> {
        let wrong = |why: &str| FieldError::invalid(path(), number, why).into();
        if !PORTS.contains(&number) {
            let why = "provided port is not in the valid range. The range of valid ports is 30000-32767";
            return Err(wrong(why));
        }
        if !self.taken.insert(number) {
            return Err(wrong("provided port is already allocated"));
        }
        Ok(number)
    }

    fn any(&mut self) -> Result<i64, Refusal> {
        let number = (self.next..=*PORTS.end())
            .chain(GIVEN_FROM..=*PORTS.end())
            .chain(PORTS)
            .find(|port| self.taken.insert(*port));
        number.ok_or_else(|| Refusal::Internal("failed to allocate a nodePort: range is full".into()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The node ports of a service with these ports, where nobody else holds any.
    fn given(ports: &Value, old: Option<&[(&str, i64)]>) -> Vec<i64> {
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
            .map(|port| port["nodePort"].as_i64().unwrap())
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
