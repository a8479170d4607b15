//! The chart, the images, the programs and the examples say the same.

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    process::{Command, Stdio},
};

use serde_json::Value;
use skerry_cluster::real::EVERYTHING;
use skerry_dist::images;
use skerry_workloads::Settings;

use crate::helm;

fn references() -> BTreeSet<String> {
    let dockerfile = fs::read_to_string(skerry_dist::root().join("dist/Dockerfile")).unwrap();
    let images = images::describe(&dockerfile).unwrap();
    images
        .iter()
        .map(|image| image.reference().replace("docker.io/", ""))
        .collect()
}

/// Every `image` below a value, and the image that the manager is told of.
fn images_of(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            if object
                .get("name")
                .is_some_and(|name| name == "SKERRY_STORAGE_INITIALIZER_IMAGE")
            {
                found.extend(object["value"].as_str().map(str::to_owned));
            }
            found.extend(object.get("image").and_then(Value::as_str).map(str::to_owned));
            object.values().for_each(|value| images_of(value, found));
        }
        Value::Array(array) => array.iter().for_each(|value| images_of(value, found)),
        _ => {}
    }
}

#[test]
fn the_images_that_are_named_are_those_that_are_built() {
    let mut named = BTreeSet::from([Settings::default().storage_initializer_image]);
    for example in [
        "data/nodes.yaml",
        "federated-learning/digits.yaml",
        "joint-inference/digits.yaml",
    ] {
        let text = fs::read_to_string(skerry_dist::root().join("examples").join(example)).unwrap();
        for document in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            images_of(&document, &mut named);
        }
    }
    if helm::is_there() {
        for object in helm::objects(&["crds.install=false"]) {
            images_of(&object, &mut named);
        }
        assert_eq!(named, references());
    } else {
        assert!(named.is_subset(&references()), "{named:?}");
    }
}

#[test]
fn the_manager_may_watch_every_kind_that_it_watches_and_no_other() {
    if !helm::is_there() {
        return;
    }
    let objects = helm::objects(&["crds.install=false"]);
    let role = helm::one(&objects, "ClusterRole", "skerry-globalmanager");
    let texts = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).unwrap() };
    let mut may = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        if texts(&rule["verbs"]).iter().any(|verb| verb == "watch") {
            for group in texts(&rule["apiGroups"]) {
                may.extend(
                    texts(&rule["resources"])
                        .into_iter()
                        .map(|plural| (group.clone(), plural)),
                );
            }
        }
    }
    let watched = skerry_globalmanager::run::kinds().watched();
    let watched = watched
        .iter()
        .map(|kind| (kind.group.to_owned(), kind.plural.to_owned()));
    assert_eq!(may, watched.collect());
}

#[test]
fn a_join_token_is_put_where_only_the_local_controller_can_read_it() {
    let root = skerry_dist::root();
    let values: Value =
        serde_saphyr::from_str(&fs::read_to_string(root.join("charts/skerry/values.yaml")).unwrap()).unwrap();
    let group = &values["localController"]["runAsUser"];
    let page = fs::read_to_string(root.join("docs/edge-nodes.md")).unwrap();
    let notes = fs::read_to_string(root.join("charts/skerry/templates/NOTES.txt")).unwrap();
    let notes = notes.replace("{{ int .Values.localController.runAsUser }}", &group.to_string());
    for text in [page, notes] {
        let command = text
            .lines()
            .find_map(|line| line.split_once("| ssh ")?.1.split('\'').nth(1))
            .unwrap();
        assert!(command.contains(&format!("-g {group} ")), "{command}");
        let folder = tempfile::tempdir().unwrap();
        // Whoever runs this may have no other group.
        let own = folder.path().metadata().unwrap().gid();
        let command = command
            .replace("sudo ", "")
            .replace(&format!("-g {group} "), &format!("-g {own} "))
            .replace("/var/lib/skerry", &folder.path().display().to_string());
        let mut shell = Command::new("sh")
            .args(["-c", &command])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        shell.stdin.take().unwrap().write_all(b"a token").unwrap();
        assert!(shell.wait().unwrap().success(), "{command}");
        let token = folder.path().join("join.token");
        assert_eq!(fs::read_to_string(&token).unwrap(), "a token");
        assert_eq!(token.metadata().unwrap().permissions().mode() & 0o777, 0o440);
    }
}

