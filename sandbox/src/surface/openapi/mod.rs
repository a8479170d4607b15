//! `OpenAPI`: what `kubectl explain`, `apply` and their kin read of the types. Version 3 has one document for each group
//! and version and an index of them; version 2 is one document with all.
//!
//! The built-in types come from [`crate::schema`], custom ones from their definitions. Nothing is validated here.

mod paths;
mod v2;

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::resource::{Resource, api_version};
use crate::schema::{component_schemas, type_name};

pub use v2::v2;

/// Where documents refer to types.
const SCHEMAS: &str = "#/components/schemas/";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// One resource that is served.
#[derive(Clone, Copy)]
pub struct Served<'a> {
    /// Its description.
    pub resource: &'a Resource,
    /// For a custom resource, the `openAPIV3Schema` of its version.
    pub schema: Option<&'a Value>,
    /// False for what is built in.
    pub custom: bool,
}

/// `/openapi/v3`: where each document is. An address changes with what it leads to, so that clients can keep documents.
pub fn v3_index<'a>(served: impl IntoIterator<Item = Served<'a>>) -> Value {
    let mut documents: BTreeMap<String, Sha256> = BTreeMap::new();
    for Served { resource, schema, .. } in served {
        let hash = documents.entry(place(resource)).or_default();
        hash.update(env!("CARGO_PKG_VERSION"));
        hash.update(format!("{resource:?}"));
        if let Some(schema) = schema {
            hash.update(schema.to_string());
        }
    }
    let path = |(place, hash): (String, Sha256)| {
        let hash = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(hash.finalize());
        let url = format!("/openapi/v3/{place}?hash={hash}");
        (place, json!({"serverRelativeURL": url}))
    };
    json!({"paths": documents.into_iter().map(path).collect::<Map<_, _>>()})
}

/// `/openapi/v3/<place>`, such as `api/v1` or `apis/apps/v1`; `None` where nothing is served there.
pub fn v3_document<'a>(place_asked: &str, served: impl IntoIterator<Item = Served<'a>>) -> Option<Value> {
    let here: Vec<_> = served
        .into_iter()
        .filter(|s| place(s.resource) == place_asked)
        .collect();
    if here.is_empty() {
        return None;
    }
    let (mut schemas, mut paths, mut wanted) = (Map::new(), Map::new(), BTreeSet::new());
    wanted.extend(["DeleteOptions", "Status"].map(|name| format!("{META}{name}")));
    for one in &here {
        let name = add_types(*one, &mut schemas, &mut wanted);
        paths::add(&mut paths, *one, &name);
    }
    add_referred(&mut schemas, wanted);
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "1.34"},
        "paths": paths,
        "components": {"schemas": schemas},
    }))
}

fn place(resource: &Resource) -> String {
    let root = if resource.group.is_empty() { "api" } else { "apis" };
    format!("{root}/{}", api_version(&resource.group, &resource.version))
}

/// Adds the schemas that are a resource's own, and notes those of built-in types that it takes and answers. Answers the
/// name of its type.
fn add_types(served: Served<'_>, schemas: &mut Map<String, Value>, wanted: &mut BTreeSet<String>) -> String {
    let Resource {
        group,
        version,
        kind,
        subresources,
        ..
    } = served.resource;
    let builtin = type_name(group, version, kind).filter(|_| !served.custom);
    let name = builtin.map_or_else(|| custom_name(served.resource), str::to_owned);
    if builtin.is_none() {
        schemas.extend(custom(&name, served.resource, served.schema));
    }
    let subs = subresources
        .iter()
        .filter_map(|sub| type_name(&sub.group, &sub.version, &sub.kind));
    wanted.extend(subs.map(str::to_owned));
    wanted.extend([name.clone(), format!("{name}List")]);
    name
}

/// `test.example.v1.Widget` for `Widget` of `example.test/v1`.
fn custom_name(resource: &Resource) -> String {
    let mut parts: Vec<_> = resource.group.split('.').rev().collect();
    parts.extend([resource.version.as_str(), resource.kind.as_str()]);
    parts.join(".")
}

fn custom(name: &str, resource: &Resource, schema: Option<&Value>) -> [(String, Value); 2] {
    let mut own = match schema {
        Some(Value::Object(schema)) => schema.clone(),
        _ => Map::from_iter([
            ("type".into(), "object".into()),
            ("x-kubernetes-preserve-unknown-fields".into(), true.into()),
        ]),
    };
    let properties = own.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        let mut all = head(&format!("{META}ObjectMeta"), "The object's metadata.");
        properties.retain(|name, _| !all.contains_key(name));
        all.append(properties);
        *properties = all;
    }
    let kind = |kind: &str| json!([{"group": resource.group, "kind": kind, "version": resource.version}]);
    own.insert("x-kubernetes-group-version-kind".into(), kind(&resource.kind));

    let mut properties = head(&format!("{META}ListMeta"), "What is known of the list as a whole.");
    let items = json!({"type": "array", "items": {"$ref": format!("{SCHEMAS}{name}")}, "description": "The objects."});
    properties.insert("items".into(), items);
    let list = json!({
        "description": format!("{} is a list of {}", resource.list_kind, resource.kind),
        "type": "object",
        "required": ["items"],
        "properties": properties,
        "x-kubernetes-group-version-kind": kind(&resource.list_kind),
    });
    [(name.to_owned(), Value::Object(own)), (format!("{name}List"), list)]
}

