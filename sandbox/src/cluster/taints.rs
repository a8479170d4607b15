//! Taints of nodes and the tolerations that pods have for them.

use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};

/// The taints of a node that have this effect.
pub(crate) fn of<'a>(node: &'a Node, effect: &'a str) -> impl Iterator<Item = &'a Taint> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.into_iter().flatten().filter(move |taint| taint.effect == effect)
}

/// A pod's tolerations of a taint.
pub(crate) fn tolerations<'a>(pod: &'a Pod, taint: &'a Taint) -> impl Iterator<Item = &'a Toleration> {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_ref());
    tolerations
        .into_iter()
        .flatten()
        .filter(move |toleration| tolerates(toleration, taint))
}

pub(crate) fn tolerated(pod: &Pod, taint: &Taint) -> bool {
    tolerations(pod, taint).next().is_some()
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let set = |field: &Option<String>| field.clone().filter(|value| !value.is_empty());
    let effect = set(&toleration.effect).is_none_or(|effect| effect == taint.effect);
    let key = set(&toleration.key).is_none_or(|key| key == taint.key);
    let value = match toleration.operator.as_deref() {
        Some("Exists") => true,
        _ => toleration.value.clone().unwrap_or_default() == taint.value.clone().unwrap_or_default(),
    };
    effect && key && value
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(toleration: &Value) -> Pod {
        serde_json::from_value(json!({"spec": {"containers": [], "tolerations": [toleration]}})).unwrap()
    }

    #[test]
    fn key_value_and_effect_must_match_unless_left_open() {
        let taint: Taint =
            serde_json::from_value(json!({"key": "edge", "value": "yes", "effect": "NoSchedule"})).unwrap();
        for (toleration, expected) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "edge", "operator": "Exists"}), true),
            (json!({"key": "edge", "value": "yes"}), true),
            (
                json!({"key": "edge", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}),
                true,
            ),
            (json!({"key": "edge", "value": "no"}), false),
            (json!({"key": "edge"}), false),
            (json!({"key": "other", "operator": "Exists"}), false),
            (
                json!({"key": "edge", "operator": "Exists", "effect": "NoExecute"}),
                false,
            ),
        ] {
            assert_eq!(tolerated(&pod(&toleration), &taint), expected, "{toleration}");
        }
    }
}
