//! The decision for resources in files, without a cluster: what `skerry plan` prints.
//!
//! References are resolved among the files; what they do not hold is missing. What a plan makes is taken for made, and
//! planned on from there, until nothing new is made: so a job's trainers are shown although they need an aggregator
//! first. A resource that no API server has seen has no uid, and what derives from it (names of pods, `WORKER_NAME`)
//! will be different in a cluster.

use serde_json::{Value, json};
use skerry_crds::sedna::v1alpha1::{Dataset, FederatedLearningJob, JointInferenceService, Model};
use thiserror::Error;

use crate::{Child, Children, Kind, Live, Lookup, Make, Observed, Plan, References, Settings};

/// The uid of a resource that has none yet.
const NO_UID: &str = "00000000-0000-0000-0000-000000000000";

/// Why there is no decision for a document.
#[derive(Debug, Error)]
pub enum OfflineError {
    /// It lacks what every object has.
    #[error("document {number} has no {field}")]
    NoObject {
        /// Its number in the order given, from 1.
        number: usize,
        /// What it lacks.
        field: &'static str,
    },
    /// It is of a kind of our API groups that is not known.
    #[error("document {number}: {kind} of {api_version} is not a kind that can be planned")]
    UnknownKind {
        /// Its number in the order given, from 1.
        number: usize,
        /// Its kind.
        kind: String,
        /// Its API version.
        api_version: String,
    },
    /// It is not what its kind says.
    #[error("{title}: {source}")]
    Unparsable {
        /// Kind, namespace and name.
        title: String,
        /// What is wrong.
        source: serde_json::Error,
    },
}

/// The plans of all resources among `documents`, each with its kind, namespace and name, in the order given.
///
/// Documents that are no resources of ours (Secrets, …) serve as what resources refer to.
pub fn offline(documents: &[Value], settings: &Settings) -> Result<Vec<(String, Plan)>, OfflineError> {
    let documents = documents.iter().flat_map(items).enumerate();
    let documents: Vec<_> = documents
        .map(|(index, value)| Document::read(index + 1, value))
        .collect::<Result<_, _>>()?;
    let plans = documents
        .iter()
        .filter(|document| document.api_version.starts_with("sedna.io/"))
        .map(|document| {
            let plan = match document.kind.as_str() {
                "JointInferenceService" => document.plan::<JointInferenceService>(&documents, settings),
                "FederatedLearningJob" => document.plan::<FederatedLearningJob>(&documents, settings),
                "Dataset" => document.plan::<Dataset>(&documents, settings),
                "Model" => document.plan::<Model>(&documents, settings),
                _ => Err(OfflineError::UnknownKind {
                    number: document.number,
                    kind: document.kind.clone(),
                    api_version: document.api_version.clone(),
                }),
            };
            plan.map(|plan| (document.title(), plan))
        });
    plans.collect()
}

/// The elements of a list, or the object itself.
fn items(document: &Value) -> Vec<&Value> {
    match document.get("items").and_then(Value::as_array) {
        Some(items) => items.iter().collect(),
        None => vec![document],
    }
}

struct Document {
    number: usize,
    api_version: String,
    kind: String,
    namespace: String,
    name: String,
    object: Value,
}

impl Document {
    fn read(number: usize, value: &Value) -> Result<Self, OfflineError> {
        let text = |pointer, field| {
            let found = value.pointer(pointer).and_then(Value::as_str);
            found.map(str::to_owned).ok_or(OfflineError::NoObject { number, field })
        };
        let api_version = text("/apiVersion", "apiVersion")?;
        let kind = text("/kind", "kind")?;
        let name = text("/metadata/name", "metadata.name")?;
        let namespace = text("/metadata/namespace", "").unwrap_or_else(|_| "default".to_owned());
        let mut object = value.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("namespace".to_owned(), namespace.clone().into());
            metadata.entry("uid").or_insert_with(|| NO_UID.into());
        }
        Ok(Self {
            number,
            api_version,
            kind,
            namespace,
            name,
            object,
        })
    }

    fn title(&self) -> String {
        format!("{} {}/{}", self.kind, self.namespace, self.name)
    }

    fn plan<K: Kind>(&self, documents: &[Self], settings: &Settings) -> Result<Plan, OfflineError> {
        let resource: K = serde_json::from_value(self.object.clone()).map_err(|source| OfflineError::Unparsable {
            title: self.title(),
            source,
        })?;
        let mut seen = Observed {
            references: self.resolve(&resource, documents),
            ..Observed::default()
        };
        let mut children: Vec<Child> = Vec::new();
        let mut events = Vec::new();
        loop {
            let mut plan = resource.plan(&seen, settings);
            events.append(&mut plan.events);
            let Children::Exactly(planned) = &plan.children else {
                return Ok(plan);
            };
            let made = children.iter().filter_map(live).count();
            for child in planned {
                match children
                    .iter_mut()
                    .find(|known| (known.kind, &known.name) == (child.kind, &child.name))
                {
                    // It had to wait until now.
                    Some(known) if known.make == Make::Keep => *known = child.clone(),
                    Some(_) => {}
                    None => children.push(child.clone()),
                }
            }
            seen.children = children.iter().filter_map(live).collect();
            if seen.children.len() == made {
                return Ok(Plan {
                    children: Children::Exactly(children),
                    events,
                    ..plan
                });
            }
        }
    }

    /// What the resource names, as far as the documents hold it.
    fn resolve<K: Kind>(&self, resource: &K, documents: &[Self]) -> References {
        let mut found = References::default();
        loop {
            let named = resource.references(&found);
            let new: Vec<_> = named
                .into_iter()
                .filter(|reference| !found.0.contains_key(reference))
                .collect();
            if new.is_empty() {
                return found;
            }
            for reference in new {
                let object = documents.iter().find(|document| {
                    document.kind == reference.kind.kind
                        && document.name == reference.name
                        && document.namespace == self.namespace
                });
                let lookup = object.map_or(Lookup::Missing, |document| Lookup::Found(document.object.clone()));
                found.0.insert(reference, lookup);
            }
        }
    }
}

