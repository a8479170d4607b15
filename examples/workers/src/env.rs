//! The environment that a worker is started with: what the control plane injects and what the user's template adds.
//!
//! Reads it once, at the start, into the settings of each worker. Errors name the variable and what would be right. An
//! empty value counts as not set.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// Where host paths are mounted in a worker, unless `DATA_PATH_PREFIX` says otherwise.
const DEFAULT_DATA_PREFIX: &str = "/home/data";

/// Why a worker cannot start with its environment.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum EnvError {
    /// A variable that the worker cannot do without is not set.
    #[error("{name} is not set: {wanted} is wanted")]
    Missing {
        /// The variable.
        name: &'static str,
        /// What it should hold.
        wanted: &'static str,
    },
    /// A variable has a value that the worker cannot use.
    #[error("{name} is {value:?}: {wanted} is wanted")]
    Invalid {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it should hold.
        wanted: String,
    },
}

/// Variables and their values.
#[derive(Debug, Clone, Default)]
pub struct Env(BTreeMap<String, String>);

impl Env {
    /// The environment of this process. Variables that are not UTF-8 are left out.
    pub fn of_process() -> Self {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .map(|value| value.trim())
            .filter(|value| !value.is_empty())
    }

    /// The value of a variable that must be set.
    pub fn required(&self, name: &'static str, wanted: &'static str) -> Result<&str, EnvError> {
        self.get(name).ok_or(EnvError::Missing { name, wanted })
    }

    /// The value of a variable, or `default`.
    pub fn parsed<T: FromStr>(&self, name: &'static str, default: T, wanted: &str) -> Result<T, EnvError> {
        let Some(value) = self.get(name) else {
            return Ok(default);
        };
        value.parse().map_err(|_| EnvError::Invalid {
            name,
            value: value.to_owned(),
            wanted: wanted.to_owned(),
        })
    }

    /// The value of a variable that counts things and cannot be 0, or `default`.
    pub fn count(&self, name: &'static str, default: u32) -> Result<u32, EnvError> {
        let count = self.parsed(name, default, "a whole number above 0")?;
        let invalid = || EnvError::Invalid {
            name,
            value: "0".into(),
            wanted: "a whole number above 0".into(),
        };
        if count == 0 { Err(invalid()) } else { Ok(count) }
    }

    /// The value of a variable in seconds, fractions allowed, or `default`.
    pub fn seconds(&self, name: &'static str, default: f64) -> Result<Duration, EnvError> {
        const WANTED: &str = "a number of seconds, 0 or more,";
        let seconds = self.parsed(name, default, WANTED)?;
        let invalid = |_| EnvError::Invalid {
            name,
            value: seconds.to_string(),
            wanted: WANTED.into(),
        };
        Duration::try_from_secs_f64(seconds).map_err(invalid)
    }

    /// Refuses a job whose weights should travel through object storage: these workers have only the socket.
    pub fn require_socket_transmitter(&self) -> Result<(), EnvError> {
        match self.get("TRANSMITTER") {
            None | Some("ws") => Ok(()),
            Some(other) => {
                let wanted = "ws (these workers have no other transmitter)".into();
                Err(EnvError::Invalid {
                    name: "TRANSMITTER",
                    value: other.to_owned(),
                    wanted,
                })
            }
        }
    }

    /// The address that a server binds; all interfaces and `default_port` where the variables are not set.
    pub fn bind_address(
        &self,
        ip: &'static str,
        port: &'static str,
        default_port: u16,
    ) -> Result<SocketAddr, EnvError> {
        let ip = self.parsed(ip, IpAddr::V4(Ipv4Addr::UNSPECIFIED), "an IP address")?;
        Ok(SocketAddr::new(ip, self.port(port, default_port)?))
    }

    /// The value of a variable that holds a port, or `default`.
    pub fn port(&self, name: &'static str, default: u16) -> Result<u16, EnvError> {
        self.parsed(name, default, "a port number (0 to 65535)")
    }

