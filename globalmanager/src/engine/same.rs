//! Whether a live object already is what was planned, so that nothing is sent that would change nothing.
//!
//! The API server fills in defaults, sorts nothing, drops empty values and writes quantities in their canonical form;
//! other managers add fields of their own. So: every value that was planned must be there, under those rules. What was
//! planned earlier and is planned no more cannot be seen here; the hash of the plan, which a child carries in an
//! annotation, tells.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use skerry_crds::names;

/// The keys by which Kubernetes merges lists of objects, tried in this order: the first that all elements have.
const LIST_KEYS: [&[&str]; 6] = [
    &["uid"],
    &["mountPath"],
    &["containerPort"],
    &["port"],
    &["name"],
    &["type"],
];

/// Below these fields a string or number is a quantity (`resources.limits`, `emptyDir.sizeLimit`, …).
const QUANTITIES: [&str; 6] = ["limits", "requests", "sizeLimit", "divisor", "averageValue", "capacity"];

/// The body with the hash of itself as an annotation: it tells what was planned before and is planned no more.
pub(crate) fn with_hash(body: &Value) -> Value {
    let hash = Sha256::digest(serde_json::to_vec(body).unwrap_or_default());
    let hash = hash
        .iter()
        .take(8)
        .fold(String::new(), |hash, byte| hash + &format!("{byte:02x}"));
    let mut body = body.clone();
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut)
        && let Some(annotations) = metadata
            .entry("annotations")
            .or_insert_with(|| json!({}))
            .as_object_mut()
    {
        annotations.insert(names::annotation::APPLIED_HASH.to_owned(), hash.into());
    }
    body
}

/// Whether `live` holds everything of `planned`.
pub(crate) fn holds(live: &Value, planned: &Value) -> bool {
    holds_at(Some(live), planned, false)
}

fn holds_at(live: Option<&Value>, planned: &Value, quantity: bool) -> bool {
    match (live, planned) {
        (None | Some(Value::Null), planned) => is_empty(planned),
        (Some(Value::Object(live)), Value::Object(planned)) => object_holds(live, planned, quantity),
        (Some(Value::Array(live)), Value::Array(planned)) => list_holds(live, planned, quantity),
        (Some(live), planned) if live == planned => true,
        (Some(live), planned) if quantity => amount(live).is_some_and(|live| amount(planned) == Some(live)),
        _ => false,
    }
}

fn object_holds(live: &Map<String, Value>, planned: &Map<String, Value>, quantity: bool) -> bool {
    planned
        .iter()
        .all(|(key, planned)| holds_at(live.get(key), planned, quantity || QUANTITIES.contains(&key.as_str())))
}

fn list_holds(live: &[Value], planned: &[Value], quantity: bool) -> bool {
    match list_keys(planned) {
        Some(keys) => planned.iter().all(|planned| {
            let found = live
                .iter()
                .find(|live| keys.iter().all(|key| live.get(key) == planned.get(key)));
            found.is_some_and(|live| holds_at(Some(live), planned, quantity))
        }),
        None => {
            live.len() == planned.len()
                && live
                    .iter()
                    .zip(planned)
                    .all(|(live, planned)| holds_at(Some(live), planned, quantity))
        }
    }
}

fn list_keys(planned: &[Value]) -> Option<&'static [&'static str]> {
    LIST_KEYS.into_iter().find(|keys| {
        !planned.is_empty()
            && planned
                .iter()
                .all(|element| keys.iter().all(|key| element.get(key).is_some()))
    })
}

/// What the API server does not store: an empty value that a typed field omits.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::String(text) => text.is_empty(),
        Value::Array(elements) => elements.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Number(number) => number.as_f64() == Some(0.0),
    }
}

/// The amount of a quantity in thousandths: `1.5`, `500m`, `1Gi`, `2k`, `1e3`.
fn amount(value: &Value) -> Option<i128> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let digits = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+')))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let milli: i128 = match suffix {
        "" => 1_000,
        "m" => 1,
        "k" => 1_000_000,
        "M" => 1_000_000_000,
        "G" => 1_000_000_000_000,
        "T" => 1_000_000_000_000_000,
        "Ki" => 1_000 << 10,
        "Mi" => 1_000 << 20,
        "Gi" => 1_000 << 30,
        "Ti" => 1_000 << 40,
        exponent => {
            let exponent: u32 = exponent.strip_prefix(['e', 'E'])?.parse().ok().filter(|e| *e <= 24)?;
            1_000 * 10_i128.pow(exponent)
        }
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    Some(digits.checked_mul(milli)? / scale)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_and_foreign_fields_do_not_count() {
        let planned = json!({"spec": {"containers": [{"name": "a", "image": "x"}], "emptyDir": {}, "env": []}});
        let live = json!({"spec": {"containers": [{"name": "sidecar"}, {"name": "a", "image": "x", "imagePullPolicy":
            "Always"}], "dnsPolicy": "ClusterFirst"}, "status": {}});
        assert!(holds(&live, &planned));
    }

    #[test]
    fn a_changed_or_missing_value_counts() {
        let planned = json!({"spec": {"replicas": 1, "containers": [{"name": "a", "args": ["x", "y"]}]}});
        for live in [
            json!({"spec": {"replicas": 3, "containers": [{"name": "a", "args": ["x", "y"]}]}}),
            json!({"spec": {"replicas": 1, "containers": [{"name": "a", "args": ["y", "x"]}]}}),
            json!({"spec": {"replicas": 1, "containers": [{"name": "a", "args": ["x", "y", "z"]}]}}),
            json!({"spec": {"replicas": 1, "containers": [{"name": "b", "args": ["x", "y"]}]}}),
            json!({"spec": {"replicas": 1}}),
        ] {
            assert!(!holds(&live, &planned), "{live}");
        }
    }

    #[test]
    fn quantities_are_compared_by_amount_and_only_where_they_are_quantities() {
        let planned = json!({"resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}, "requests": {"cpu": 0.5}}});
        let live = json!({"resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}});
        assert!(holds(&live, &planned));
        let less = json!({"resources": {"limits": {"cpu": "999m", "memory": "1Gi"}, "requests": {"cpu": "500m"}}});
        assert!(!holds(&less, &planned));
        assert!(!holds(
            &json!({"env": [{"name": "A", "value": "1"}]}),
            &json!({"env": [{"name": "A", "value": "1000m"}]})
        ));
    }
}
