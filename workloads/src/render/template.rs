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

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn render(template: Value, force_host_network: bool, restart_policy: Option<&'static str>) -> Value {
        let template: PodTemplate = serde_json::from_value(template).unwrap();
        let worker = Worker {
            template: &template,
            labels: BTreeMap::from([("ours".to_owned(), "1".to_owned())]),
            annotations: BTreeMap::new(),
            env: vec![EnvVar::value("NAMESPACE", "ns")],
            storage: Storage::default(),
            force_host_network,
            restart_policy,
        };
        let (metadata, spec) = worker.render(&Settings::default());
        json!({"metadata": metadata, "spec": spec})
    }

    #[test]
    fn the_template_stays_field_by_field() {
        let spec = json!({
            "newIn1_99": {"x": 1}, "tolerations": [{"key": "edge"}],
            "initContainers": [{"name": "init"}], "containers": [{"name": "a", "command": ["x"]}],
        });
        let rendered = render(json!({"spec": spec.clone()}), false, None);
        for field in ["newIn1_99", "tolerations", "initContainers"] {
            assert_eq!(rendered["spec"][field], spec[field], "{field}");
        }
        assert_eq!(rendered["spec"]["containers"][0]["command"], json!(["x"]));
        assert_eq!(
            rendered["spec"]["containers"][0]["env"],
            json!([{"name": "NAMESPACE", "value": "ns"}])
        );
        assert_eq!(rendered["spec"].get("hostNetwork"), None);
        assert_eq!(rendered["spec"].get("restartPolicy"), None);
    }

    #[test]
    fn labels_and_annotations_of_the_template_reach_the_pod_and_ours_win() {
        let metadata = json!({
            "name": "dropped", "creationTimestamp": null,
            "labels": {"ours": "theirs", "team": "vision"}, "annotations": {"note": "x"},
        });
        let rendered = render(json!({"metadata": metadata, "spec": {}}), false, None);
        assert_eq!(
            rendered["metadata"],
            json!({"labels": {"ours": "1", "team": "vision"}, "annotations": {"note": "x"}})
        );
    }

    #[rstest]
    #[case(json!({}), "ClusterFirstWithHostNet")]
    #[case(json!({"dnsPolicy": "ClusterFirst"}), "ClusterFirstWithHostNet")]
    #[case(json!({"dnsPolicy": "Default"}), "Default")]
    #[case(json!({"dnsPolicy": "None", "dnsConfig": {}}), "None")]
    fn a_worker_put_into_its_nodes_network_still_finds_services(#[case] spec: Value, #[case] policy: &str) {
        let rendered = render(json!({"spec": spec}), true, None);
        assert_eq!(rendered["spec"]["hostNetwork"], true);
        assert_eq!(rendered["spec"]["dnsPolicy"], policy);
    }

    #[rstest]
    #[case(json!({}), "OnFailure")]
    #[case(json!({"restartPolicy": ""}), "OnFailure")]
    #[case(json!({"restartPolicy": "Never"}), "Never")]
    fn the_restart_policy_is_the_users_or_the_kinds(#[case] spec: Value, #[case] policy: &str) {
        assert_eq!(
            render(json!({"spec": spec}), false, Some("OnFailure"))["spec"]["restartPolicy"],
            policy
        );
    }
}
