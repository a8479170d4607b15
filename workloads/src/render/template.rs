//! A worker's pod: the user's template, field by field as it is, with what the worker contract adds.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use skerry_crds::template::PodTemplate;

use super::{
    env::{self, EnvVar},
    json::{edit_list, edit_object},
    storage::Storage,
};
use crate::Settings;

/// What of a template's metadata reaches a pod.
const METADATA: [&str; 3] = ["labels", "annotations", "finalizers"];

/// A worker about to be rendered.
pub(crate) struct Worker<'a> {
    /// The user's template.
    pub(crate) template: &'a PodTemplate,
    /// Labels that override the user's.
    pub(crate) labels: BTreeMap<String, String>,
    /// Annotations that override the user's.
    pub(crate) annotations: BTreeMap<String, String>,
    /// Variables for every container, beside those of `storage`.
    pub(crate) env: Vec<EnvVar>,
    /// Its models and data sets.
    pub(crate) storage: Storage,
    /// Whether it is put into its node's network, whatever the template says.
    pub(crate) force_host_network: bool,
    /// The restart policy where the template has none.
    pub(crate) restart_policy: Option<&'static str>,
}

impl Worker<'_> {
    /// `metadata` and `spec` of the pod.
    pub(crate) fn render(self, settings: &Settings) -> (Map<String, Value>, Map<String, Value>) {
        let mut metadata = self.template.metadata().cloned().unwrap_or_default();
        metadata.retain(|key, value| METADATA.contains(&key.as_str()) && !value.is_null());
        put_all(&mut metadata, "labels", self.labels);
        put_all(&mut metadata, "annotations", self.annotations);

        let mut spec = self.template.spec().cloned().unwrap_or_default();
        self.storage.inject(&mut spec, settings);
        let vars: Vec<_> = self.env.into_iter().chain(self.storage.env).collect();
        edit_list(&mut spec, "containers", |containers| {
            for container in containers.iter_mut().filter_map(Value::as_object_mut) {
                env::inject(container, &vars);
            }
        });
        if self.force_host_network {
            force_host_network(&mut spec);
        }
        if let Some(policy) = self.restart_policy.filter(|_| self.template.restart_policy().is_none()) {
            spec.insert("restartPolicy".to_owned(), policy.into());
        }
        (metadata, spec)
    }
}

fn put_all(metadata: &mut Map<String, Value>, key: &str, values: BTreeMap<String, String>) {
    if !values.is_empty() {
        edit_object(metadata, key, |map| {
            map.extend(values.into_iter().map(|(key, value)| (key, value.into())));
        });
    }
}

/// In the node's network the default policy knows no Service: `ClusterFirst` falls back to the node's own resolver.
fn force_host_network(spec: &mut Map<String, Value>) {
    spec.insert("hostNetwork".to_owned(), true.into());
    let policy = spec.get("dnsPolicy").and_then(Value::as_str).unwrap_or_default();
    if matches!(policy, "" | "ClusterFirst") {
        spec.insert("dnsPolicy".to_owned(), "ClusterFirstWithHostNet".into());
    }
}
