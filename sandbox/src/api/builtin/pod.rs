//! The defaults of pods and pod templates.

use serde_json::{Map, Value, json};

use super::defaults::{each, set};
use crate::api::object::child;

/// File mode of what volumes project, 0644.
const MODE: u32 = 0o644;

/// A pod, which gets more than a template.
pub(super) fn pod(pod: &mut Map<String, Value>) {
    let pod_spec = child(pod, "spec");
    spec(pod_spec);
    for list in ["containers", "initContainers"] {
        for container in each(pod_spec, list) {
            let resources = child(container, "resources");
            if let Some(Value::Object(limits)) = resources.get("limits").cloned() {
                let requests = child(resources, "requests");
                limits
                    .into_iter()
                    .for_each(|(name, amount)| set(requests, &name, amount));
            }
        }
    }
    set(pod_spec, "enableServiceLinks", true);
    if pod_spec.get("hostNetwork") == Some(&Value::Bool(true)) {
        for list in ["containers", "initContainers"] {
            for container in each(pod_spec, list) {
                for port in each(container, "ports") {
                    let number = port.get("containerPort").cloned().unwrap_or_default();
                    if port.get("hostPort").is_none_or(|port| port == 0) {
                        port.insert("hostPort".into(), number);
                    }
                }
            }
        }
    }
}

/// The spec of a pod or of a template.
pub(super) fn spec(spec: &mut Map<String, Value>) {
    set(spec, "restartPolicy", "Always");
    set(spec, "terminationGracePeriodSeconds", 30);
    set(spec, "dnsPolicy", "ClusterFirst");
    set(spec, "securityContext", json!({}));
    set(spec, "schedulerName", "default-scheduler");
    // The older name of the field is kept in step.
    if let Some(account) = spec
        .get("serviceAccountName")
        .or_else(|| spec.get("serviceAccount"))
        .cloned()
    {
        spec.insert("serviceAccountName".into(), account.clone());
        spec.insert("serviceAccount".into(), account);
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        each(spec, list).for_each(container);
    }
    each(spec, "volumes").for_each(volume);
}

fn container(container: &mut Map<String, Value>) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let pull = if is_latest(image) { "Always" } else { "IfNotPresent" };
    set(container, "imagePullPolicy", pull);
    set(container, "terminationMessagePath", "/dev/termination-log");
    set(container, "terminationMessagePolicy", "File");
    set(container, "resources", json!({}));
    each(container, "ports").for_each(|port| set(port, "protocol", "TCP"));
    each(container, "env").for_each(|variable| {
        if let Some(field) = variable.get_mut("valueFrom").and_then(|from| from.get_mut("fieldRef")) {
            field
                .as_object_mut()
                .into_iter()
                .for_each(|field| set(field, "apiVersion", "v1"));
        }
    });
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(name).and_then(Value::as_object_mut) {
            for (field, value) in [
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ] {
                set(probe, field, value);
            }
            http(probe.get_mut("httpGet"));
            if let Some(grpc) = probe.get_mut("grpc").and_then(Value::as_object_mut)
                && !grpc.contains_key("service")
            {
                grpc.insert("service".into(), "".into());
            }
        }
    }
    if let Some(lifecycle) = container.get_mut("lifecycle").and_then(Value::as_object_mut) {
        for hook in ["postStart", "preStop"] {
            http(lifecycle.get_mut(hook).and_then(|hook| hook.get_mut("httpGet")));
        }
    }
}

fn http(action: Option<&mut Value>) {
    if let Some(action) = action.and_then(Value::as_object_mut) {
        set(action, "path", "/");
        set(action, "scheme", "HTTP");
    }
}

/// An image without a tag and without a digest is the latest one.
fn is_latest(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or(image);
    !image.contains('@') && name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn volume(volume: &mut Map<String, Value>) {
    if volume.keys().all(|field| field == "name") {
        volume.insert("emptyDir".into(), json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(source).and_then(Value::as_object_mut) {
            set(source, "defaultMode", MODE);
            items(source);
        }
    }
    if let Some(path) = volume.get_mut("hostPath").and_then(Value::as_object_mut)
        && path.get("type").is_none_or(Value::is_null)
    {
        path.insert("type".into(), "".into());
    }
    if let Some(projected) = volume.get_mut("projected").and_then(Value::as_object_mut) {
        for source in each(projected, "sources") {
            if let Some(token) = source.get_mut("serviceAccountToken").and_then(Value::as_object_mut) {
                set(token, "expirationSeconds", 3600);
            }
            if let Some(downward) = source.get_mut("downwardAPI").and_then(Value::as_object_mut) {
                items(downward);
            }
        }
    }
}

fn items(source: &mut Map<String, Value>) {
    for item in each(source, "items") {
        if let Some(field) = item.get_mut("fieldRef").and_then(Value::as_object_mut) {
            set(field, "apiVersion", "v1");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_get_what_kubelets_rely_on() {
        let mut object = json!({"spec": {"hostNetwork": true, "volumes": [{"name": "v"}, {"name": "s", "secret": {}}],
            "containers": [{"name": "a", "image": "a", "ports": [{"containerPort": 80}],
                "resources": {"limits": {"cpu": "1"}}, "readinessProbe": {"httpGet": {"port": 80}}}]}});
        pod(object.as_object_mut().unwrap());
        let spec = &object["spec"];
        assert_eq!(spec["dnsPolicy"], "ClusterFirst");
        assert_eq!(
            spec["volumes"],
            json!([{"name": "v", "emptyDir": {}}, {"name": "s", "secret": {"defaultMode": 420}}])
        );
        let container = &spec["containers"][0];
        assert_eq!(container["imagePullPolicy"], "Always");
        assert_eq!(
            container["ports"],
            json!([{"containerPort": 80, "protocol": "TCP", "hostPort": 80}])
        );
        assert_eq!(container["resources"]["requests"], json!({"cpu": "1"}));
        assert_eq!(
            container["readinessProbe"]["httpGet"],
            json!({"port": 80, "path": "/", "scheme": "HTTP"})
        );
    }

    #[test]
    fn only_the_latest_image_is_always_pulled() {
        for (image, latest) in [
            ("a", true),
            ("a:latest", true),
            ("r:5000/a", true),
            ("r:5000/a:v1", false),
            ("a@sha256:00", false),
            ("", true),
        ] {
            assert_eq!(is_latest(image), latest, "{image}");
        }
    }
}
