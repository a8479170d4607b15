//! Discovery: what is served, in the form that is asked for, single lists or all at once (aggregated, `v2`).

use std::cmp::Reverse;

use base64::Engine as _;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::resource::{Resource, Subresource, api_version};

/// The media type of the aggregated form, as a request accepts it and as an answer names it.
pub const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The order of the built-in groups. Where a short name means several kinds, `kubectl` takes the first.
const GROUPS: [&str; 15] = [
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
];

/// All resources, in the order in which discovery tells of them.
pub struct Discovery<'r> {
    resources: Vec<&'r Resource>,
}

impl<'r> Discovery<'r> {
    /// Takes the resources that are served now.
    pub fn new(resources: impl IntoIterator<Item = &'r Resource>) -> Self {
        let mut resources: Vec<_> = resources.into_iter().collect();
        resources.sort_by(|a, b| order(a).cmp(&order(b)));
        Self { resources }
    }

    /// `/api`. `address` is this server's, such as `127.0.0.1:6443`.
    pub fn core_versions(&self, address: &str) -> Value {
        json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
        })
    }

    /// `/apis`.
    pub fn groups(&self) -> Value {
        let groups: Vec<_> = self
            .group_names()
            .into_iter()
            .filter_map(|name| self.group_body(name))
            .collect();
        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    }

    /// `/apis/<group>`; `None` for a group that is not served.
    pub fn group(&self, name: &str) -> Option<Value> {
        let mut group = Map::from_iter([("kind".into(), "APIGroup".into()), ("apiVersion".into(), "v1".into())]);
        if let Value::Object(body) = self.group_body(name).filter(|_| !name.is_empty())? {
            group.extend(body);
        }
        Some(Value::Object(group))
    }

    /// `/api/v1` or `/apis/<group>/<version>`; `None` for a version that is not served.
    pub fn resources(&self, group: &str, version: &str) -> Option<Value> {
        let of = self
            .resources
            .iter()
            .filter(|r| r.group == group && r.version == version);
        let resources: Vec<_> = of.flat_map(|resource| entries(resource)).collect();
        if resources.is_empty() {
            return None;
        }
        let mut list = Map::from_iter([("kind".into(), "APIResourceList".into())]);
        // The core group's list, which is the oldest, does without.
        if !group.is_empty() {
            list.insert("apiVersion".into(), "v1".into());
        }
        list.insert("groupVersion".into(), api_version(group, version).into());
        list.insert("resources".into(), resources.into());
        Some(Value::Object(list))
    }

    /// `/api` (with `core`) or `/apis` in the aggregated form.
    pub fn aggregated(&self, core: bool) -> Value {
        let names = if core { vec![""] } else { self.group_names() };
        let items: Vec<_> = names.into_iter().map(|name| self.aggregated_group(name)).collect();
        json!({
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": items,
        })
    }

    fn aggregated_group(&self, name: &str) -> Value {
        let version = |version: &str| {
            let of = self
                .resources
                .iter()
                .filter(|r| r.group == name && r.version == version);
            let resources: Vec<_> = of.map(|resource| aggregated(resource)).collect();
            json!({"version": version, "resources": resources, "freshness": "Current"})
        };
        let versions: Vec<_> = self.versions(name).into_iter().map(version).collect();
        let metadata = if name.is_empty() {
            json!({})
        } else {
            json!({"name": name})
        };
        json!({"metadata": metadata, "versions": versions})
    }

    /// All but the core group.
    fn group_names(&self) -> Vec<&'r str> {
        let mut names: Vec<_> = self
            .resources
            .iter()
            .map(|r| r.group.as_str())
            .filter(|g| !g.is_empty())
            .collect();
        names.dedup();
        names
    }

    fn versions(&self, group: &str) -> Vec<&'r str> {
        let mut versions: Vec<_> = self
            .resources
            .iter()
            .filter(|r| r.group == group)
            .map(|r| r.version.as_str())
            .collect();
        versions.dedup();
        versions
    }

    fn group_body(&self, name: &str) -> Option<Value> {
        let version = |v: &&str| json!({"groupVersion": api_version(name, v), "version": v});
        let versions: Vec<_> = self.versions(name).iter().map(version).collect();
        let preferred = versions.first()?.clone();
        Some(json!({"name": name, "versions": versions, "preferredVersion": preferred}))
    }
}

