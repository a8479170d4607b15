//! The built-in types as `OpenAPI` v3 component schemas, made from `k8s-openapi`'s.

use std::sync::LazyLock;

use k8s_openapi::{
    Resource,
    api::{
        admissionregistration::v1 as admission, apps::v1 as apps, authorization::v1 as authorization,
        autoscaling::v1 as autoscaling_v1, autoscaling::v2 as autoscaling, batch::v1 as batch,
        coordination::v1 as coordination, core::v1 as core, discovery::v1 as discovery, events::v1 as events,
        networking::v1 as networking, policy::v1 as policy, rbac::v1 as rbac, scheduling::v1 as scheduling,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1 as extensions,
    apimachinery::pkg::apis::meta::v1 as meta,
};
use schemars::{
    JsonSchema,
    generate::{SchemaGenerator, SchemaSettings},
};
use serde_json::{Map, Value, json};

use super::topology::{ATOMIC, DEFAULTS, FIELDS, Merge, OPEN, OPTIONAL_NAME};

/// Where all type names begin.
pub(super) const ROOT: &str = "io.k8s.";

/// What a kind's type is called.
struct Named {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    type_name: String,
}

struct Types {
    kinds: Vec<Named>,
    schemas: Map<String, Value>,
}

macro_rules! types {
    ($generator:ident, kinds: [$($kind:ty,)+], others: [$($other:ty,)+]) => {{
        $($generator.subschema_for::<$other>();)+
        vec![$(named::<$kind>(&mut $generator)),+]
    }};
}

static TYPES: LazyLock<Types> = LazyLock::new(|| {
    let mut generator = SchemaSettings::openapi3().into_generator();
    let kinds = types!(generator, kinds: [
        core::Binding, core::ConfigMap, core::Endpoints, core::Event, core::Namespace, core::Node,
        core::PersistentVolume, core::PersistentVolumeClaim, core::Pod, core::PodTemplate,
        core::ReplicationController, core::Secret, core::Service, core::ServiceAccount,
        admission::MutatingWebhookConfiguration, admission::ValidatingWebhookConfiguration,
        extensions::CustomResourceDefinition,
        apps::ControllerRevision, apps::DaemonSet, apps::Deployment, apps::ReplicaSet, apps::StatefulSet,
        authorization::SelfSubjectAccessReview,
        autoscaling::HorizontalPodAutoscaler, autoscaling_v1::Scale,
        batch::CronJob, batch::Job, coordination::Lease, discovery::EndpointSlice, events::Event,
        networking::Ingress, networking::NetworkPolicy, policy::Eviction, policy::PodDisruptionBudget,
        rbac::ClusterRole, rbac::ClusterRoleBinding, rbac::Role, rbac::RoleBinding, scheduling::PriorityClass,
    ], others: [meta::APIResourceList, meta::DeleteOptions, meta::ListMeta, meta::Status,]);
    let mut schemas = generator.take_definitions(true);
    for named in &kinds {
        name_kind(&mut schemas, named);
    }
    annotate(&mut schemas);
    Types { kinds, schemas }
});

fn named<K: Resource + JsonSchema>(generator: &mut SchemaGenerator) -> Named {
    generator.subschema_for::<K>();
    Named {
        group: K::GROUP,
        version: K::VERSION,
        kind: K::KIND,
        type_name: K::schema_name().into_owned(),
    }
}

/// All types by name, such as `io.k8s.api.core.v1.Pod`, with references below `#/components/schemas/`.
pub fn component_schemas() -> &'static Map<String, Value> {
    &TYPES.schemas
}

/// The name of a kind's type, such as `io.k8s.api.core.v1.Pod`; `None` for kinds that are not built in.
pub fn type_name(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    let found = TYPES
        .kinds
        .iter()
        .find(|n| n.group == group && n.version == version && n.kind == kind);
    found.map(|n| n.type_name.as_str())
}

