//! What several kinds share: references, metrics, parameters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A figure that a worker reports, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Metric {
    /// What it measures.
    pub key: String,
    /// The figure; whatever is not text is JSON.
    pub value: String,
}

/// A parameter of a hard-example filter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Parameter {
    /// Its name.
    pub key: String,
    /// Its value, as text.
    pub value: String,
}

/// Names a Model of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelRef {
    /// The Model's name.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// Names a Model of the same namespace, or none: Sedna's clients always send the field, with an empty name for none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OptionalModelRef {
    /// The Model's name; empty for none.
    pub name: String,
}

impl OptionalModelRef {
    /// The name, unless it is empty.
    pub fn name(&self) -> Option<&str> {
        Some(self.name.as_str()).filter(|name| !name.is_empty())
    }
}

/// Names a Dataset of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DatasetRef {
    /// The Dataset's name.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// A Secret's name as given: Sedna's clients may send an empty one for none.
pub(crate) fn given(name: Option<&String>) -> Option<&str> {
    name.map(String::as_str).filter(|name| !name.is_empty())
}
