//! The operations of a resource, as far as clients look at them: which kind is at which path, and which parameters a
//! verb takes.

use serde_json::{Map, Value, json};

use super::{META, SCHEMAS, Served};
use crate::surface::resource::api_version;

/// Name, type and meaning of a parameter.
type Parameter = (&'static str, &'static str, &'static str);

const DRY_RUN: Parameter = ("dryRun", "string", "With `All` nothing is stored.");
const MANAGER: Parameter = ("fieldManager", "string", "Who owns the fields that are set.");
const VALIDATION: Parameter = (
    "fieldValidation",
    "string",
    "What becomes of unknown and duplicate fields: Ignore, Warn or Strict.",
);
const FORCE: Parameter = (
    "force",
    "boolean",
    "Take over the fields that others own. Of server-side apply only.",
);
const GRACE: Parameter = ("gracePeriodSeconds", "integer", "How long an orderly end may take.");
const PROPAGATION: Parameter = ("propagationPolicy", "string", "Orphan, Background or Foreground.");

const LIST: &[Parameter] = &[
    (
        "allowWatchBookmarks",
        "boolean",
        "Tell in between how far the watch has come.",
    ),
    ("continue", "string", "Where the last page ended."),
    ("fieldSelector", "string", "Only objects with these fields."),
    ("labelSelector", "string", "Only objects with these labels."),
    ("limit", "integer", "How many objects a page has."),
    (
        "resourceVersion",
        "string",
        "How old the answer may be, or after which version to watch.",
    ),
    ("resourceVersionMatch", "string", "How `resourceVersion` is meant."),
    ("sendInitialEvents", "boolean", "Begin a watch with all objects."),
    ("timeoutSeconds", "integer", "How long a watch lasts."),
    ("watch", "boolean", "Send changes as they happen."),
];

/// Adds the paths of a resource whose type is called so.
pub(super) fn add(paths: &mut Map<String, Value>, served: Served<'_>, type_name: &str) {
    let Served { resource, custom, .. } = served;
    let root = if resource.group.is_empty() { "/api" } else { "/apis" };
    let root = format!("{root}/{}", api_version(&resource.group, &resource.version));
    let space = if resource.namespaced {
        "/namespaces/{namespace}"
    } else {
        ""
    };
    let collection = format!("{root}{space}/{}", resource.plural);
    let object = format!("{collection}/{{name}}");
    let list = format!("{type_name}List");
    let has = |verb: &str| resource.verbs.iter().any(|v| v == verb);
    let here = Of {
        group: &resource.group,
        version: &resource.version,
        kind: &resource.kind,
        custom,
    };

    let mut many = Map::new();
    let mut one = Map::new();
    if has("list") {
        many.insert("get".into(), here.operation("list", LIST, &list));
        if resource.namespaced {
            let everywhere = json!({"get": here.operation("list", LIST, &list)});
            paths.insert(format!("{root}/{}", resource.plural), everywhere);
        }
    }
    if has("create") {
        many.insert(
            "post".into(),
            here.operation("post", &[DRY_RUN, MANAGER, VALIDATION], type_name),
        );
    }
    if has("deletecollection") {
        many.insert(
            "delete".into(),
            here.operation("deletecollection", LIST, &format!("{META}Status")),
        );
    }
    here.item(&mut one, &resource.verbs, type_name);
    if has("delete") {
        let delete = here.operation("delete", &[DRY_RUN, GRACE, PROPAGATION], &format!("{META}Status"));
        one.insert("delete".into(), delete);
    }
    paths.insert(collection, Value::Object(many));
    paths.insert(object.clone(), Value::Object(one));
    for sub in &resource.subresources {
        let of = Of {
            group: &sub.group,
            version: &sub.version,
            kind: &sub.kind,
            custom,
        };
        let answer = crate::schema::type_name(&sub.group, &sub.version, &sub.kind).unwrap_or(type_name);
        let mut item = Map::new();
        of.item(&mut item, &sub.verbs, answer);
        if sub.verbs.iter().any(|verb| verb == "create") {
            item.insert(
                "post".into(),
                of.operation("post", &[DRY_RUN, MANAGER, VALIDATION], answer),
            );
        }
        paths.insert(format!("{object}/{}", sub.name), Value::Object(item));
    }
}

/// The kind that an operation is about.
struct Of<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
    /// Whether the resource comes from a definition: it takes no strategic merge patch then, and clients that read here
    /// that it did would send one.
    custom: bool,
}

impl Of<'_> {
    fn item(&self, item: &mut Map<String, Value>, verbs: &[String], answer: &str) {
        for verb in verbs {
            let (method, parameters): (_, &[Parameter]) = match verb.as_str() {
                "get" => ("get", &[]),
                "update" => ("put", &[DRY_RUN, MANAGER, VALIDATION]),
                "patch" => ("patch", &[DRY_RUN, MANAGER, VALIDATION, FORCE]),
                _ => continue,
            };
            item.insert(method.into(), self.operation(method, parameters, answer));
        }
    }

    fn operation(&self, action: &str, parameters: &[Parameter], answer: &str) -> Value {
        let parameter = |(name, of, told): &Parameter| json!({"name": name, "in": "query", "description": told, "schema": {"type": of, "uniqueItems": true}});
        let schema = json!({"$ref": format!("{SCHEMAS}{answer}")});
        let mut operation = json!({
            "operationId": format!("{action}{}{}{}", self.group, self.version, self.kind),
            "parameters": parameters.iter().map(parameter).collect::<Vec<_>>(),
            "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {"group": self.group, "version": self.version, "kind": self.kind},
        });
        let body = match action {
            "post" | "put" => json!({"*/*": {"schema": {"$ref": format!("{SCHEMAS}{answer}")}}}),
            "patch" => {
                let kinds = [
                    "apply-patch+yaml",
                    "json-patch+json",
                    "merge-patch+json",
                    "strategic-merge-patch+json",
                ];
                let kinds = kinds
                    .into_iter()
                    .filter(|kind| !self.custom || !kind.starts_with("strategic"));
                let kind = |kind| (format!("application/{kind}"), json!({"schema": {"type": "object"}}));
                Value::Object(kinds.map(kind).collect())
            }
            _ => return operation,
        };
        if let Some(operation) = operation.as_object_mut() {
            operation.insert("requestBody".into(), json!({"content": body, "required": true}));
        }
        operation
    }
}
