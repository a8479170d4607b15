//! Requested resources against what a node has to give.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Amounts in thousandths of a unit.
type Amounts = BTreeMap<String, i128>;

/// What a node lacks for a pod beside the pods that are there.
pub(super) fn missing(pod: &Pod, node: &Node, there: &[&Pod]) -> Vec<String> {
    let Some(allocatable) = node.status.as_ref().and_then(|status| status.allocatable.as_ref()) else {
        return vec![];
    };
    let mut used = Amounts::new();
    for other in there {
        add(&mut used, requests(other));
    }
    let mut missing = vec![];
    let slots = allocatable.get("pods").and_then(milli);
    if slots.is_some_and(|slots| i128::try_from(there.len() + 1).unwrap_or(i128::MAX) * 1000 > slots) {
        missing.push("Too many pods".to_owned());
    }
    for (name, wanted) in requests(pod) {
        let free =
            allocatable.get(&name).and_then(milli).unwrap_or_default() - used.get(&name).copied().unwrap_or_default();
        if wanted > 0 && wanted > free {
            missing.push(format!("Insufficient {name}"));
        }
    }
    missing
}

/// The sum over the containers, or the largest init container where that is more.
fn requests(pod: &Pod) -> Amounts {
    let Some(spec) = &pod.spec else { return Amounts::new() };
    let mut total = Amounts::new();
    for container in &spec.containers {
        add(&mut total, of_container(container));
    }
    for container in spec.init_containers.iter().flatten() {
        for (name, wanted) in of_container(container) {
            let known = total.entry(name).or_default();
            *known = (*known).max(wanted);
        }
    }
    total
}

fn of_container(container: &Container) -> Amounts {
    let requests = container
        .resources
        .as_ref()
        .and_then(|resources| resources.requests.as_ref());
    requests
        .into_iter()
        .flatten()
        .filter_map(|(name, amount)| Some((name.clone(), milli(amount)?)))
        .collect()
}

fn add(total: &mut Amounts, part: Amounts) {
    for (name, amount) in part {
        *total.entry(name).or_default() += amount;
    }
}

/// A quantity such as `500m`, `2`, `1.5`, `64Mi`, `2e3` in thousandths, rounded up.
fn milli(quantity: &Quantity) -> Option<i128> {
    let text = quantity.0.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at_checked(end)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let (factor, divisor) = unit(suffix)?;
    let amount = digits.checked_mul(factor)?.checked_mul(1000)?;
    let divisor = scale.checked_mul(divisor)?;
    Some(amount.div_euclid(divisor) + i128::from(amount.rem_euclid(divisor) > 0))
}

fn unit(suffix: &str) -> Option<(i128, i128)> {
    const DECIMAL: [&str; 6] = ["k", "M", "G", "T", "P", "E"];
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let power = |names: [&str; 6]| {
        names
            .iter()
            .position(|name| *name == suffix)
            .and_then(|at| u32::try_from(at + 1).ok())
    };
    if let Some(power) = power(DECIMAL) {
        return Some((1000_i128.pow(power), 1));
    }
    if let Some(power) = power(BINARY) {
        return Some((1024_i128.pow(power), 1));
    }
    match suffix {
        "" => Some((1, 1)),
        "m" => Some((1, 1000)),
        "u" => Some((1, 1_000_000)),
        "n" => Some((1, 1_000_000_000)),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
            Some(if exponent < 0 { (1, power) } else { (power, 1) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities() {
        for (text, expected) in [
            ("500m", Some(500)),
            ("2", Some(2000)),
            ("1.5", Some(1500)),
            ("1Ki", Some(1_024_000)),
            ("0.5Gi", Some(536_870_912_000)),
            ("3k", Some(3_000_000)),
            ("2e3", Some(2_000_000)),
            ("1n", Some(1)),
            ("many", None),
            ("1Qi", None),
        ] {
            assert_eq!(milli(&Quantity(text.to_owned())), expected, "{text}");
        }
    }
}
