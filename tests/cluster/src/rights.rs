//! Whether the manager has a use for every right that the chart gives it: what its role allows, against what the API servers
//! recorded of its requests. What it asks beyond its role, the API server refuses.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    fs::{self, File},
    io::{BufRead, BufReader},
    path::Path,
};

use anyhow::Context;
use serde::Deserialize;
use serde_json::json;

/// The manager's account, after which its roles are named.
pub const ACCOUNT: &str = "skerry-globalmanager";

/// Where an API server records requests, in its folder.
const RECORD: &str = "audit.log";

/// The flags with which an API server records what `user` asks, in `folder`.
pub fn recording(folder: &Path, user: &str) -> anyhow::Result<[String; 3]> {
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": [user]}, {"level": "None"}],
    });
    let file = folder.join("audit-policy.json");
    fs::write(&file, policy.to_string()).with_context(|| format!("writing {}", file.display()))?;
    Ok([
        format!("--audit-policy-file={}", file.display()),
        format!("--audit-log-path={}", folder.join(RECORD).display()),
        // Megabytes: all of it in one file.
        "--audit-log-maxsize=1000000".to_owned(),
    ])
}

/// A right: to do something with objects of a kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    group: String,
    /// With the subresource, if it is about one: `models/status`.
    resource: String,
    verb: String,
}

impl Right {
    fn new(group: &str, resource: &str, verb: &str) -> Self {
        let [group, resource, verb] = [group, resource, verb].map(str::to_owned);
        Self { group, resource, verb }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, resource, verb } = self;
        write!(f, "{verb} {resource}")?;
        if group.is_empty() {
            Ok(())
        } else {
            write!(f, " of {group}")
        }
    }
}

/// What roles allow, of all that Helm rendered.
pub fn given(rendered: &str) -> anyhow::Result<BTreeSet<Right>> {
    let objects: Vec<Option<Object>> = serde_saphyr::from_multiple(rendered).context("what Helm rendered")?;
    let is_managers = |object: &Object| object.metadata.name.starts_with(ACCOUNT);
    let rules = objects
        .into_iter()
        .flatten()
        .filter(is_managers)
        .flat_map(|role| role.rules);
    let mut rights = BTreeSet::new();
    for rule in rules {
        for group in &rule.api_groups {
            for resource in &rule.resources {
                rights.extend(rule.verbs.iter().map(|verb| Right::new(group, resource, verb)));
            }
        }
    }
    Ok(rights)
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    verbs: Vec<String>,
}

/// What was asked and allowed, by the record of an API server in `folder`.
pub fn used(folder: &Path) -> anyhow::Result<BTreeSet<Right>> {
    let file = folder.join(RECORD);
    let record = File::open(&file).with_context(|| format!("opening {}", file.display()))?;
    allowed(BufReader::new(record))
}

fn allowed(record: impl BufRead) -> anyhow::Result<BTreeSet<Right>> {
    let mut rights = BTreeSet::new();
    for line in record.lines() {
        // The last line of an API server that was killed may be a part of one.
        if let Ok(asked) = serde_json::from_str::<Asked>(&line?) {
            rights.extend(asked.rights());
        }
    }
    Ok(rights)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    verb: String,
    object_ref: Option<About>,
    response_status: Option<Answer>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct About {
    #[serde(default)]
    api_group: String,
    resource: String,
    #[serde(default)]
    subresource: String,
}

#[derive(Deserialize)]
struct Answer {
    code: Option<u16>,
}

impl Asked {
    fn rights(self) -> Vec<Right> {
        let decision = self.annotations.get("authorization.k8s.io/decision");
        let Some(about) = self
            .object_ref
            .filter(|_| decision.is_some_and(|decision| decision == "allow"))
        else {
            return vec![];
        };
        let resource = match about.subresource.as_str() {
            "" => about.resource,
            subresource => format!("{}/{subresource}", about.resource),
        };
        let code = self.response_status.and_then(|answer| answer.code);
        let mut verbs = vec![self.verb.as_str()];
        // An apply asks for the right to create, too, where there was nothing.
        if self.verb == "patch" && code == Some(201) {
            verbs.push("create");
        }
        let right = |verb| Right::new(&about.api_group, &resource, verb);
        verbs.into_iter().map(right).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RENDERED: &str = "
kind: ClusterRole
metadata: {name: skerry-globalmanager}
rules:
- {apiGroups: [sedna.io], resources: [models, models/status], verbs: [get, patch]}
---
kind: Role
metadata: {name: skerry-globalmanager-lease}
rules:
- {apiGroups: [''], resources: [pods], verbs: [create]}
---
kind: ClusterRole
metadata: {name: skerry-edit}
rules:
- {apiGroups: [sedna.io], resources: ['*'], verbs: [delete]}
---
kind: RoleBinding
metadata: {name: skerry-globalmanager}
";

    fn told(rights: &BTreeSet<Right>) -> Vec<String> {
        rights.iter().map(Right::to_string).collect()
    }

    #[test]
    fn the_managers_roles_give_rights_one_by_one() {
        let rights = given(RENDERED).unwrap();
        let models = ["get models", "patch models", "get models/status", "patch models/status"];
        let models = models.map(|right| format!("{right} of sedna.io"));
        assert_eq!(told(&rights), [&["create pods".to_owned()], &models[..]].concat());
    }

    #[test]
    fn what_was_allowed_was_used() {
        let asked = |verb: &str, about: &str, code: u16, decision: &str| {
            format!(
                r#"{{"kind":"Event","verb":"{verb}","objectRef":{{{about}}},"responseStatus":{{"code":{code}}},"annotations":{{"authorization.k8s.io/decision":"{decision}"}}}}"#
            )
        };
        let pod = r#""resource":"pods","apiVersion":"v1""#;
        let status = r#""resource":"models","apiGroup":"sedna.io","subresource":"status""#;
        let lines = [
            asked("get", pod, 404, "allow"),
            asked("patch", pod, 201, "allow"),
            asked("patch", status, 200, "allow"),
            asked("delete", pod, 403, "forbid"),
            r#"{"kind":"Event","verb":"get","requestURI":"/version","annotations":{}}"#.to_owned(),
            r#"{"kind":"Eve"#.to_owned(),
        ];
        let record = lines.join("\n");
        assert_eq!(
            told(&allowed(record.as_bytes()).unwrap()),
            [
                "create pods",
                "get pods",
                "patch pods",
                "patch models/status of sedna.io"
            ]
        );
    }
}
