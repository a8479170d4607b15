//! Environment variables: ours first, in order of name, then the user's without those that ours override.
//!
//! Ours come first so that the user's may refer to them, and `LC_SERVER` to `HOST_IP`. No name appears twice: the API
//! server refuses that in an applied object.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use skerry_crds::names::env;

use super::json::{edit_list, name};
use crate::Settings;

/// One variable of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EnvVar {
    name: &'static str,
    from: From,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum From {
    Value(String),
    Secret { name: String, key: &'static str },
    Field(&'static str),
}

impl EnvVar {
    /// A plain value.
    pub(crate) fn value(name: &'static str, value: impl Into<String>) -> Self {
        Self {
            name,
            from: From::Value(value.into()),
        }
    }

    /// A datum of a Secret.
    pub(crate) fn secret(name: &'static str, secret: &str, key: &'static str) -> Self {
        Self {
            name,
            from: From::Secret {
                name: secret.to_owned(),
                key,
            },
        }
    }

    /// A field of the pod.
    fn field(name: &'static str, path: &'static str) -> Self {
        Self {
            name,
            from: From::Field(path),
        }
    }

    pub(crate) fn into_json(self) -> Value {
        let name = self.name;
        match self.from {
            From::Value(value) => json!({"name": name, "value": value}),
            From::Secret { name: secret, key } => {
                json!({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}})
            }
            // The version is what the API server would fill in.
            From::Field(path) => {
                json!({"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}})
            }
        }
    }
}

/// Where the worker finds its node's local controller. In its node's network that is what is configured; elsewhere the
/// loopback is the pod's own, so the node's address takes its place.
pub(crate) fn local_controller(settings: &Settings, host_network: bool) -> Vec<EnvVar> {
    let server = &settings.local_controller_server;
    match at_host_ip(server).filter(|_| !host_network) {
        Some(server) => vec![
            EnvVar::field(env::HOST_IP, "status.hostIP"),
            EnvVar::value(env::LC_SERVER, server),
        ],
        None => vec![EnvVar::value(env::LC_SERVER, server)],
    }
}

/// The server with the node's address instead of a loopback one; none where another host was configured, which pods
/// reach like any other.
fn at_host_ip(server: &str) -> Option<String> {
    let (scheme, rest) = server.split_once("://")?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    // A colon before the bracket belongs to an IPv6 address.
    let after_bracket = authority.rfind(']').map_or(0, |bracket| bracket + 1);
    let port_at = authority.rfind(':').filter(|colon| *colon >= after_bracket);
    let (host, port) = authority.split_at(port_at.unwrap_or(authority.len()));
    let loopback = matches!(host, "localhost" | "[::1]" | "0.0.0.0") || host.starts_with("127.");
    loopback.then(|| format!("{scheme}://$({}){port}{path}", env::HOST_IP))
}

/// Puts `ours` into a container.
pub(crate) fn inject(container: &mut Map<String, Value>, ours: &[EnvVar]) {
    edit_list(container, "env", |env| {
        let mut ours = ours.to_vec();
        ours.sort_by_key(|var| var.name);
        ours.dedup_by_key(|var| var.name);
        let taken: BTreeSet<&str> = ours.iter().map(|var| var.name).collect();
        let theirs = without_repeats(std::mem::take(env));
        let theirs = theirs
            .into_iter()
            .filter(|var| !name(var).is_some_and(|name| taken.contains(name)));
        let theirs: Vec<_> = theirs.collect();
        env.extend(ours.into_iter().map(EnvVar::into_json));
        env.extend(theirs);
    });
}

/// Where a name appears twice the last one counts, as it does for a container.
fn without_repeats(vars: Vec<Value>) -> Vec<Value> {
    let mut kept: Vec<Value> = Vec::with_capacity(vars.len());
    for var in vars {
        match kept
            .iter_mut()
            .find(|earlier| name(earlier).is_some() && name(earlier) == name(&var))
        {
            Some(earlier) => *earlier = var,
            None => kept.push(var),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn injected(theirs: Value, ours: &[EnvVar]) -> Value {
        let mut container = Map::from_iter([("env".to_owned(), theirs)]);
        inject(&mut container, ours);
        container.remove("env").unwrap_or_default()
    }

    #[test]
    fn ours_override_the_users_and_nothing_appears_twice() {
        let theirs = json!([
            {"name": "A", "value": "1"}, {"name": "MODEL_URL", "value": "theirs"}, {"name": "A", "value": "2"},
            {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "MODEL_URL"},
        ]);
        let ours = [EnvVar::value("NAMESPACE", "ns"), EnvVar::value("MODEL_URL", "ours")];
        assert_eq!(
            injected(theirs, &ours),
            json!([
                {"name": "MODEL_URL", "value": "ours"}, {"name": "NAMESPACE", "value": "ns"},
                {"name": "A", "value": "2"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ])
        );
    }

    #[test]
    fn a_container_without_env_stays_without() {
        assert_eq!(injected(Value::Null, &[]), Value::Null);
    }

    #[rstest]
    #[case("http://localhost:9100", Some("http://$(HOST_IP):9100"))]
    #[case("http://127.0.0.1:9200/", Some("http://$(HOST_IP):9200/"))]
    #[case("http://[::1]:9100", Some("http://$(HOST_IP):9100"))]
    #[case("https://localhost", Some("https://$(HOST_IP)"))]
    #[case("http://lc.example:9100", None)]
    #[case("http://[fd00::1]:9100", None)]
    #[case("localhost:9100", None)]
    fn a_worker_outside_its_nodes_network_goes_by_the_nodes_address(#[case] server: &str, #[case] told: Option<&str>) {
        let settings = Settings {
            local_controller_server: server.to_owned(),
            ..Settings::default()
        };
        let env: Vec<_> = local_controller(&settings, false)
            .into_iter()
            .map(EnvVar::into_json)
            .collect();
        let expected = told.unwrap_or(server);
        assert_eq!(env.last(), Some(&json!({"name": "LC_SERVER", "value": expected})));
        let defined =
            json!({"name": "HOST_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.hostIP"}}});
        assert_eq!(
            env.first() == Some(&defined),
            told.is_some(),
            "defined before it is referred to"
        );
        assert_eq!(
            local_controller(&settings, true),
            [EnvVar::value("LC_SERVER", server)],
            "in the node's network the configured server is right"
        );
    }

    #[test]
    fn the_nodes_address_is_defined_before_it_is_referred_to_whatever_the_user_wrote() {
        let theirs = json!([{"name": "LC_SERVER", "value": "theirs"}, {"name": "HOST_IP", "value": "theirs"}]);
        let env = injected(theirs, &local_controller(&Settings::default(), false));
        let names: Vec<_> = env.as_array().unwrap().iter().map(|var| name(var).unwrap()).collect();
        assert_eq!(names, ["HOST_IP", "LC_SERVER"]);
    }
}