fn order(resource: &Resource) -> (usize, &str, Reverse<Priority>, &str) {
    let group = resource.group.as_str();
    let place = built_in(group).unwrap_or(GROUPS.len() + 1);
    (place, group, Reverse(priority(&resource.version)), &resource.plural)
}

/// The place of a built-in group.
fn built_in(group: &str) -> Option<usize> {
    if group.is_empty() {
        return Some(0);
    }
    GROUPS.iter().position(|known| *known == group).map(|place| place + 1)
}

/// Stable before beta before alpha before anything else, then the higher number.
type Priority = (u8, u64, u64);

fn priority(version: &str) -> Priority {
    let parsed = || {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (major, rest) = rest.split_at(digits);
        let major = major.parse().ok()?;
        let stage = |name: &str| rest.strip_prefix(name).and_then(|n| n.parse().ok());
        match rest {
            "" => Some((3, major, 0)),
            _ => stage("beta")
                .map(|n| (2, major, n))
                .or_else(|| stage("alpha").map(|n| (1, major, n))),
        }
    };
    parsed().unwrap_or_default()
}

/// A resource and its subresources, as the single lists name them.
fn entries(resource: &Resource) -> Vec<Value> {
    let mut main = Map::from_iter([
        ("name".into(), resource.plural.clone().into()),
        ("singularName".into(), resource.singular.clone().into()),
        ("namespaced".into(), resource.namespaced.into()),
        ("kind".into(), resource.kind.clone().into()),
        ("verbs".into(), resource.verbs.clone().into()),
    ]);
    names(resource, &mut main);
    if resource.verbs.iter().any(|verb| verb == "list") {
        main.insert("storageVersionHash".into(), storage_version_hash(resource).into());
    }
    let sub = |sub: &Subresource| {
        let mut entry = Map::from_iter([
            ("name".into(), format!("{}/{}", resource.plural, sub.name).into()),
            ("singularName".into(), "".into()),
            ("namespaced".into(), resource.namespaced.into()),
        ]);
        if (&sub.group, &sub.version) != (&resource.group, &resource.version) {
            entry.insert("group".into(), sub.group.clone().into());
            entry.insert("version".into(), sub.version.clone().into());
        }
        entry.insert("kind".into(), sub.kind.clone().into());
        entry.insert("verbs".into(), sub.verbs.clone().into());
        Value::Object(entry)
    };
    std::iter::once(Value::Object(main.clone()))
        .chain(resource.subresources.iter().map(sub))
        .collect()
}

fn names(resource: &Resource, entry: &mut Map<String, Value>) {
    if !resource.short_names.is_empty() {
        entry.insert("shortNames".into(), resource.short_names.clone().into());
    }
    if !resource.categories.is_empty() {
        entry.insert("categories".into(), resource.categories.clone().into());
    }
}

