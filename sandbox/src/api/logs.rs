//! `pods/NAME/log`: which container is meant, and whom to ask. The lines themselves are the kubelet's.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};
use serde_json::Value;

use super::{
    field_error::FieldError,
    object::meta,
    options::Query,
    status::{ApiError, GroupResource},
};

/// Which part of a container's log is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogRequest {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// The container.
    pub container: String,
    /// Go on with what is written later, until the container ends.
    pub follow: bool,
    /// The container's run before the present one.
    pub previous: bool,
    /// Each line with its time.
    pub timestamps: bool,
    /// So many lines from the end.
    pub tail_lines: Option<u64>,
    /// What was written in the last so many seconds.
    pub since_seconds: Option<u64>,
    /// At most so many bytes.
    pub limit_bytes: Option<u64>,
}

/// A log, as it is read.
pub type LogStream = BoxStream<'static, io::Result<Bytes>>;

/// Who has the logs of a node's pods. An error is a sentence for the user.
pub type LogSource = Arc<dyn Fn(LogRequest) -> BoxFuture<'static, Result<LogStream, String>> + Send + Sync>;

/// The sources, by node.
#[derive(Default)]
pub(super) struct LogSources(Mutex<HashMap<String, LogSource>>);

impl LogSources {
    pub(super) fn set(&self, node: &str, source: LogSource) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(node.to_owned(), source);
    }

    /// Opens the log of a pod's container.
    /// `None`: it is on no node yet, and has said nothing.
    pub(super) async fn open(&self, pod: &Value, query: &Query) -> Result<Option<LogStream>, ApiError> {
        let number = |field: &str| match query.number(field)? {
            Some(number) if number < i64::from(field != "tailLines") => {
                let what = GroupResource {
                    group: String::new(),
                    resource: "PodLogOptions".into(),
                };
                let why = if field == "tailLines" {
                    "must be greater than or equal to 0"
                } else {
                    "must be greater than 0"
                };
                Err(ApiError::invalid(
                    &what,
                    meta(pod, "name"),
                    &[FieldError::invalid(field, number, why)],
                ))
            }
            number => Ok(number.and_then(|number| u64::try_from(number).ok())),
        };
        let request = LogRequest {
            namespace: meta(pod, "namespace").to_owned(),
            pod: meta(pod, "name").to_owned(),
            container: container(pod, query.get("container").unwrap_or_default())?,
            follow: query.flag("follow"),
            previous: query.flag("previous"),
            timestamps: query.flag("timestamps"),
            tail_lines: number("tailLines")?,
            since_seconds: number("sinceSeconds")?,
            limit_bytes: number("limitBytes")?,
        };
        let node = pod
            .pointer("/spec/nodeName")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if node.is_empty() {
            return Ok(None);
        }
        let source = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(node).cloned();
        let Some(source) = source else {
            // Kubernetes names the wrong resource here, and so do we.
            let pods = GroupResource {
                group: String::new(),
                resource: "pods".into(),
            };
            return Err(ApiError::not_found(&pods, node));
        };
        source(request).await.map(Some).map_err(ApiError::bad_request)
    }
}

/// The container that is meant: the one that is named, or the only one.
fn container(pod: &Value, wanted: &str) -> Result<String, ApiError> {
    let names = |list: &str| -> Vec<&str> {
        let list = pod
            .get("spec")
            .and_then(|spec| spec.get(list))
            .and_then(Value::as_array);
        list.into_iter()
            .flatten()
            .filter_map(|container| container.get("name")?.as_str())
            .collect()
    };
    let (containers, init) = (names("containers"), names("initContainers"));
    let name = meta(pod, "name");
    if !wanted.is_empty() {
        let known = containers.iter().chain(&init).any(|known| *known == wanted);
        let refused = || ApiError::bad_request(format!("container {wanted} is not valid for pod {name}"));
        return if known { Ok(wanted.to_owned()) } else { Err(refused()) };
    }
    match containers.as_slice() {
        [only] => Ok((*only).to_owned()),
        several => {
            let all = [init.as_slice(), several].concat().join(" ");
            let said = format!("a container name must be specified for pod {name}, choose one of: [{all}]");
            Err(ApiError::bad_request(said))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_container_must_be_clear() {
        let pod = |spec: Value| json!({"metadata": {"name": "p"}, "spec": spec});
        let one = pod(json!({"containers": [{"name": "a"}]}));
        assert_eq!(container(&one, "").unwrap(), "a");
        assert_eq!(
            container(&one, "b").unwrap_err().message,
            "container b is not valid for pod p"
        );
        let init = pod(json!({"containers": [{"name": "a"}], "initContainers": [{"name": "i"}]}));
        assert_eq!(container(&init, "").unwrap(), "a");
        let more = pod(json!({"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]}));
        assert_eq!(
            container(&more, "").unwrap_err().message,
            "a container name must be specified for pod p, choose one of: [i a b]"
        );
        assert_eq!(container(&more, "i").unwrap(), "i");
    }
}
