//! The environment of a container: `envFrom`, then `env` with its references, as a kubelet resolves them. Pure: what
//! the references name was fetched before.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVar, EnvVarSource, Pod, Secret};
use kube::ResourceExt;

use super::expand::expand;

/// The Secrets and `ConfigMaps` of the pod's namespace that its containers and volumes name, as far as they exist.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Sources {
    pub(super) secrets: BTreeMap<String, Secret>,
    pub(super) config_maps: BTreeMap<String, ConfigMap>,
}

/// What kept a container's configuration from being made; its text is that of the container's status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ConfigError {
    #[error("{kind} \"{name}\" not found")]
    Missing { kind: &'static str, name: String },
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    MissingKey {
        kind: &'static str,
        namespace: String,
        name: String,
        key: String,
    },
    #[error(
        "env {name}: fieldRef `{path}` is not known; use metadata.name, .namespace, .uid, .labels['KEY'], .annotations['KEY'], spec.nodeName, spec.serviceAccountName, status.podIP or status.hostIP"
    )]
    Field { name: String, path: String },
    #[error("env {name}: the sandbox does not resolve resourceFieldRef; give the value itself")]
    Resource { name: String },
    #[error("{0}")]
    Volume(String),
}

/// Where the pod runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Addresses {
    pub(super) pod: String,
    pub(super) host: String,
}

/// The names of the Secrets and `ConfigMaps` that a pod's containers and volumes refer to.
pub(super) fn references(pod: &Pod) -> (Vec<String>, Vec<String>) {
    let Some(spec) = &pod.spec else { return (vec![], vec![]) };
    let (mut secrets, mut maps) = (vec![], vec![]);
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        for from in container.env_from.iter().flatten() {
            secrets.extend(from.secret_ref.iter().map(|source| source.name.clone()));
            maps.extend(from.config_map_ref.iter().map(|source| source.name.clone()));
        }
        for from in container
            .env
            .iter()
            .flatten()
            .filter_map(|variable| variable.value_from.as_ref())
        {
            secrets.extend(from.secret_key_ref.iter().map(|source| source.name.clone()));
            maps.extend(from.config_map_key_ref.iter().map(|source| source.name.clone()));
        }
    }
    for volume in spec.volumes.iter().flatten() {
        secrets.extend(volume.secret.iter().filter_map(|source| source.secret_name.clone()));
        maps.extend(volume.config_map.iter().map(|source| source.name.clone()));
    }
    for list in [&mut secrets, &mut maps] {
        list.sort();
        list.dedup();
    }
    (secrets, maps)
}

/// A container's variables, each once, in the order in which they were first named.
pub(super) fn environment(
    pod: &Pod,
    container: &Container,
    sources: &Sources,
    addresses: &Addresses,
) -> Result<Vec<(String, String)>, ConfigError> {
    let mut variables: Vec<(String, String)> = vec![];
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.clone().unwrap_or_default();
        if let Some(source) = &from.secret_ref {
            let found = sources.secrets.get(&source.name);
            for (key, value) in present("secret", &source.name, source.optional, found)?
                .into_iter()
                .flat_map(secret_data)
            {
                set(&mut variables, format!("{prefix}{key}"), value);
            }
        }
        if let Some(source) = &from.config_map_ref {
            let found = sources.config_maps.get(&source.name);
            let found = present("configmap", &source.name, source.optional, found)?;
            for (key, value) in found.into_iter().flat_map(|map| map.data.iter().flatten()) {
                set(&mut variables, format!("{prefix}{key}"), value.clone());
            }
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match &variable.value_from {
            None => {
                let known = |name: &str| get(&variables, name).map(str::to_owned);
                Some(expand(variable.value.as_deref().unwrap_or_default(), known))
            }
            Some(from) => resolve(pod, variable, from, sources, addresses)?,
        };
        if let Some(value) = value {
            set(&mut variables, variable.name.clone(), value);
        }
    }
    Ok(variables)
}

/// The value of a variable in a list.
pub(super) fn get<'a>(variables: &'a [(String, String)], name: &str) -> Option<&'a str> {
    variables
        .iter()
        .find(|(known, _)| known == name)
        .map(|(_, value)| value.as_str())
}

/// Sets a variable: the last value wins, at the place where the name was first.
pub(super) fn set(variables: &mut Vec<(String, String)>, name: String, value: String) {
    match variables.iter_mut().find(|(known, _)| *known == name) {
        Some((_, known)) => *known = value,
        None => variables.push((name, value)),
    }
}

/// The content of a Secret as text; what is not UTF-8 loses the bytes that are not.
pub(super) fn secret_data(secret: &Secret) -> impl Iterator<Item = (String, String)> {
    let data = secret.data.iter().flatten();
    data.map(|(key, value)| (key.clone(), String::from_utf8_lossy(&value.0).into_owned()))
}

/// What a reference names. Nothing if it is missing and may be.
fn present<'a, K>(
    kind: &'static str,
    name: &str,
    optional: Option<bool>,
    found: Option<&'a K>,
) -> Result<Option<&'a K>, ConfigError> {
    match found {
        None if optional != Some(true) => Err(ConfigError::Missing {
            kind,
            name: name.to_owned(),
        }),
        found => Ok(found),
    }
}