    /// The file that a `…_URL` variable names: the manager has turned a host path into a mounted one and a remote file
    /// that it downloads into its place under `/downloads`. What still has a scheme is not a file.
    pub fn file(&self, name: &'static str) -> Result<PathBuf, EnvError> {
        let url = self.required(name, "the path of a file")?;
        let path = url.strip_prefix("file://").unwrap_or(url);
        if path.contains("://") {
            let wanted = "a path of this machine (this worker does not read or write remote storage itself)".into();
            return Err(EnvError::Invalid {
                name,
                value: url.to_owned(),
                wanted,
            });
        }
        Ok(PathBuf::from(path))
    }

    /// How a worker names a file of its own in reports: as the user did, without the place where it is mounted.
    pub fn reported_path(&self, path: &Path) -> String {
        let prefix = self.get("DATA_PATH_PREFIX").unwrap_or(DEFAULT_DATA_PREFIX);
        match path.strip_prefix(prefix) {
            Ok(relative) => format!("/{}", relative.display()),
            Err(_) => path.display().to_string(),
        }
    }

    /// The job or service that the worker belongs to. The library of Sedna prefers `JOB_NAME`; its manager gives
    /// workers of a service only `SERVICE_NAME`.
    pub fn owner_name(&self) -> Result<&str, EnvError> {
        let wanted = "the name of the job or service that this worker belongs to (or SERVICE_NAME)";
        self.get("JOB_NAME")
            .or(self.get("SERVICE_NAME"))
            .ok_or(EnvError::Missing {
                name: "JOB_NAME",
                wanted,
            })
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Env {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        Self(
            variables
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_variable_and_what_is_wanted() {
        let env: Env = [
            ("AGG_BIND_PORT", "http"),
            ("EXIT_ROUND", "0"),
            ("LC_PERIOD", "-1"),
            ("MODEL_URL", "s3://b/m"),
        ]
        .into_iter()
        .collect();
        let error = env.port("AGG_BIND_PORT", 7363).unwrap_err().to_string();
        assert_eq!(
            error,
            r#"AGG_BIND_PORT is "http": a port number (0 to 65535) is wanted"#
        );
        let error = env.count("EXIT_ROUND", 10).unwrap_err().to_string();
        assert_eq!(error, r#"EXIT_ROUND is "0": a whole number above 0 is wanted"#);
        assert!(
            env.seconds("LC_PERIOD", 30.0)
                .unwrap_err()
                .to_string()
                .starts_with(r#"LC_PERIOD is "-1""#)
        );
        assert!(
            env.file("MODEL_URL")
                .unwrap_err()
                .to_string()
                .starts_with(r#"MODEL_URL is "s3://b/m""#)
        );
        assert!(
            env.file("TRAIN_DATASET_URL")
                .unwrap_err()
                .to_string()
                .starts_with("TRAIN_DATASET_URL is not set")
        );
        assert!(
            env.owner_name()
                .unwrap_err()
                .to_string()
                .starts_with("JOB_NAME is not set")
        );
    }

    #[test]
    fn what_is_empty_is_not_set() {
        let env: Env = [("AGG_BIND_PORT", " "), ("JOB_NAME", ""), ("SERVICE_NAME", "s")]
            .into_iter()
            .collect();
        assert_eq!(env.port("AGG_BIND_PORT", 7363), Ok(7363));
        assert_eq!(env.owner_name(), Ok("s"));
    }

    #[test]
    fn reported_paths_are_those_of_the_node() {
        let default: Env = Env::default();
        assert_eq!(
            default.reported_path(Path::new("/home/data/models/m.json")),
            "/models/m.json"
        );
        assert_eq!(
            default.reported_path(Path::new("/downloads/h/m.json")),
            "/downloads/h/m.json"
        );
        let moved: Env = [("DATA_PATH_PREFIX", "/tmp/node-1/")].into_iter().collect();
        assert_eq!(
            moved.reported_path(Path::new("/tmp/node-1/models/m.json")),
            "/models/m.json"
        );
    }
}
