//! Cases: requests in order, read from `cases/*.yaml`. A step is a request; what it refers to of an earlier answer is
//! filled in when it is sent, for each server from its own answers.

use std::{collections::BTreeMap, fs, path::Path};

use serde::Deserialize;
use serde_json::Value;

/// Requests that belong together. They have a namespace of their own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What is shown; also part of the namespace's name.
    pub name: String,
    /// The requests.
    pub steps: Vec<Step>,
}

/// One request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Method and path. `~` stands for the namespace's path, with the API version in front if it is not `v1`:
    /// `GET ~/pods`, `GET apps/v1~/deployments`. `$id` is unique to the run of a case, `$ns` its namespace.
    pub ask: String,
    /// The body. `${label:/pointer}` in a text is what an earlier answer had there.
    #[serde(default)]
    pub with: Option<Value>,
    /// The body where it is not JSON.
    #[serde(default)]
    pub text: Option<String>,
    /// How the body is written: the media type or `merge`, `json`, `strategic`, `apply`.
    #[serde(default, rename = "type")]
    pub media_type: Option<String>,
    /// The wanted shape of the answer: the media type or `table`, `metadata`, `metadata-list`, `aggregated`.
    #[serde(default)]
    pub accept: Option<String>,
    /// The name by which later steps refer to the answer.
    #[serde(default)]
    pub label: Option<String>,
    /// Asked again until the answer has these values.
    #[serde(default)]
    pub until: BTreeMap<String, Value>,
}

impl Step {
    /// The media type of the body.
    pub fn content_type(&self) -> Option<&str> {
        self.with.as_ref().map(|_| ()).or(self.text.as_ref().map(|_| ()))?;
        Some(match self.media_type.as_deref() {
            None => "application/json",
            Some("merge") => "application/merge-patch+json",
            Some("json") => "application/json-patch+json",
            Some("strategic") => "application/strategic-merge-patch+json",
            Some("apply") => "application/apply-patch+yaml",
            Some(other) => other,
        })
    }

    /// The media type that is asked for.
    pub fn accept(&self) -> &str {
        match self.accept.as_deref() {
            None => "application/json",
            Some("table") => "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            Some("metadata") => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
            Some("metadata-list") => {
                "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
            }
            // What kubectl asks for.
            Some("aggregated") => {
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                 application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
            }
            Some(other) => other,
        }
    }
}

/// All cases that are written by hand.
pub fn read_all() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contract/cases");
    let mut files: Vec<_> = fs::read_dir(&folder)
        .expect("the folder of cases can be read")
        .map(|entry| entry.expect("its entries can be read").path())
        .collect();
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a file of cases can be read");
        let read: Vec<Case> =
            serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let feature = file.file_stem().expect("a file has a name").to_string_lossy();
        cases.extend(read.into_iter().map(|case| Case {
            name: format!("{feature}-{}", case.name),
            ..case
        }));
    }
    cases
}