fn storage_version_hash(resource: &Resource) -> String {
    // Some are stored in a version other than the one that is told.
    let (group, version) = match resource.group.as_str() {
        "events.k8s.io" => ("", "v1"),
        "apiextensions.k8s.io" => ("apiextensions.k8s.io", "v1beta1"),
        group => (group, resource.version.as_str()),
    };
    let stored = format!("{group}/{version}/{}", resource.kind);
    let hash = Sha256::digest(stored.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(hash.get(..8).unwrap_or_default())
}

fn aggregated(resource: &Resource) -> Value {
    let kind = |group: &str, version: &str, kind: &str| {
        // A built-in resource leaves its own group and version unsaid.
        let own = (group, version) == (resource.group.as_str(), resource.version.as_str()) && built_in(group).is_some();
        let (group, version) = if own { ("", "") } else { (group, version) };
        json!({"group": group, "version": version, "kind": kind})
    };
    let mut entry = Map::from_iter([
        ("resource".into(), resource.plural.clone().into()),
        (
            "responseKind".into(),
            kind(&resource.group, &resource.version, &resource.kind),
        ),
        (
            "scope".into(),
            if resource.namespaced { "Namespaced" } else { "Cluster" }.into(),
        ),
        ("singularResource".into(), resource.singular.clone().into()),
        ("verbs".into(), resource.verbs.clone().into()),
    ]);
    names(resource, &mut entry);
    let sub = |s: &Subresource| json!({"subresource": s.name, "responseKind": kind(&s.group, &s.version, &s.kind), "verbs": s.verbs});
    if !resource.subresources.is_empty() {
        entry.insert("subresources".into(), resource.subresources.iter().map(sub).collect());
    }
    Value::Object(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surface::builtin_resources;

    #[test]
    fn versions_are_told_newest_stable_first() {
        let mut versions = ["v1alpha1", "v2", "v1beta2", "v1", "foo", "v1beta1", "v10"];
        versions.sort_by_key(|v| Reverse(priority(v)));
        assert_eq!(versions, ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "foo"]);
    }

    #[test]
    fn both_forms_tell_the_same() {
        let all = builtin_resources();
        let discovery = Discovery::new(&all);
        let groups = discovery.groups();
        let aggregated = discovery.aggregated(false);
        let names = |list: &Value, key: &str, name: &str| -> Vec<String> {
            let items = list[key].as_array().unwrap().iter();
            items
                .map(|g| g.pointer(name).unwrap().as_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(
            names(&groups, "groups", "/name"),
            names(&aggregated, "items", "/metadata/name")
        );
        assert_eq!(groups["groups"][0]["name"], "apps");
        let single = discovery.resources("apps", "v1").unwrap();
        assert_eq!(
            single["resources"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|r| r["name"] == "deployments/scale")
                .count(),
            1
        );
        assert!(discovery.resources("apps", "v2").is_none());
        assert_eq!(discovery.group("apps").unwrap()["preferredVersion"]["version"], "v1");
        assert!(discovery.group("nothing").is_none());
    }

    #[test]
    fn built_in_kinds_leave_their_own_group_unsaid_in_the_aggregated_form() {
        let crd = json!({"spec": {
            "group": "example.test", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "subresources": {"status": {}}}],
        }});
        let mut all = builtin_resources();
        all.extend(Resource::of_crd(&crd));
        let groups = Discovery::new(&all).aggregated(false);
        let resource = |group: &str, plural: &str| {
            let named = |list: &Value, at: &str, name: &str| {
                let entries = list.as_array().unwrap();
                let found = entries.iter().find(|entry| entry.pointer(at).unwrap() == name);
                found.unwrap().clone()
            };
            let group = named(&groups["items"], "/metadata/name", group);
            named(&group["versions"][0]["resources"], "/resource", plural)
        };
        let kind = |group, version, kind| json!({"group": group, "version": version, "kind": kind});
        let deployments = resource("apps", "deployments");
        assert_eq!(deployments["responseKind"], kind("", "", "Deployment"));
        assert_eq!(
            deployments["subresources"][0]["responseKind"],
            kind("autoscaling", "v1", "Scale")
        );
        assert_eq!(
            deployments["subresources"][1]["responseKind"],
            kind("", "", "Deployment")
        );
        let widgets = resource("example.test", "widgets");
        assert_eq!(widgets["responseKind"], kind("example.test", "v1", "Widget"));
        assert_eq!(
            widgets["subresources"][0]["responseKind"],
            kind("example.test", "v1", "Widget")
        );
    }

    #[test]
    fn the_core_group_is_at_its_own_place() {
        let all = builtin_resources();
        let discovery = Discovery::new(&all);
        let core = discovery.aggregated(true);
        assert_eq!(core["items"][0]["metadata"], json!({}));
        let pods = core
            .pointer("/items/0/versions/0/resources")
            .unwrap()
            .as_array()
            .unwrap()
            .iter();
        assert!(
            pods.clone()
                .any(|r| r["resource"] == "pods" && r["shortNames"] == json!(["po"]))
        );
    }
}
