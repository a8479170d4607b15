//! Workers that Sedna made: when their resource changes hands, they go on as they are.
//!
//! Decides which of them are still as Sedna made them, and what is written onto one that is adopted: our marks, never
//! what its pods are made from. When a worker is replaced at last is its kind's decision.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use skerry_crds::names::{self, annotation};

use crate::{Child, Live, Make, render::owner::Owner};

/// Whether the pods of this Deployment are made from what Sedna wrote: it carries no mark of ours, and none was taken
/// away by hand.
pub(crate) fn is_sednas(deployment: &Live) -> bool {
    let annotations = deployment.object.pointer("/spec/template/metadata/annotations");
    let marked = annotations.is_some_and(|annotations| annotations.get(annotation::INPUTS_HASH).is_some());
    !marked && !deployment.owned_by(names::MANAGER, "/f:spec/f:template")
}

/// The child as it is, with these labels and annotations and its owner. The uid keeps the marks off another object of
/// the name, and keeps one from being made of marks alone.
pub(crate) fn keep(
    owner: &Owner,
    live: &Live,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<&str, String>,
) -> Child {
    let mut metadata = owner.metadata(live.name(), labels);
    metadata.insert("uid".to_owned(), live.uid().into());
    metadata.insert("annotations".to_owned(), json!(annotations));
    let body = json!({"apiVersion": live.kind.api_version(), "kind": live.kind.kind, "metadata": metadata});
    Child {
        kind: live.kind,
        name: live.name().to_owned(),
        make: Make::Apply(body),
    }
}

/// The value of a variable in a pod's spec. Sedna puts the same into all containers, after the user's, so that the last
/// one of a name counts.
pub(crate) fn var<'a>(spec: Option<&'a Value>, name: &str) -> Option<&'a str> {
    let vars = spec?.pointer("/containers/0/env")?.as_array()?;
    let var = vars
        .iter()
        .rfind(|var| var.get("name").and_then(Value::as_str) == Some(name))?;
    var.get("value")?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ObjectKind;
    use rstest::rstest;

    #[rstest]
    #[case::sednas(json!({}), json!({}), true)]
    #[case::restarted_by_hand(json!({"kubectl.kubernetes.io/restartedAt": "now"}), json!({}), true)]
    #[case::ours(json!({"skerry.io/inputs-hash": "1"}), json!({}), false)]
    #[case::ours_with_its_mark_gone(json!({}), json!({"f:template": {}}), false)]
    #[case::ours_but_for_the_template(json!({}), json!({"f:replicas": {}}), true)]
    fn a_deployment_is_sednas_until_we_own_its_template(
        #[case] annotations: Value,
        #[case] owned: Value,
        #[case] sednas: bool,
    ) {
        let object = json!({
            "metadata": {"managedFields": [{"manager": names::MANAGER, "fieldsV1": {"f:spec": owned}},
                {"manager": "sedna-gm", "fieldsV1": {"f:spec": {"f:template": {}}}}]},
            "spec": {"template": {"metadata": {"annotations": annotations}}},
        });
        let kind = ObjectKind::DEPLOYMENT;
        assert_eq!(is_sednas(&Live { kind, object }), sednas);
    }

    #[test]
    fn of_two_variables_of_a_name_the_last_one_counts() {
        let spec = json!({"containers": [{"env": [{"name": "A", "value": "the user's"}, {"name": "A", "value": "Sedna's"},
            {"name": "B", "valueFrom": {}}]}]});
        assert_eq!(var(Some(&spec), "A"), Some("Sedna's"));
        assert_eq!(var(Some(&spec), "B"), None);
        assert_eq!(var(None, "A"), None);
    }
}
