//! The mistakes in `refused.yaml`.

use std::{collections::BTreeMap, fmt};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::manifests::named;

/// Where a pod's template is in the manifest that stands for it.
const TEMPLATE: &str = "/spec/edgeWorker/template";

/// A good manifest with one mistake, and what the API server must say about it.
pub(crate) struct Case {
    kind: String,
    mistake: Mistake,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mistake {
    /// Where, as a JSON pointer below the manifest's root.
    at: String,
    /// What to put there; nothing, to take away what is there.
    put: Option<Value>,
    /// What the message must contain.
    says: String,
    /// The field that the message must name; the place of the mistake if absent.
    field: Option<String>,
}

#[derive(Deserialize)]
struct Refused {
    required: BTreeMap<String, Vec<String>>,
    misspelt: BTreeMap<String, Vec<String>>,
    #[serde(flatten)]
    others: BTreeMap<String, BTreeMap<String, Vec<Mistake>>>,
}

/// The mistakes under one heading.
pub(crate) fn cases(heading: &str) -> Vec<Case> {
    let mut refused: Refused = serde_saphyr::from_str(include_str!("refused.yaml")).unwrap();
    let mistakes = match heading {
        "required" => plain(refused.required, None, "Required value"),
        "misspelt" => plain(refused.misspelt, Some(&json!({})), "unknown field"),
        other => refused
            .others
            .remove(other)
            .unwrap_or_else(|| panic!("no heading {other}")),
    };
    let cases = mistakes.into_iter().flat_map(|(kind, mistakes)| {
        let of_kind = mistakes.into_iter();
        of_kind.map(move |mistake| Case::new(kind.clone(), mistake))
    });
    cases.collect()
}

/// Mistakes of which only the place differs.
fn plain(places: BTreeMap<String, Vec<String>>, put: Option<&Value>, says: &str) -> BTreeMap<String, Vec<Mistake>> {
    let mistake = |at| Mistake {
        at,
        put: put.cloned(),
        says: says.to_owned(),
        field: None,
    };
    let mistakes = places
        .into_iter()
        .map(|(kind, places)| (kind, places.into_iter().map(mistake).collect()));
    mistakes.collect()
}

impl Case {
    fn new(kind: String, mut mistake: Mistake) -> Self {
        if kind == "Pod" {
            mistake.at.insert_str(0, TEMPLATE);
        }
        Self { kind, mistake }
    }

    /// The manifest with its mistake.
    pub(crate) fn manifest(&self) -> Value {
        let mut manifest = good(&self.kind);
        let (parent, key) = self.mistake.at.rsplit_once('/').unwrap();
        let parent = manifest
            .pointer_mut(parent)
            .unwrap_or_else(|| panic!("{self}: nothing there"));
        match (parent, &self.mistake.put) {
            (Value::Object(map), Some(value)) => {
                map.insert(key.to_owned(), value.clone());
            }
            (Value::Object(map), None) => {
                map.remove(key)
                    .unwrap_or_else(|| panic!("{self}: nothing to take away"));
            }
            (Value::Array(list), Some(value)) => list[key.parse::<usize>().unwrap()] = value.clone(),
            (other, _) => panic!("{self}: {other}"),
        }
        manifest
    }

    /// Whether a message names the field and says what is wrong.
    pub(crate) fn is_told_by(&self, message: &str) -> bool {
        message.contains(&self.field()) && message.contains(&self.mistake.says)
    }

    /// The field as the API server writes it.
    fn field(&self) -> String {
        if let Some(field) = &self.mistake.field {
            return field.clone();
        }
        let parts = self.mistake.at.split('/').skip(1);
        let parts = parts.map(|part| {
            part.parse::<usize>()
                .map_or(format!(".{part}"), |index| format!("[{index}]"))
        });
        parts.collect::<String>().split_off(1)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mistake { at, put, .. } = &self.mistake;
        match put {
            Some(value) => write!(f, "{} with {at} = {value}", self.kind),
            None => write!(f, "{} without {at}", self.kind),
        }
    }
}

/// The manifest of a kind that has every field that the mistakes are about.
fn good(kind: &str) -> Value {
    let name = match kind {
        "Dataset" => "robot-streets",
        "Model" => "compiled-detector",
        "JointInferenceService" => "scaled",
        "FederatedLearningJob" => "chess",
        "IncrementalLearningJob" => "helmets-over-time",
        "LifelongLearningJob" => "comfort",
        "ObjectSearchService" => "pedestrians-with-selector",
        "ObjectTrackingService" => "cars",
        "FeatureExtractionService" => "feature-extraction",
        "VideoAnalyticsJob" => "video-analytics-in-full",
        "ReidJob" => "reid",
        "Pod" => return named("JointInferenceService", "pods-in-full"),
        other => panic!("no good {other}"),
    };
    named(kind, name)
}
