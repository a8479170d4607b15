//! Whether the manager has a use for every right that the chart gives it: what each of its roles allows, against what the API
//! servers recorded of its requests, and of the role that allowed them. What it asks beyond its roles, the API server refuses.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    fs::{self, File},
    io::{BufRead, BufReader},
    path::Path,
};

use anyhow::Context;
use serde::{Deserialize, Serialize};
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

/// Rights of which there is no record when they are used, by resource and verb. A child that holds up the deletion of its
/// owner is admitted from those alone who have them, where `OwnerReferencesPermissionEnforcement` is on: on the control planes
/// of scenarios. So no child of these would be made without, and admission's question for them is not a request.
const UNRECORDED: [(&str, &str); 2] = [
    ("federatedlearningjobs/finalizers", "update"),
    ("jointinferenceservices/finalizers", "update"),
];

/// A right of a role: to do something with objects of a kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Right {
    role: String,
    group: String,
    /// With the subresource, if it is about one: `models/status`.
    resource: String,
    verb: String,
}

impl Right {
    fn new(role: &str, group: &str, resource: &str, verb: &str) -> Self {
        let [role, group, resource, verb] = [role, group, resource, verb].map(str::to_owned);
        Self {
            role,
            group,
            resource,
            verb,
        }
    }

    /// Whether its use is not recorded.
    pub fn is_unrecorded(&self) -> bool {
        UNRECORDED.contains(&(self.resource.as_str(), self.verb.as_str()))
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            role,
            group,
            resource,
            verb,
        } = self;
        write!(f, "{verb} {resource}")?;
        if !group.is_empty() {
            write!(f, " of {group}")?;
        }
        write!(f, ", by {role}")
    }
}

/// What roles allow, of all that Helm rendered.
pub fn given(rendered: &str) -> anyhow::Result<BTreeSet<Right>> {
    let objects: Vec<Option<Object>> = serde_saphyr::from_multiple(rendered).context("what Helm rendered")?;
    let is_managers = |object: &Object| object.metadata.name.starts_with(ACCOUNT);
    let mut rights = BTreeSet::new();
    for Object { metadata, rules } in objects.into_iter().flatten().filter(is_managers) {
        for rule in rules {
            for group in &rule.api_groups {
                for resource in &rule.resources {
                    let right = |verb: &String| Right::new(&metadata.name, group, resource, verb);
                    rights.extend(rule.verbs.iter().map(right));
                }
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
    user_agent: String,
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
    /// The rights that it took; none of a person who tries out with the manager's account what that may.
    fn rights(self) -> Vec<Right> {
        if self.user_agent.starts_with("kubectl/") {
            return vec![];
        }
        let annotation = |key: &str| self.annotations.get(&format!("authorization.k8s.io/{key}"));
        let is_allowed = annotation("decision").is_some_and(|decision| decision == "allow");
        let role = annotation("reason")
            .filter(|_| is_allowed)
            .and_then(|reason| role_in(reason));
        let Some((role, about)) = role.zip(self.object_ref) else {
            return vec![];
        };
        let resource = match about.subresource.as_str() {
            "" => about.resource,
            subresource => format!("{}/{subresource}", about.resource),
        };
        let code = self.response_status.and_then(|answer| answer.code);
        let mut verbs = vec![self.verb.as_str()];
        // An apply asks for the right to create, too, where there was nothing. Which role has that is not recorded, and ours give
        // both at once.
        if self.verb == "patch" && code == Some(201) {
            verbs.push("create");
        }
        let right = |verb| Right::new(role, &about.api_group, &resource, verb);
        verbs.into_iter().map(right).collect()
    }
}

/// The role by which something was allowed: `RBAC: allowed by RoleBinding "a/b" of Role "a" to ServiceAccount "c/b"`.
fn role_in(reason: &str) -> Option<&str> {
    let of = |kind| reason.split_once(kind);
    let (_, named) = of(" of Role \"").or_else(|| of(" of ClusterRole \""))?;
    Some(named.split_once('"')?.0)
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
- {apiGroups: [''], resources: [pods], verbs: [create, get]}
---
kind: ClusterRole
metadata: {name: skerry-edit}
rules:
- {apiGroups: [sedna.io], resources: ['*'], verbs: [delete]}
---
kind: RoleBinding
metadata: {name: skerry-globalmanager}
";

    fn told(rights: &BTreeSet<Right>) -> BTreeSet<String> {
        rights.iter().map(Right::to_string).collect()
    }

    #[test]
    fn the_managers_roles_give_rights_one_by_one() {
        let rights = given(RENDERED).unwrap();
        let models = ["get models", "get models/status", "patch models", "patch models/status"];
        let models = models.map(|right| format!("{right} of sedna.io, by skerry-globalmanager"));
        let pods = ["create pods", "get pods"].map(|right| format!("{right}, by skerry-globalmanager-lease"));
        assert_eq!(told(&rights), [&models[..], &pods[..]].concat().into_iter().collect());
    }

    fn asked(verb: &str, about: &str, code: u16, decision: &str, role: &str) -> String {
        let reason = format!(r#"RBAC: allowed by RoleBinding \"of/it\" of {role} to ServiceAccount \"a/b\""#);
        format!(
            r#"{{"kind":"Event","verb":"{verb}","objectRef":{{{about}}},"responseStatus":{{"code":{code}}},"annotations":{{"authorization.k8s.io/decision":"{decision}","authorization.k8s.io/reason":"{reason}"}}}}"#
        )
    }

    const POD: &str = r#""resource":"pods","apiVersion":"v1""#;
    const STATUS: &str = r#""resource":"models","apiGroup":"sedna.io","subresource":"status""#;
    const MANY: &str = r#"ClusterRole \"skerry-globalmanager\""#;
    const LEASE: &str = r#"Role \"skerry-globalmanager-lease\""#;

    fn used_by(lines: &[String]) -> BTreeSet<Right> {
        allowed(lines.join("\n").as_bytes()).unwrap()
    }

    #[test]
    fn what_was_allowed_was_used() {
        let lines = [
            asked("get", POD, 404, "allow", MANY),
            asked("patch", POD, 201, "allow", MANY),
            asked("patch", STATUS, 200, "allow", MANY),
            asked("delete", POD, 403, "forbid", MANY),
            asked("list", POD, 200, "allow", MANY).replacen('{', r#"{"userAgent":"kubectl/v1.34.4","#, 1),
            r#"{"kind":"Event","verb":"get","requestURI":"/version","annotations":{}}"#.to_owned(),
            r#"{"kind":"Eve"#.to_owned(),
        ];
        let used = [
            "create pods",
            "get pods",
            "patch pods",
            "patch models/status of sedna.io",
        ];
        let used = used.map(|right| format!("{right}, by skerry-globalmanager"));
        assert_eq!(told(&used_by(&lines)), used.into_iter().collect());
    }

    #[test]
    fn what_one_role_allowed_another_was_not_used_for() {
        let given = given(RENDERED).unwrap();
        let unused = |lines: &[String]| told(&given.difference(&used_by(lines)).cloned().collect());
        let get = "get pods, by skerry-globalmanager-lease";
        assert!(unused(&[asked("get", POD, 200, "allow", MANY)]).contains(get));
        assert!(!unused(&[asked("get", POD, 200, "allow", LEASE)]).contains(get));
    }

    #[test]
    fn what_admission_asks_for_is_not_recorded() {
        let right = |resource| Right::new(ACCOUNT, "sedna.io", resource, "update");
        assert!(right("jointinferenceservices/finalizers").is_unrecorded());
        assert!(!right("jointinferenceservices").is_unrecorded());
    }
}
