//! The built-in types: their schemas, and how their lists are merged. Decides nothing about values.

mod topology;
mod types;

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use super::{node::Schema, parse::parse};
pub use types::{component_schemas, type_name};

static SCHEMAS: LazyLock<HashMap<String, Arc<Schema>>> = LazyLock::new(|| {
    let builder = Builder {
        done: RefCell::default(),
    };
    component_schemas().keys().for_each(|name| drop(builder.get(name)));
    builder.done.into_inner()
});

static OBJECT_META: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    SCHEMAS
        .get("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
        .cloned()
        .unwrap_or_default()
});

/// The schema of a built-in kind; `None` for kinds that are not built in.
pub fn builtin(group: &str, version: &str, kind: &str) -> Option<&'static Arc<Schema>> {
    SCHEMAS.get(type_name(group, version, kind)?)
}

/// The schema of every resource's `metadata`.
pub fn object_meta() -> &'static Arc<Schema> {
    &OBJECT_META
}

/// Follows references, each type being parsed once. Types that contain themselves are open where they do.
struct Builder {
    done: RefCell<HashMap<String, Arc<Schema>>>,
}

impl Builder {
    fn get(&self, name: &str) -> Option<Arc<Schema>> {
        if let Some(done) = self.done.borrow().get(name) {
            return Some(done.clone());
        }
        let json = component_schemas().get(name)?;
        // What asks for the type while it is being made gets this.
        let open = Schema {
            preserve_unknown: true,
            ..Schema::default()
        };
        self.done.borrow_mut().insert(name.to_owned(), Arc::new(open));
        let parts: Vec<&str> = name.rsplit('.').take(3).collect();
        let type_path = Some(parts.into_iter().rev().collect::<Vec<_>>().join(".").into());
        let schema = Arc::new(Schema {
            type_path,
            ..parse(json, &|name| self.get(name))
        });
        self.done.borrow_mut().insert(name.to_owned(), schema.clone());
        Some(schema)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::ListKind;

    fn at(kind: (&str, &str, &str), path: &[&str]) -> Schema {
        builtin(kind.0, kind.1, kind.2).unwrap().at(path).unwrap().clone()
    }

    #[test]
    fn lists_of_built_ins_merge_by_their_keys() {
        let pod = ["spec", "template", "spec", "containers", "*"];
        let deployment = ("apps", "v1", "Deployment");
        let keys = |names: &[&str]| ListKind::Map(names.iter().map(|n| (*n).to_owned()).collect());
        for (path, kind) in [
            ("containers", keys(&["name"])),
            ("volumes", keys(&["name"])),
            ("tolerations", ListKind::Atomic),
            ("containers/*/env", keys(&["name"])),
            ("containers/*/ports", keys(&["containerPort", "protocol"])),
            ("containers/*/volumeMounts", keys(&["mountPath"])),
            ("containers/*/args", ListKind::Atomic),
        ] {
            let path: Vec<_> = pod[..3].iter().copied().chain(path.split('/')).collect();
            assert_eq!(*at(deployment, &path).list_kind(), kind, "{path:?}");
        }
        assert_eq!(*at(deployment, &["status", "conditions"]).list_kind(), keys(&["type"]));
        assert_eq!(
            *at(deployment, &["metadata", "ownerReferences"]).list_kind(),
            keys(&["uid"])
        );
        assert_eq!(*at(deployment, &["metadata", "finalizers"]).list_kind(), ListKind::Set);
        assert_eq!(
            *at(("", "v1", "Service"), &["spec", "ports"]).list_kind(),
            keys(&["port", "protocol"])
        );
        let hpa = ("autoscaling", "v2", "HorizontalPodAutoscaler");
        assert_eq!(*at(hpa, &["spec", "metrics"]).list_kind(), ListKind::Atomic);
        assert!(at(deployment, &["spec", "selector"]).is_atomic());
        assert!(at(("", "v1", "Service"), &["spec", "selector"]).is_atomic());
        assert!(!at(deployment, &["metadata", "labels"]).is_atomic());
    }

    #[test]
    fn an_absent_protocol_counts_as_tcp() {
        let ports = at(("", "v1", "Service"), &["spec", "ports"]);
        assert_eq!(ports.key_default("protocol"), Some(&json!("TCP")));
        assert_eq!(ports.key_default("port"), None);
    }

    #[test]
    fn strategic_merge_knows_keys_and_kept_fields() {
        let spec = ["spec", "template", "spec"];
        let volumes = at(("apps", "v1", "Deployment"), &[&spec[..], &["volumes"]].concat());
        assert!(volumes.patch_strategy().merge && volumes.patch_strategy().retain_keys);
        assert_eq!(volumes.patch_strategy().merge_key.as_deref(), Some("name"));
        let strategy = at(("apps", "v1", "Deployment"), &["spec", "strategy"]);
        assert!(strategy.patch_strategy().retain_keys && !strategy.patch_strategy().merge);
        assert!(strategy.at(&["rollingUpdate", "maxSurge"]).is_some());
    }

    #[test]
    fn unknown_fields_of_built_ins_are_found() {
        let deployment = builtin("apps", "v1", "Deployment").unwrap();
        let mut object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "lables": {}},
            "spec": {"replica": 1, "template": {"spec": {"containers": [{"name": "c", "imag": "x"}]}}},
        });
        assert_eq!(
            deployment.prune(&mut object),
            [
                "metadata.lables",
                "spec.replica",
                "spec.template.spec.containers[0].imag"
            ]
        );
        assert_eq!(
            object.pointer("/spec/template/spec/containers/0"),
            Some(&json!({"name": "c"}))
        );
    }
}
