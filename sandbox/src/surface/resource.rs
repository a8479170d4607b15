//! What is served: one [`Resource`] for each group, version and plural, built in or from a `CustomResourceDefinition`.
//!
//! A description only: it never holds objects, and never decides what a request may do.

use serde_json::Value;

/// Verbs of a resource that is stored, in the order in which discovery lists them.
pub const CUSTOM: &[&str] = &[
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];

/// The verbs of a built-in resource that is stored.
pub const STORED: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// One resource of one API version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: String,
    /// API version, such as `v1`.
    pub version: String,
    /// Such as `Deployment`.
    pub kind: String,
    /// Such as `deployments`; the path segment.
    pub plural: String,
    /// Such as `deployment`.
    pub singular: String,
    /// Such as `DeploymentList`; empty for resources that cannot be listed.
    pub list_kind: String,
    /// Such as `deploy`.
    pub short_names: Vec<String>,
    /// Such as `all`.
    pub categories: Vec<String>,
    /// False for cluster-scoped resources.
    pub namespaced: bool,
    /// What may be asked of the main endpoint, sorted.
    pub verbs: Vec<String>,
    /// Endpoints below an object, sorted by name.
    pub subresources: Vec<Subresource>,
}

/// An endpoint below an object, such as `deployments/scale`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subresource {
    /// Such as `status` or `scale`.
    pub name: String,
    /// Group of what it takes and answers.
    pub group: String,
    /// Version of what it takes and answers.
    pub version: String,
    /// Kind of what it takes and answers.
    pub kind: String,
    /// What may be asked of it, sorted.
    pub verbs: Vec<String>,
}

impl Resource {
    /// `group/version`, or the version alone in the core group: what `apiVersion` says.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// `plural.group`, or the plural alone in the core group, as error messages name it.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// True if the endpoint below an object exists.
    pub fn has_subresource(&self, name: &str) -> bool {
        self.subresources.iter().any(|s| s.name == name)
    }

    /// The resources that a `CustomResourceDefinition` serves, one for each served version, in its order.
    /// Names are those of `spec.names` with the API server's defaults; nothing is validated here.
    pub fn of_crd(crd: &Value) -> Vec<Self> {
        let text = |pointer: &str| {
            crd.pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let texts = |pointer: &str| -> Vec<String> {
            let list = crd.pointer(pointer).and_then(Value::as_array);
            list.into_iter()
                .flatten()
                .filter_map(|v| v.as_str().map(str::to_owned))
                .collect()
        };
        let or = |s: String, default: String| if s.is_empty() { default } else { s };
        let (group, kind) = (text("/spec/group"), text("/spec/names/kind"));
        let versions = crd.pointer("/spec/versions").and_then(Value::as_array);
        versions
            .into_iter()
            .flatten()
            .filter(|v| v.get("served").and_then(Value::as_bool).unwrap_or_default())
            .map(|version| {
                let name = version
                    .get("name")
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned();
                Self {
                    subresources: crd_subresources(version, &group, &name, &kind),
                    group: group.clone(),
                    version: name,
                    kind: kind.clone(),
                    plural: text("/spec/names/plural"),
                    singular: or(text("/spec/names/singular"), kind.to_lowercase()),
                    list_kind: or(text("/spec/names/listKind"), format!("{kind}List")),
                    short_names: texts("/spec/names/shortNames"),
                    categories: texts("/spec/names/categories"),
                    namespaced: text("/spec/scope") == "Namespaced",
                    verbs: owned(CUSTOM),
                }
            })
            .collect()
    }
}

/// `group/version`, or the version alone in the core group.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// A kind's group and version from its `apiVersion`.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

fn crd_subresources(version: &Value, group: &str, name: &str, kind: &str) -> Vec<Subresource> {
    let has = |s: &str| {
        version
            .pointer(&format!("/subresources/{s}"))
            .is_some_and(|v| !v.is_null())
    };
    let verbs = || owned(&["get", "patch", "update"]);
    let mut all = Vec::new();
    if has("status") {
        all.push(Subresource {
            name: "status".into(),
            group: group.into(),
            version: name.into(),
            kind: kind.into(),
            verbs: verbs(),
        });
    }
    if has("scale") {
        all.push(Subresource {
            name: "scale".into(),
            group: "autoscaling".into(),
            version: "v1".into(),
            kind: "Scale".into(),
            verbs: verbs(),
        });
    }
    all
}

pub(super) fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| (*w).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_crd_serves_one_resource_for_each_served_version() {
        let crd = json!({"spec": {
            "group": "example.test", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [
                {"name": "v1", "served": true, "subresources": {"status": {}, "scale": {}}},
                {"name": "v0", "served": false},
            ],
        }});
        let [widget] = Resource::of_crd(&crd).try_into().unwrap();
        assert_eq!(
            (widget.singular.as_str(), widget.list_kind.as_str()),
            ("widget", "WidgetList")
        );
        assert_eq!(widget.qualified(), "widgets.example.test");
        assert!(widget.namespaced && widget.has_subresource("status") && widget.has_subresource("scale"));
        assert_eq!(widget.subresources[1].kind, "Scale");
    }

    #[test]
    fn api_versions_split_and_join() {
        for v in ["v1", "apps/v1"] {
            let (group, version) = split_api_version(v);
            assert_eq!(api_version(group, version), v);
        }
    }
}