fn resolve(
    pod: &Pod,
    variable: &EnvVar,
    from: &EnvVarSource,
    sources: &Sources,
    addresses: &Addresses,
) -> Result<Option<String>, ConfigError> {
    let key_of = |kind, name: &str, key: &str, optional, value: Option<String>| match value {
        None if optional != Some(true) => Err(ConfigError::MissingKey {
            kind,
            namespace: pod.namespace().unwrap_or_default(),
            name: name.to_owned(),
            key: key.to_owned(),
        }),
        value => Ok(value),
    };
    if let Some(source) = &from.secret_key_ref {
        let found = sources.secrets.get(&source.name);
        let Some(secret) = present("secret", &source.name, source.optional, found)? else {
            return Ok(None);
        };
        let value = secret_data(secret)
            .find(|(key, _)| *key == source.key)
            .map(|(_, value)| value);
        return key_of("Secret", &source.name, &source.key, source.optional, value);
    }
    if let Some(source) = &from.config_map_key_ref {
        let found = sources.config_maps.get(&source.name);
        let Some(map) = present("configmap", &source.name, source.optional, found)? else {
            return Ok(None);
        };
        let value = map.data.as_ref().and_then(|data| data.get(&source.key)).cloned();
        return key_of("ConfigMap", &source.name, &source.key, source.optional, value);
    }
    if let Some(source) = &from.field_ref {
        let unknown = || ConfigError::Field {
            name: variable.name.clone(),
            path: source.field_path.clone(),
        };
        return field(pod, &source.field_path, addresses).ok_or_else(unknown).map(Some);
    }
    Err(ConfigError::Resource {
        name: variable.name.clone(),
    })
}

fn field(pod: &Pod, path: &str, addresses: &Addresses) -> Option<String> {
    let subscript = |prefix: &str| path.strip_prefix(prefix)?.strip_prefix("['")?.strip_suffix("']");
    if let Some(key) = subscript("metadata.labels") {
        return Some(pod.labels().get(key).cloned().unwrap_or_default());
    }
    if let Some(key) = subscript("metadata.annotations") {
        return Some(pod.annotations().get(key).cloned().unwrap_or_default());
    }
    let spec = |field: fn(&k8s_openapi::api::core::v1::PodSpec) -> &Option<String>| {
        Some(
            pod.spec
                .as_ref()
                .and_then(|spec| field(spec).clone())
                .unwrap_or_default(),
        )
    };
    match path {
        "metadata.name" => Some(pod.name_any()),
        "metadata.namespace" => Some(pod.namespace().unwrap_or_default()),
        "metadata.uid" => Some(pod.uid().unwrap_or_default()),
        "spec.nodeName" => spec(|spec| &spec.node_name),
        "spec.serviceAccountName" => spec(|spec| &spec.service_account_name),
        "status.podIP" | "status.podIPs" => Some(addresses.pod.clone()),
        "status.hostIP" | "status.hostIPs" => Some(addresses.host.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn resolve_all(container: &Value) -> Result<Vec<(String, String)>, String> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"app": "web"}},
            "spec": {"nodeName": "n", "containers": [container]},
        }))
        .unwrap();
        let secret: Secret = serde_json::from_value(json!({"data": {"PASSWORD": "c2VjcmV0"}})).unwrap();
        let map: ConfigMap = serde_json::from_value(json!({"data": {"MODE": "fast", "A": "map"}})).unwrap();
        let sources = Sources {
            secrets: [("s".to_owned(), secret)].into(),
            config_maps: [("m".to_owned(), map)].into(),
        };
        let addresses = Addresses {
            pod: "127.32.1.2".to_owned(),
            host: "127.32.1.1".to_owned(),
        };
        let container = &pod.spec.as_ref().unwrap().containers[0];
        environment(&pod, container, &sources, &addresses).map_err(|error| error.to_string())
    }

    #[test]
    fn all_kinds_of_values_are_resolved_in_order() {
        let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
        let variables = resolve_all(&json!({
            "name": "c",
            "envFrom": [{"prefix": "X_", "secretRef": {"name": "s"}}, {"configMapRef": {"name": "m"}}],
            "env": [
                {"name": "A", "value": "1"},
                {"name": "B", "value": "$(A)/$(MODE)/$(LATER)"},
                {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "PASSWORD"}}},
                {"name": "IP", "valueFrom": field("status.podIP")},
                {"name": "HOST", "valueFrom": field("status.hostIP")},
                {"name": "APP", "valueFrom": field("metadata.labels['app']")},
                {"name": "NODE", "valueFrom": field("spec.nodeName")},
                {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "absent", "key": "x", "optional": true}}},
                {"name": "B", "value": "again $(B)"},
            ],
        }))
        .unwrap();
        let expected = [
            ("X_PASSWORD", "secret"),
            ("A", "1"),
            ("MODE", "fast"),
            ("B", "again 1/fast/$(LATER)"),
            ("SECRET", "secret"),
            ("IP", "127.32.1.2"),
            ("HOST", "127.32.1.1"),
            ("APP", "web"),
            ("NODE", "n"),
        ];
        assert_eq!(
            variables,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        let one =
            |from: Value| resolve_all(&json!({"name": "c", "env": [{"name": "V", "valueFrom": from}]})).unwrap_err();
        assert_eq!(
            one(json!({"secretKeyRef": {"name": "x", "key": "k"}})),
            "secret \"x\" not found"
        );
        assert_eq!(
            one(json!({"secretKeyRef": {"name": "s", "key": "k"}})),
            "couldn't find key k in Secret ns/s"
        );
        assert_eq!(
            one(json!({"configMapKeyRef": {"name": "m", "key": "k"}})),
            "couldn't find key k in ConfigMap ns/m"
        );
        assert!(one(json!({"fieldRef": {"fieldPath": "spec.x"}})).starts_with("env V: fieldRef `spec.x` is not known"));
        let from = json!({"name": "c", "envFrom": [{"configMapRef": {"name": "absent"}}]});
        assert_eq!(resolve_all(&from).unwrap_err(), "configmap \"absent\" not found");
    }
}
