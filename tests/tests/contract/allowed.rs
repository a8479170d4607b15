//! What may differ between the sandbox and Kubernetes, and why. At most [`LIMIT`] entries: whatever else differs is a
//! defect of the sandbox. An entry that nothing needs any more fails the run.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::compare::Difference;

/// How many entries there may be.
const LIMIT: usize = 20;

/// A kind of difference that is on purpose.
struct Entry {
    what: &'static str,
    reason: &'static str,
    matches: fn(&Difference) -> bool,
}

/// All entries.
const TABLE: &[Entry] = &[
    Entry {
        what: "the descriptions of columns",
        reason: "kubectl shows them nowhere, and the texts are Kubernetes' own",
        matches: |difference| difference.at.contains("/columnDefinitions/") && difference.at.ends_with("/description"),
    },
    Entry {
        what: "the volume with a token of the service account",
        reason: "nothing signs tokens, and processes of this machine mount nothing",
        matches: |difference| {
            let tokens = |value: &Option<Value>| {
                value
                    .as_ref()
                    .is_some_and(|value| value.to_string().contains("kube-api-access-"))
            };
            tokens(&difference.real) && difference.sandbox.is_none()
                || difference.at.contains("/volume") && tokens(&difference.real)
        },
    },
    Entry {
        what: "the object or patch that a refused patch repeats",
        reason: "it is a dump in the words of Go, and so is what is said of a value of the wrong type in it",
        matches: |difference| {
            let dump = |value: &Option<Value>| {
                let text = value.as_ref().and_then(Value::as_str).unwrap_or_default();
                text.starts_with(" \"\" is invalid: patch: Invalid value: ")
                    || text.starts_with("Invalid value: \"{")
                    || text.starts_with("Invalid value: \"map[")
            };
            dump(&difference.real) && dump(&difference.sandbox)
        },
    },
    Entry {
        what: "null among the texts of an applied map",
        reason: "Kubernetes makes it the empty text; whoever applies it means nothing",
        matches: |difference| {
            let empty = |value: &Value| {
                value == ""
                    || value
                        .as_object()
                        .is_some_and(|map| map.values().all(|value| value == ""))
            };
            difference.sandbox.is_none()
                && difference.real.as_ref().is_some_and(empty)
                && difference.at.contains("/data")
        },
    },
    Entry {
        what: "warnings about the body of a request that is refused for another reason",
        reason: "the refusal is what whoever asked has to mend first",
        matches: |difference| {
            difference.code >= 400 && difference.at.starts_with("/warnings/") && difference.sandbox.is_none()
        },
    },
    Entry {
        what: "the end of the refusal of a pod's update",
        reason: "Kubernetes appends a comparison of its internal structures as text",
        matches: |difference| {
            let text = |value: &Option<Value>| value.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
            let ours = text(&difference.sandbox);
            ours.contains("pod updates may not change fields")
                && text(&difference.real).starts_with(&format!("{ours}\n@@"))
        },
    },
    Entry {
        what: "groups, versions and resources that are not served",
        reason: "nothing that Skerry or its tests do asks for them",
        matches: |difference| {
            let served = difference.ask.starts_with("GET /api") && !difference.ask.contains("namespaces");
            let missing = difference.real.is_some() && difference.sandbox.is_none();
            let in_a_list = difference.at.starts_with("/body/resources/") && difference.at.matches('/').count() == 3;
            let in_all = ["GET /api", "GET /apis"].contains(&difference.ask.as_str()) && is_discovered(&difference.at);
            served && missing && (in_a_list || in_all) || difference.ask.contains("/v1~/horizontalpodautoscalers")
        },
    },
    Entry {
        what: "what the server says of itself",
        reason: "its name, version and address are its own",
        matches: |difference| difference.ask == "GET /version" || difference.at.ends_with("/serverAddress"),
    },
    Entry {
        what: "defaults of Jobs, StatefulSets, DaemonSets, claims of volumes and network policies",
        reason: "they can be stored, and nothing here acts on them",
        matches: |difference| {
            [
                "~/jobs",
                "~/statefulsets",
                "~/daemonsets",
                "~/persistentvolumeclaims",
                "~/networkpolicies",
            ]
            .iter()
            .any(|path| difference.ask.contains(path))
                && difference.at.contains("/body/")
        },
    },
    Entry {
        what: "the estimated cost of a rule",
        reason: "rules are evaluated and never too dear here; that ours are cheap enough is shown on Kubernetes",
        matches: |difference| {
            let text = difference.real.as_ref().map(Value::to_string).unwrap_or_default();
            text.contains("\\\"dear.") && difference.at.is_empty()
        },
    },
    Entry {
        what: "how the parsers of JSON and YAML put what they cannot read",
        reason: "they are other parsers; code, reason and place are the same",
        matches: |difference| {
            let parser = |value: &Option<Value>| {
                let text = value.as_ref().and_then(Value::as_str).unwrap_or_default();
                [
                    "json parse error",
                    "error decoding YAML",
                    "yaml: line",
                    "error decoding patch",
                ]
                .iter()
                .any(|words| text.contains(words))
            };
            parser(&difference.real) && parser(&difference.sandbox)
        },
    },
];

/// Whether it is an entry of aggregated discovery, or that another comes after it.
fn is_discovered(at: &str) -> bool {
    let lists = ["items", "versions", "resources", "subresources", "after"];
    at.starts_with("/body/items/") && at.rsplit('/').nth(1).is_some_and(|list| lists.contains(&list))
}

/// The table, and how often each entry was needed.
pub struct Allowances {
    used: Vec<AtomicUsize>,
}

impl Allowances {
    /// None was needed yet.
    pub fn new() -> Self {
        assert!(
            TABLE.len() <= LIMIT,
            "{} differences are allowed, of at most {LIMIT}",
            TABLE.len()
        );
        Self {
            used: TABLE.iter().map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    /// Whether a difference is allowed.
    pub fn allow(&self, difference: &Difference) -> bool {
        let found = TABLE.iter().position(|entry| (entry.matches)(difference));
        if let Some(used) = found.and_then(|index| self.used.get(index)) {
            used.fetch_add(1, Ordering::Relaxed);
        }
        found.is_some()
    }

    /// Tells what was needed; false if something was not.
    pub fn all_are_needed(&self) -> bool {
        let mut good = true;
        println!("allowed differences: {} of at most {LIMIT}", TABLE.len());
        for (entry, used) in TABLE.iter().zip(&self.used) {
            let used = used.load(Ordering::Relaxed);
            println!("  {used:5} {}: {}", entry.what, entry.reason);
            if used == 0 {
                println!("        nothing needs this entry any more: remove it");
                good = false;
            }
        }
        good
    }
}
