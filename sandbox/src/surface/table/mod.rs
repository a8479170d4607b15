//! Tables, which `kubectl get` prints: the columns of each kind and what an object shows in them.
//!
//! What is shown is said here for the built-in kinds, and by a definition's printer columns for custom ones. How wide a
//! column is, and whether it is shown at all, is for the client.

mod age;
mod cells;
mod columns;
mod core;
mod pod;
mod text;
mod workloads;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{jsonpath::JsonPath, resource::Resource};

/// What comes with each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    None,
    /// The object's metadata.
    Metadata,
    /// The whole object.
    Object,
}

impl Include {
    /// Reads the query parameter `includeObject`; `None` for a word that is not one of its.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "" | "Metadata" => Some(Self::Metadata),
            "Object" => Some(Self::Object),
            "None" => Some(Self::None),
            _ => None,
        }
    }
}

/// The columns of one kind, and how its objects are shown in them.
pub struct Printer {
    columns: Vec<Value>,
    cells: Cells,
}

enum Cells {
    Builtin(fn(&Value, Timestamp) -> Vec<Value>),
    Custom(Vec<(Option<JsonPath>, String)>),
}

impl Printer {
    /// For a resource. `printer_columns` are `additionalPrinterColumns` of the version of a custom resource.
    pub fn new(resource: &Resource, printer_columns: Option<&[Value]>) -> Self {
        if let Some(columns) = printer_columns {
            return Self::custom(columns);
        }
        let (columns, cells) = columns::builtin(&resource.group, &resource.kind);
        Self {
            columns,
            cells: Cells::Builtin(cells),
        }
    }

    fn custom(printer_columns: &[Value]) -> Self {
        let age = json!({
            "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
            "description": columns::CREATED,
        });
        let printer_columns = if printer_columns.is_empty() {
            std::slice::from_ref(&age)
        } else {
            printer_columns
        };
        let mut columns = vec![columns::name()];
        let mut paths = Vec::new();
        for column in printer_columns {
            let text = |key: &str| column.get(key).and_then(Value::as_str).unwrap_or_default();
            let path = text("jsonPath");
            let told = match text("description") {
                "" => format!("Custom resource definition column (in JSONPath format): {path}"),
                told => told.to_owned(),
            };
            columns.push(json!({
                "name": text("name"), "type": text("type"), "format": text("format"), "description": told,
                "priority": column.get("priority").and_then(Value::as_i64).unwrap_or_default(),
            }));
            paths.push((JsonPath::parse(path).ok(), text("type").to_owned()));
        }
        Self {
            columns,
            cells: Cells::Custom(paths),
        }
    }

    /// The table of an object, or of a list's `items`. `headers`: the columns are told too; once is enough in a watch.
    pub fn table(&self, shown: &Value, include: Include, headers: bool, now: Timestamp) -> Value {
        let row = |object: &Value| self.row(object, include, now);
        let rows: Vec<_> = match shown.get("items").and_then(Value::as_array) {
            Some(items) => items.iter().map(row).collect(),
            None => vec![row(shown)],
        };
        let mut metadata = Map::new();
        for field in ["resourceVersion", "continue", "remainingItemCount"] {
            if let Some(value) = shown.get("metadata").and_then(|m| m.get(field)) {
                metadata.insert(field.into(), value.clone());
            }
        }
        let columns = if headers {
            self.columns.clone().into()
        } else {
            Value::Null
        };
        json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            "columnDefinitions": columns, "rows": rows,
        })
    }

    fn row(&self, object: &Value, include: Include, now: Timestamp) -> Value {
        let cells = match &self.cells {
            Cells::Builtin(cells) => cells(object, now),
            Cells::Custom(paths) => {
                let name = object.pointer("/metadata/name").cloned().unwrap_or_default();
                let cell = |(path, of): &(Option<JsonPath>, String)| {
                    path.as_ref()
                        .and_then(|path| path.first(object))
                        .map_or(Value::Null, |v| cell(v, of, now))
                };
                std::iter::once(name).chain(paths.iter().map(cell)).collect()
            }
        };
        let mut row = Map::from_iter([("cells".into(), Value::Array(cells))]);
        if object.get("kind").and_then(Value::as_str) == Some("Pod") {
            let conditions = pod::row_conditions(object);
            if !conditions.is_empty() {
                row.insert("conditions".into(), conditions.into());
            }
        }
        match include {
            Include::None => drop(row.insert("object".into(), Value::Null)),
            Include::Object => drop(row.insert("object".into(), object.clone())),
            Include::Metadata => {
                let metadata = object.get("metadata").cloned().unwrap_or_default();
                let partial = json!({
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                });
                row.insert("object".into(), partial);
            }
        }
        Value::Object(row)
    }
}