#[test]
fn local_controllers_can_work_for_the_manager_of_sedna() {
    if !helm::is_there() {
        return;
    }
    let objects = helm::objects(&[
        "crds.install=false",
        "globalManager.edgeTls.enabled=true",
        r#"localController={"managerProtocol": "sedna", "managerPlaintext": true, "managerAddress": "gm.sedna:9000"}"#,
    ]);
    let set = helm::one(&objects, "DaemonSet", "skerry-localcontroller");
    let variables = set["spec"]["template"]["spec"]["containers"][0]["env"]
        .as_array()
        .unwrap();
    let value = |name: &str| {
        let found = variables.iter().find(|variable| variable["name"] == name);
        found.and_then(|variable| variable["value"].as_str()).map(str::to_owned)
    };
    assert_eq!(value("GM_ADDRESS").as_deref(), Some("gm.sedna:9000"));
    assert_eq!(value("MANAGER_PROTOCOL").as_deref(), Some("sedna"));
    assert_eq!(value("MANAGER_PLAINTEXT").as_deref(), Some("true"));
    assert_eq!(value("JOIN_TOKEN_FILE"), None, "a plain link proves nothing");
}

/// Kubernetes takes a name that no container has, and then nothing gets through.
#[test]
fn a_port_that_is_named_is_one_of_the_pods_that_are_selected() {
    if !helm::is_there() {
        return;
    }
    let [crds, tls] = ["crds.install=false", "globalManager.edgeTls.enabled=true"];
    for (objects, number) in [
        (helm::objects(&[crds]), 3),
        (helm::objects(&[crds, tls]), 3),
        (helm::objects_with(EVERYTHING), 7),
    ] {
        let named: Vec<_> = objects.iter().flat_map(named_ports).collect();
        assert_eq!(named.len(), number, "{named:?}");
        for (object, selector, port) in named {
            let pods = objects.iter().filter_map(|object| object.pointer("/spec/template"));
            let pods: Vec<_> = pods.filter(|pod| is_selected(pod, selector)).collect();
            assert!(!pods.is_empty(), "{object} selects nothing");
            for pod in pods {
                assert!(container_ports(pod).any(|there| there == port), "{object} names {port}");
            }
        }
    }
}

/// What an object calls the ports of pods: its kind and name, what it selects them by, the port's name.
fn named_ports(object: &Value) -> Vec<(String, &Value, &str)> {
    let spec = &object["spec"];
    let (selector, ports): (_, Vec<_>) = match object["kind"].as_str() {
        Some("NetworkPolicy") => {
            let rules = list(&spec["ingress"]);
            let ports = rules.flat_map(|rule| list(&rule["ports"]));
            (
                &spec["podSelector"]["matchLabels"],
                ports.map(|port| &port["port"]).collect(),
            )
        }
        Some("Service") => {
            let ports = list(&spec["ports"]).map(|port| &port["targetPort"]);
            (&spec["selector"], ports.collect())
        }
        _ => return vec![],
    };
    let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
    let names = ports.into_iter().filter_map(Value::as_str);
    names.map(|port| (name.clone(), selector, port)).collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn is_selected(pod: &Value, selector: &Value) -> bool {
    let mut wanted = selector.as_object().unwrap().iter();
    wanted.all(|(label, value)| pod["metadata"]["labels"].get(label) == Some(value))
}

fn container_ports(pod: &Value) -> impl Iterator<Item = &str> {
    let ports = list(&pod["spec"]["containers"]).flat_map(|container| list(&container["ports"]));
    ports.filter_map(|port| port["name"].as_str())
}
