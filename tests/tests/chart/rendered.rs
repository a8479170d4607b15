//! What the chart renders, as snapshots, and the rules that hold whatever is set.

use std::{collections::BTreeSet, fs, io::Write as _, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use skerry_cluster::real::EVERYTHING;

use crate::helm;

/// All but the definitions, whose content is `crdgen`'s.
const WITHOUT_CRDS: &str = "crds.install=false";

fn snapshot(name: &str, sets: &[&str]) {
    if helm::is_there() {
        insta::assert_snapshot!(name, helm::template(sets).unwrap());
    }
}

#[test]
fn with_its_defaults() {
    snapshot("defaults", &[WITHOUT_CRDS]);
}

/// `helm upgrade --reuse-values` knows nothing of values that are newer than the release.
#[test]
fn without_values_that_an_older_release_does_not_know() {
    if !helm::is_there() {
        return;
    }
    let older = helm::template(&[
        WITHOUT_CRDS,
        "globalManager.sednaAgents=null",
        r#"localController={"managerProtocol": null, "managerPlaintext": null}"#,
    ])
    .unwrap();
    assert_eq!(older, helm::template(&[WITHOUT_CRDS]).unwrap());
}

#[test]
fn for_one_namespace() {
    snapshot(
        "one_namespace",
        &[WITHOUT_CRDS, r#"namespace="edge""#, "globalManager.replicas=1"],
    );
}

#[test]
fn with_everything() {
    if helm::is_there() {
        insta::assert_snapshot!("everything", helm::template_with(EVERYTHING).unwrap());
    }
}

#[test]
fn one_namespace_needs_no_right_on_the_cluster() {
    if !helm::is_there() {
        return;
    }
    let kinds: BTreeSet<_> = helm::objects(&[WITHOUT_CRDS, r#"namespace="edge""#])
        .iter()
        .map(|object| object["kind"].as_str().unwrap().to_owned())
        .collect();
    assert!(kinds.contains("Role"));
    assert!(!kinds.iter().any(|kind| kind.starts_with("Cluster")), "{kinds:?}");
}

/// No role gives what another gives already, so that of each right of each it can be said whether there is a use for it.
#[test]
fn secrets_of_its_own_namespace_are_read_by_one_role_wherever_that_is() {
    if !helm::is_there() {
        return;
    }
    for (looks_after, twice) in [("", false), ("sedna", false), ("edge", true)] {
        let namespace = format!("namespace={looks_after:?}");
        let objects = helm::objects(&[WITHOUT_CRDS, &namespace, "globalManager.edgeTls={\"enabled\": true}"]);
        let role = helm::one(&objects, "Role", "skerry-globalmanager-identity");
        let verbs = role["rules"][0]["verbs"].as_array().unwrap();
        assert_eq!(verbs.contains(&json!("get")), twice, "{looks_after}: {verbs:?}");
    }
}

#[test]
fn the_definitions_are_those_of_crdgen_and_stay_when_the_release_goes() {
    if !helm::is_there() {
        return;
    }
    let objects = helm::objects(&[]);
    let folder = helm::chart().join("files/crds");
    let mut files = 0;
    for file in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        let mut expected: Value = serde_saphyr::from_str(&text).unwrap();
        expected["metadata"]["annotations"] = json!({"helm.sh/resource-policy": "keep"});
        let name = expected["metadata"]["name"].as_str().unwrap();
        assert_eq!(helm::one(&objects, "CustomResourceDefinition", name), &expected);
        files += 1;
    }
    let rendered = objects
        .iter()
        .filter(|object| object["kind"] == "CustomResourceDefinition");
    assert_eq!((files, rendered.count()), (12, 12));
}

/// Helm keeps each release in a Secret: what it rendered, and the chart's files in base64, compressed, in base64. A Secret
/// takes 1 MiB.
#[test]
fn a_release_fits_its_secret_three_times_over() {
    if !helm::is_there() {
        return;
    }
    let mut release = GzEncoder::new(vec![], Compression::best());
    release.write_all(helm::template(&[]).unwrap().as_bytes()).unwrap();
    add_files(&helm::chart(), &mut release);
    let size = STANDARD.encode(release.finish().unwrap()).len();
    // Helm 3.21 was seen to make 308,445 bytes of it on a real API server.
    assert!((200_000..350_000).contains(&size), "{size}");
}

fn add_files(folder: &Path, release: &mut impl std::io::Write) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_files(&path, release);
        } else {
            let content = STANDARD.encode(fs::read(&path).unwrap());
            release.write_all(content.as_bytes()).unwrap();
        }
    }
}

/// What Kubernetes calls the restricted standard, but for what a local controller is there for: the node's network and
/// directories.
#[test]
fn every_container_is_confined() {
    if !helm::is_there() {
        return;
    }
    let objects = helm::objects(&[WITHOUT_CRDS]);
    let templates = objects
        .iter()
        .filter_map(|object| object.pointer("/spec/template/spec"));
    let mut containers = 0;
    for spec in templates {
        assert_eq!(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        let main = spec["containers"].as_array().unwrap();
        // The only one that is root, as the page about installing says.
        let first = spec.get("initContainers").and_then(Value::as_array);
        for container in main.iter().chain(first.into_iter().flatten()) {
            let context = &container["securityContext"];
            assert_eq!(context["allowPrivilegeEscalation"], false);
            assert_eq!(context["readOnlyRootFilesystem"], true);
            let added = match container["name"].as_str() {
                Some("own-store") => json!(["CHOWN"]),
                _ => Value::Null,
            };
            let capabilities = &context["capabilities"];
            assert_eq!((&capabilities["drop"], &capabilities["add"]), (&json!(["ALL"]), &added));
            assert_eq!(context.get("privileged"), None);
            containers += 1;
        }
        for container in main {
            let of = |key: &str| {
                container["securityContext"]
                    .get(key)
                    .or_else(|| spec["securityContext"].get(key))
            };
            assert_eq!(
                (of("runAsNonRoot"), of("runAsUser")),
                (Some(&json!(true)), Some(&json!(65532)))
            );
            let [has_requests, has_limits] = ["requests", "limits"].map(|key| !container["resources"][key].is_null());
            assert!(has_requests && has_limits);
            assert!(!container["readinessProbe"].is_null() && !container["livenessProbe"].is_null());
        }
    }
    assert_eq!(containers, 3);
}
