//! The `CustomResourceDefinition`s, as the API server gets them.
//!
//! `kube`'s derive makes all of them but their schemas, which come from [`structural`].

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceValidation, JSONSchemaProps,
};
use kube::{
    CustomResourceExt,
    core::object::{HasSpec, HasStatus},
};
use schemars::JsonSchema;
use serde_json::{Value, json};

use crate::{manifest, names::limit, schema::structural, sedna::v1alpha1 as sedna, skerry::v1alpha1 as skerry};

/// Every definition, in order of group and plural.
pub fn all() -> &'static [CustomResourceDefinition] {
    &ALL
}

static ALL: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(|| {
    use Name::{Free, Label, Service};
    vec![
        definition::<sedna::Dataset>(Free),
        definition::<sedna::FeatureExtractionService>(Service(limit::FEATURE_EXTRACTION_SERVICE)),
        definition::<sedna::FederatedLearningJob>(Service(limit::FEDERATED_LEARNING_JOB)),
        definition::<sedna::IncrementalLearningJob>(Label),
        definition::<sedna::JointInferenceService>(Service(limit::JOINT_INFERENCE_SERVICE)),
        definition::<sedna::LifelongLearningJob>(Label),
        definition::<sedna::Model>(Free),
        definition::<sedna::ObjectSearchService>(Service(limit::OBJECT_SERVICE)),
        definition::<sedna::ObjectTrackingService>(Service(limit::OBJECT_SERVICE)),
        definition::<sedna::ReidJob>(Label),
        definition::<sedna::VideoAnalyticsJob>(Service(limit::VIDEO_ANALYTICS_JOB)),
        definition::<skerry::EdgeNode>(Free),
    ]
});

/// Every definition as one YAML stream, for `kubectl apply -f -`.
pub fn yaml() -> Result<String, serde_saphyr::ser::Error> {
    all().iter().map(|crd| Ok(format!("---\n{}", document(crd)?))).collect()
}

/// One definition as a YAML document.
pub fn document(crd: &CustomResourceDefinition) -> Result<String, serde_saphyr::ser::Error> {
    manifest::document(crd)
}

/// The file that holds a definition: `<group>_<plural>.yaml`.
pub fn file_name(crd: &CustomResourceDefinition) -> String {
    format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural)
}

/// What the names of a kind's resources are used for.
#[derive(Clone, Copy)]
enum Name {
    /// Nothing but itself.
    Free,
    /// The value of a label.
    Label,
    /// The beginning of a Service's name, and no longer than this.
    Service(usize),
}

fn definition<K>(name: Name) -> CustomResourceDefinition
where
    K: CustomResourceExt + HasSpec<Spec: JsonSchema> + HasStatus<Status: JsonSchema>,
{
    let mut crd = K::crd();
    let spec = structural::<K::Spec>();
    let schema = json!({
        "description": spec.get("description"),
        "type": "object",
        "required": ["spec"],
        "properties": {
            "metadata": name.schema(),
            "spec": spec,
            "status": structural::<K::Status>(),
        },
        "x-kubernetes-validations": name.rules(),
    });
    let schema: Option<JSONSchemaProps> = serde_json::from_value(schema).ok();
    for version in &mut crd.spec.versions {
        version.schema = Some(CustomResourceValidation {
            open_api_v3_schema: schema.clone(),
        });
    }
    crd
}

impl Name {
    /// The schema of `metadata`: the name is the one thing about it that a definition may limit.
    fn schema(self) -> Value {
        let most = match self {
            Self::Free => return json!({"type": "object"}),
            Self::Label => limit::LABEL,
            Self::Service(most) => most,
        };
        json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": most}}})
    }

    /// The rules that a length cannot state.
    fn rules(self) -> Option<Value> {
        match self {
            Self::Free | Self::Label => None,
            Self::Service(_) => Some(json!([{
                "rule": "!self.metadata.name.contains('.')",
                "message": "must not contain dots, because a Service is named after it",
                "fieldPath": ".metadata.name",
            }])),
        }
    }
}
