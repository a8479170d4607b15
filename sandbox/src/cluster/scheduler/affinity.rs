//! A pod's node selector and required node affinity.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, Pod};
use kube::ResourceExt;

use super::super::meta::has_labels;

/// Whether a node has the labels that a pod asks for.
pub(super) fn fits(pod: &Pod, node: &Node) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    has_labels(spec.node_selector.as_ref(), node.metadata.labels.as_ref())
        && required.is_none_or(|required| required.node_selector_terms.iter().any(|term| matches(term, node)))
}

/// All of a term's requirements hold; a term without any matches nothing.
fn matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let name = BTreeMap::from([("metadata.name".to_owned(), node.name_any())]);
    let mut expressions = term
        .match_expressions
        .iter()
        .flatten()
        .map(|wanted| holds(wanted, node.labels()));
    let mut fields = term.match_fields.iter().flatten().map(|wanted| holds(wanted, &name));
    let empty = |list: &Option<Vec<_>>| list.as_ref().is_none_or(Vec::is_empty);
    !(empty(&term.match_expressions) && empty(&term.match_fields))
        && expressions.all(|holds| holds)
        && fields.all(|holds| holds)
}

fn holds(wanted: &NodeSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let value = labels.get(&wanted.key);
    let values = wanted.values.as_deref().unwrap_or_default();
    let number = |text: &String| text.parse::<i64>().ok();
    let compared = || Some((number(value?)?, number(values.first()?)?));
    match wanted.operator.as_str() {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared().is_some_and(|(value, bound)| value > bound),
        "Lt" => compared().is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}
