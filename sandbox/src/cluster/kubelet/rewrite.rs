//! What a pod's environment says that does not hold for a local process, and what it becomes. Pure; `docs/sandbox.md`
//! tells users about it.
//!
//! A process has no cluster DNS, no mounts of its own, and shares the machine's ports with its neighbours. So:
//!
//! | in a value | becomes |
//! |---|---|
//! | `<service>.<namespace>`, also with `.svc` or `.svc.cluster.local`, of a Service that exists | its cluster IP |
//! | a path at, below or above a mount path (whole values, and parts between `;`) | the same path in the container's folder |
//! | `LC_SERVER` | the address of the node's local controller |
//! | `AGG_BIND_IP`, `BIG_MODEL_BIND_IP`, where absent | the pod's address |
//!
//! Paths in arguments are treated like those in values. Nothing else is touched: neither files nor what a process says
//! over the network.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::super::meta::Id;
use super::env::set;

/// The variable by which a worker finds its node's local controller.
const LOCAL_CONTROLLER: &str = "LC_SERVER";

/// The variables by which a worker learns where to listen, which default to all addresses.
const BIND_ADDRESSES: [&str; 2] = ["AGG_BIND_IP", "BIG_MODEL_BIND_IP"];

/// The suffixes that cluster DNS takes after `<service>.<namespace>`, longest first.
const DNS_SUFFIXES: [&str; 3] = [".svc.cluster.local", ".svc", ""];

/// What holds on this node for one container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Surroundings {
    /// The cluster IP of each Service that has one.
    pub(super) services: BTreeMap<Id, String>,
    /// The container's mount paths.
    pub(super) mounts: Vec<PathBuf>,
    /// The folder that stands for the container's `/`.
    pub(super) root: PathBuf,
    /// The address of the node's local controller, if it has one.
    pub(super) local_controller: Option<String>,
    pub(super) pod_ip: String,
}

impl Surroundings {
    /// The environment as the process gets it.
    pub(super) fn environment(&self, variables: Vec<(String, String)>) -> Vec<(String, String)> {
        let mut variables: Vec<_> = variables
            .into_iter()
            .map(|(name, value)| match &self.local_controller {
                Some(address) if name == LOCAL_CONTROLLER => (name, address.clone()),
                _ => {
                    let value = self.hosts(&self.paths(&value));
                    (name, value)
                }
            })
            .collect();
        for name in BIND_ADDRESSES {
            if !variables.iter().any(|(known, _)| known == name) {
                set(&mut variables, name.to_owned(), self.pod_ip.clone());
            }
        }
        variables
    }

    /// The arguments as the process gets them.
    pub(super) fn arguments(&self, arguments: Vec<String>) -> Vec<String> {
        arguments.into_iter().map(|argument| self.paths(&argument)).collect()
    }

    /// A path in the container's folder if it is one of a mount, else nothing.
    pub(super) fn path(&self, path: &str) -> Option<PathBuf> {
        let path = Path::new(path);
        let inner = path
            .strip_prefix("/")
            .ok()
            .filter(|inner| !inner.as_os_str().is_empty())?;
        let related = |mount: &PathBuf| path.starts_with(mount) || mount.starts_with(path);
        self.mounts.iter().any(related).then(|| self.root.join(inner))
    }

    /// Each part of a list that is a path of a mount, mapped. `@` before a path marks an index of files.
    fn paths(&self, value: &str) -> String {
        let part = |part: &str| {
            let (mark, path) = part.strip_prefix('@').map_or(("", part), |path| ("@", path));
            self.path(path)
                .map_or_else(|| part.to_owned(), |mapped| format!("{mark}{}", mapped.display()))
        };
        value.split(';').map(part).collect::<Vec<_>>().join(";")
    }

    /// Each name of a Service replaced by its cluster IP.
    fn hosts(&self, value: &str) -> String {
        let in_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        let (mut out, mut rest) = (String::with_capacity(value.len()), value);
        while let Some(start) = rest.find(in_name) {
            let (before, from) = rest.split_at_checked(start).unwrap_or((rest, ""));
            let end = from.find(|c| !in_name(c)).unwrap_or(from.len());
            let (word, after) = from.split_at_checked(end).unwrap_or((from, ""));
            out.push_str(before);
            out.push_str(self.address(word).unwrap_or(word));
            rest = after;
        }
        out + rest
    }