/// A value in a column of a type; nothing where it is of another.
fn cell(value: &Value, of: &str, now: Timestamp) -> Value {
    match of {
        "string" => text::plain(value).into(),
        "integer" if value.is_i64() || value.is_u64() => value.clone(),
        // A number that is not whole loses its fraction.
        "integer" => value
            .as_f64()
            .and_then(|n| format!("{:.0}", n.trunc()).parse().ok())
            .map_or(Value::Null, |n: i64| n.into()),
        "number" => value.as_f64().map_or(Value::Null, Value::from),
        "boolean" if value.is_boolean() => value.clone(),
        "date" if value.is_string() => age::since(Some(value), now).into(),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surface::{builtin_resources, split_api_version};

    #[test]
    fn objects_show_as_a_real_api_server_shows_them() {
        let recorded: Value = serde_json::from_str(include_str!("../testdata/tables.json")).unwrap();
        let served = builtin_resources();
        for case in recorded["cases"].as_array().unwrap() {
            let object = &case["object"];
            let (group, _) = split_api_version(object["apiVersion"].as_str().unwrap());
            let resource = served
                .iter()
                .find(|r| r.group == group && r.kind == object["kind"].as_str().unwrap())
                .unwrap();
            let table = Printer::new(resource, None).table(object, Include::None, true, Timestamp::UNIX_EPOCH);
            let columns = table["columnDefinitions"].as_array().unwrap();
            let shown: Vec<_> = columns
                .iter()
                .map(|c| json!([c["name"], c["type"], c["format"], c["priority"]]))
                .collect();
            assert_eq!(json!(shown), case["columns"], "{}", resource.kind);
            let cells = table["rows"][0]["cells"].as_array().unwrap().iter().zip(columns);
            // What depends on the time of recording is blank in the record.
            let ages = ["Age", "Last Seen", "First Seen", "Created At"];
            let cell = |(cell, column): (&Value, &Value)| {
                if ages.iter().any(|age| column["name"] == *age) {
                    "".into()
                } else {
                    cell.clone()
                }
            };
            assert_eq!(
                cells.map(cell).collect::<Vec<_>>(),
                *case["cells"].as_array().unwrap(),
                "{object}"
            );
        }
    }

    #[test]
    fn a_custom_resource_shows_what_its_definition_says() {
        let crd = json!({"spec": {"group": "example.test", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true}]}});
        let resource = Resource::of_crd(&crd).remove(0);
        let columns = json!([
            {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].status"},
            {"name": "Count", "type": "integer", "jsonPath": ".spec.count", "priority": 1},
            {"name": "Since", "type": "date", "jsonPath": ".spec.since"},
            {"name": "Missing", "type": "string", "jsonPath": ".spec.missing"},
        ]);
        let object = json!({
            "kind": "Widget", "metadata": {"name": "w", "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "7"},
            "spec": {"count": 2.9, "since": "2026-01-01T00:00:00Z"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let now = "2026-01-01T00:03:00Z".parse().unwrap();
        let list = json!({"metadata": {"resourceVersion": "9"}, "items": [object]});
        let table =
            Printer::new(&resource, columns.as_array().map(Vec::as_slice)).table(&list, Include::Metadata, true, now);
        assert_eq!(table["rows"][0]["cells"], json!(["w", "True", 2, "3m", null]));
        assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(table["metadata"], json!({"resourceVersion": "9"}));
        assert_eq!(table["columnDefinitions"][2]["priority"], 1);

        let plain = Printer::new(&resource, Some(&[])).table(&object, Include::Object, false, now);
        assert_eq!(plain["rows"][0]["cells"], json!(["w", "3m"]));
        assert_eq!(
            (&plain["columnDefinitions"], &plain["rows"][0]["object"]),
            (&Value::Null, &object)
        );
    }
}