/// The child as if it had been made.
fn live(child: &Child) -> Option<Live> {
    let (Make::Apply(body) | Make::Create(body)) = &child.make else {
        return None;
    };
    let mut object = body.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("uid".to_owned(), json!(NO_UID));
    }
    Some(Live {
        kind: child.kind,
        object,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use rstest::rstest;

    fn plans(documents: &[Value]) -> Vec<(String, Plan)> {
        offline(documents, &Settings::default()).unwrap()
    }

    #[test]
    fn every_resource_of_ours_has_a_plan_in_the_order_given() {
        let titles: Vec<_> = plans(&testing::fixture("federated-learning-s3.yaml"))
            .into_iter()
            .map(|(title, _)| title)
            .collect();
        let expected = [
            "FederatedLearningJob default/yolo",
            "Model default/before",
            "Model default/after",
            "Dataset default/first",
        ];
        assert_eq!(titles, expected);
    }

    #[test]
    fn what_the_files_lack_is_missing() {
        let service = testing::fixture("joint-inference.yaml").remove(0);
        let (_, plan) = plans(&[service]).remove(0);
        let told: Vec<_> = plan.findings.iter().map(|finding| finding.message.as_str()).collect();
        assert_eq!(
            told,
            [
                "Model large does not exist; the cloud worker needs it",
                "Model small does not exist; the edge worker needs it"
            ]
        );
    }

    #[test]
    fn what_is_in_another_namespace_is_missing() {
        let mut documents = testing::fixture("joint-inference.yaml");
        documents[1]["metadata"]["namespace"] = json!("elsewhere");
        assert_eq!(plans(&documents)[0].1.findings.len(), 1);
    }

    #[test]
    fn a_list_is_its_elements() {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": testing::fixture("joint-inference.yaml")});
        assert_eq!(plans(&[list]), plans(&testing::fixture("joint-inference.yaml")));
    }

    #[test]
    fn what_has_to_wait_in_a_cluster_is_shown() {
        let (_, plan) = plans(&testing::fixture("federated-learning.yaml")).remove(0);
        let Children::Exactly(children) = &plan.children else {
            panic!("nothing is paused")
        };
        assert_eq!(
            children
                .iter()
                .filter(|child| matches!(child.make, Make::Create(_)))
                .count(),
            3
        );
        assert_eq!(plan.findings, []);
    }

    #[rstest]
    #[case(json!({"apiVersion": "v1", "metadata": {"name": "x"}}), "document 1 has no kind")]
    #[case(json!({"apiVersion": "v1", "kind": "Secret"}), "document 1 has no metadata.name")]
    #[case(
        json!({"apiVersion": "sedna.io/v1alpha1", "kind": "Modle", "metadata": {"name": "x"}}),
        "document 1: Modle of sedna.io/v1alpha1 is not a kind that can be planned"
    )]
    #[case(
        json!({"apiVersion": "sedna.io/v1alpha1", "kind": "Model", "metadata": {"name": "x"}, "spec": {"url": "/m"}}),
        "Model default/x: missing field `format`"
    )]
    fn what_cannot_be_planned_is_named(#[case] document: Value, #[case] why: &str) {
        assert_eq!(offline(&[document], &Settings::default()).unwrap_err().to_string(), why);
    }
}