/// Tells the kind that a type belongs to, and makes the type of its lists.
fn name_kind(schemas: &mut Map<String, Value>, named: &Named) {
    let Named {
        group,
        version,
        kind,
        type_name,
    } = named;
    if let Some(schema) = schemas.get_mut(type_name).and_then(Value::as_object_mut) {
        let gvk = json!([{"group": group, "kind": kind, "version": version}]);
        schema.insert("x-kubernetes-group-version-kind".into(), gvk);
    }
    let list = json!({
        "description": format!("{kind}List is a list of {kind} objects."),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"description": "The version of the schema of this object.", "type": "string"},
            "items": {
                "description": "The objects.",
                "type": "array",
                "items": {"allOf": [{"$ref": format!("#/components/schemas/{type_name}")}]},
            },
            "kind": {"description": "The kind of this list.", "type": "string"},
            "metadata": {
                "description": "What is known of the list as a whole.",
                "allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"}],
            },
        },
        "x-kubernetes-group-version-kind": [{"group": group, "kind": format!("{kind}List"), "version": version}],
    });
    schemas.insert(format!("{type_name}List"), list);
}

/// Adds what [`super::topology`] knows.
fn annotate(schemas: &mut Map<String, Value>) {
    for (name, field, merge, strategy, key) in FIELDS {
        let Some(property) = property(schemas, name, field) else {
            continue;
        };
        let mut set = |word: &str, value: Value| property.insert(format!("x-kubernetes-{word}"), value);
        match merge {
            Merge::Plain => {}
            Merge::Set => drop(set("list-type", "set".into())),
            Merge::Map(keys) => {
                set("list-type", "map".into());
                set("list-map-keys", json!(keys));
            }
            Merge::Object => drop(set("map-type", "atomic".into())),
        }
        if !strategy.is_empty() {
            set("patch-strategy", (*strategy).into());
        }
        if !key.is_empty() {
            set("patch-merge-key", (*key).into());
        }
    }
    for name in ATOMIC {
        if let Some(schema) = schemas.get_mut(&format!("{ROOT}{name}")).and_then(Value::as_object_mut) {
            schema.insert("x-kubernetes-map-type".into(), "atomic".into());
        }
    }
    for name in OPEN {
        if let Some(schema) = schemas.get_mut(&format!("{ROOT}{name}")).and_then(Value::as_object_mut) {
            schema.insert("x-kubernetes-preserve-unknown-fields".into(), true.into());
        }
    }
    for (name, schema) in schemas.iter_mut() {
        let named = name
            .strip_prefix(ROOT)
            .is_some_and(|name| OPTIONAL_NAME.contains(&name));
        if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|field| field != "metadata" && !(named && field == "name"));
        }
    }
    for (name, field, default) in DEFAULTS {
        if let Some(property) = property(schemas, name, field) {
            property.insert("default".into(), (*default).into());
        }
    }
}

fn property<'s>(schemas: &'s mut Map<String, Value>, name: &str, field: &str) -> Option<&'s mut Map<String, Value>> {
    schemas
        .get_mut(&format!("{ROOT}{name}"))?
        .get_mut("properties")?
        .get_mut(field)?
        .as_object_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_fields_that_exist() {
        let schemas = component_schemas();
        for (name, field, ..) in FIELDS {
            let pointer = format!("/{ROOT}{name}/properties/{field}");
            assert!(
                Value::Object(schemas.clone()).pointer(&pointer).is_some(),
                "{name} {field}"
            );
        }
        for name in ATOMIC.iter().chain(OPEN).chain(OPTIONAL_NAME) {
            assert!(schemas.contains_key(&format!("{ROOT}{name}")), "{name}");
        }
    }

    #[test]
    fn every_built_in_resource_has_a_type() {
        for resource in crate::surface::builtin_resources() {
            assert!(
                type_name(&resource.group, &resource.version, &resource.kind).is_some(),
                "{} {}",
                resource.group,
                resource.kind
            );
        }
    }
}