/// What every object begins with.
fn head(metadata: &str, told: &str) -> Map<String, Value> {
    let version = "The version of the schema of this object, such as apps/v1.";
    let kind = "The kind of this object. Cannot be changed.";
    Map::from_iter([
        ("apiVersion".into(), json!({"description": version, "type": "string"})),
        ("kind".into(), json!({"description": kind, "type": "string"})),
        (
            "metadata".into(),
            json!({"description": told, "allOf": [{"$ref": format!("{SCHEMAS}{metadata}")}]}),
        ),
    ])
}

/// Adds the built-in types that are wanted or referred to, and those that these refer to.
fn add_referred(schemas: &mut Map<String, Value>, mut wanted: BTreeSet<String>) {
    for schema in schemas.values() {
        references(schema, &mut wanted);
    }
    while let Some(name) = wanted.pop_first() {
        if schemas.contains_key(&name) {
            continue;
        }
        if let Some(schema) = component_schemas().get(&name) {
            references(schema, &mut wanted);
            schemas.insert(name, schema.clone());
        }
    }
    schemas.sort_keys();
}

fn references(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(map) => {
            if let Some(name) = map
                .get("$ref")
                .and_then(Value::as_str)
                .and_then(|r| r.strip_prefix(SCHEMAS))
            {
                found.insert(name.to_owned());
            }
            for value in map.values() {
                references(value, found);
            }
        }
        Value::Array(list) => {
            for value in list {
                references(value, found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surface::builtin_resources;

    fn widget() -> Resource {
        let crd = json!({"spec": {
            "group": "example.test", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "subresources": {"status": {}}}],
        }});
        Resource::of_crd(&crd).remove(0)
    }

    fn every_reference_leads_somewhere(document: &Value) {
        let mut found = BTreeSet::new();
        references(document, &mut found);
        for name in found {
            assert!(document["components"]["schemas"].get(&name).is_some(), "{name}");
        }
    }

    #[test]
    fn a_document_holds_what_its_version_needs_and_no_more() {
        let all = builtin_resources();
        let served = || {
            all.iter().map(|resource| Served {
                resource,
                schema: None,
                custom: false,
            })
        };
        let document = v3_document("apis/apps/v1", served()).unwrap();
        every_reference_leads_somewhere(&document);
        let schemas = document["components"]["schemas"].as_object().unwrap();
        assert!(
            schemas.contains_key("io.k8s.api.core.v1.PodSpec")
                && schemas.contains_key("io.k8s.api.autoscaling.v1.Scale")
        );
        assert!(!schemas.contains_key("io.k8s.api.core.v1.NodeSpec"));
        let patch = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
        assert_eq!(
            patch["x-kubernetes-group-version-kind"],
            json!({"group": "apps", "version": "v1", "kind": "Deployment"})
        );
        let names: Vec<_> = patch["parameters"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| p["name"].clone())
            .collect();
        assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
        assert!(document["paths"].get("/apis/apps/v1/deployments").is_some());
        assert!(v3_document("apis/apps/v2", served()).is_none());
    }

    #[test]
    fn the_index_changes_with_a_custom_schema() {
        let resource = widget();
        let (one, two) = (json!({"type": "object"}), json!({"type": "object", "properties": {}}));
        let of = |schema| {
            v3_index([Served {
                resource: &resource,
                schema: Some(schema),
                custom: true,
            }])
        };
        let url = |index: &Value| {
            index["paths"]["apis/example.test/v1"]["serverRelativeURL"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        assert!(url(&of(&one)).starts_with("/openapi/v3/apis/example.test/v1?hash="));
        assert_ne!(url(&of(&one)), url(&of(&two)));
        assert_eq!(of(&one), of(&one));
    }

    #[test]
    fn a_custom_type_knows_its_metadata() {
        let resource = widget();
        let schema =
            json!({"type": "object", "properties": {"metadata": {"type": "object"}, "spec": {"type": "object"}}});
        let document = v3_document(
            "apis/example.test/v1",
            [Served {
                resource: &resource,
                schema: Some(&schema),
                custom: true,
            }],
        )
        .unwrap();
        every_reference_leads_somewhere(&document);
        let widget = &document["components"]["schemas"]["test.example.v1.Widget"];
        assert_eq!(widget["x-kubernetes-group-version-kind"][0]["kind"], "Widget");
        assert_eq!(
            widget["properties"]["metadata"]["allOf"][0]["$ref"],
            "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
        );
        assert!(widget["properties"].get("spec").is_some());
        let object = &document["paths"]["/apis/example.test/v1/namespaces/{namespace}/widgets/{name}"];
        let patches: Vec<_> = object["patch"]["requestBody"]["content"]
            .as_object()
            .unwrap()
            .keys()
            .collect();
        assert_eq!(
            patches,
            [
                "application/apply-patch+yaml",
                "application/json-patch+json",
                "application/merge-patch+json"
            ]
        );
    }

    #[test]
    fn version_two_has_the_same_types_in_its_own_words() {
        let (resource, all) = (widget(), builtin_resources());
        let schema =
            json!({"type": "object", "properties": {"port": {"x-kubernetes-int-or-string": true, "nullable": true}}});
        let builtin = all.iter().map(|resource| Served {
            resource,
            schema: None,
            custom: false,
        });
        let document = v2(builtin.chain([Served {
            resource: &resource,
            schema: Some(&schema),
            custom: true,
        }]));
        assert_eq!(document["swagger"], "2.0");
        let deployment = &document["definitions"]["io.k8s.api.apps.v1.Deployment"]["properties"];
        assert_eq!(
            deployment["spec"]["$ref"],
            "#/definitions/io.k8s.api.apps.v1.DeploymentSpec"
        );
        assert!(
            document["definitions"]["test.example.v1.Widget"]["properties"]["port"]
                .get("nullable")
                .is_none()
        );
        assert!(!document.to_string().contains("#/components/"));
    }
}