    fn address(&self, word: &str) -> Option<&str> {
        DNS_SUFFIXES.iter().find_map(|suffix| {
            let (service, namespace) = word.strip_suffix(suffix)?.split_once('.')?;
            self.services
                .get(&(namespace.to_owned(), service.to_owned()))
                .map(String::as_str)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surroundings() -> Surroundings {
        let service = |name: &str, ip: &str| (("default".to_owned(), name.to_owned()), ip.to_owned());
        Surroundings {
            services: [service("fl-aggregation", "127.96.0.7"), service("cloud", "127.96.0.8")].into(),
            mounts: vec!["/home/data/data/digits".into(), "/downloads".into()],
            root: "/state/pod/c".into(),
            local_controller: Some("http://127.32.1.1:9100".to_owned()),
            pod_ip: "127.32.1.2".to_owned(),
        }
    }

    fn value(name: &str, value: &str) -> String {
        let variables = surroundings().environment(vec![(name.to_owned(), value.to_owned())]);
        super::super::env::get(&variables, name).unwrap().to_owned()
    }

    #[test]
    fn service_names_become_addresses_where_they_are_whole_words() {
        for (given, expected) in [
            ("fl-aggregation.default", "127.96.0.7"),
            ("http://cloud.default:5000/x", "http://127.96.0.8:5000/x"),
            (
                "cloud.default.svc:80,cloud.default.svc.cluster.local",
                "127.96.0.8:80,127.96.0.8",
            ),
            ("cloud.other", "cloud.other"),
            ("my-cloud.default", "my-cloud.default"),
            ("cloud.default.com", "cloud.default.com"),
            ("cloud", "cloud"),
            ("größe.cloud.default", "größe.cloud.default"),
            ("", ""),
        ] {
            assert_eq!(value("X", given), expected);
        }
    }

    #[test]
    fn paths_of_mounts_become_those_of_the_containers_folder() {
        for (given, expected) in [
            (
                "/home/data/data/digits/train.csv",
                "/state/pod/c/home/data/data/digits/train.csv",
            ),
            ("/home/data", "/state/pod/c/home/data"),
            ("/downloads", "/state/pod/c/downloads"),
            ("/downloads2/x", "/downloads2/x"),
            (
                "/downloads/a;/downloads/b",
                "/state/pod/c/downloads/a;/state/pod/c/downloads/b",
            ),
            ("s3://bucket/downloads/a", "s3://bucket/downloads/a"),
            ("/", "/"),
            ("./downloads", "./downloads"),
        ] {
            assert_eq!(value("MODEL_URL", given), expected);
        }
        let arguments = ["s3://b/x", "@/downloads/x", "--out=/downloads"]
            .map(str::to_owned)
            .to_vec();
        let expected = ["s3://b/x", "@/state/pod/c/downloads/x", "--out=/downloads"];
        assert_eq!(surroundings().arguments(arguments), expected);
    }

    #[test]
    fn the_local_controller_is_that_of_the_node() {
        assert_eq!(value("LC_SERVER", "http://localhost:9100"), "http://127.32.1.1:9100");
        let without = Surroundings {
            local_controller: None,
            ..surroundings()
        };
        let kept = without.environment(vec![("LC_SERVER".to_owned(), "http://localhost:9100".to_owned())]);
        assert_eq!(kept[0].1, "http://localhost:9100");
        let absent = surroundings().environment(vec![]);
        assert!(
            !absent.iter().any(|(name, _)| name == "LC_SERVER"),
            "who does not ask for it does not get it"
        );
    }

    #[test]
    fn bind_addresses_are_the_pods_unless_it_says_otherwise() {
        assert_eq!(value("AGG_BIND_IP", "0.0.0.0"), "0.0.0.0");
        let variables = surroundings().environment(vec![]);
        assert_eq!(super::super::env::get(&variables, "AGG_BIND_IP"), Some("127.32.1.2"));
        assert_eq!(
            super::super::env::get(&variables, "BIG_MODEL_BIND_IP"),
            Some("127.32.1.2")
        );
    }
}
