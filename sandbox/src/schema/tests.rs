//! Schemas against what a real API server answered to the same objects.

use serde_json::{Value, json};

use super::Schema;
use crate::api::FieldError;

fn recorded() -> Value {
    serde_json::from_str(include_str!("testdata/widgets.json")).unwrap()
}

/// Errors as `[field, reason, message]`, sorted: the real one's order is that of a hash map.
fn told(errors: &[FieldError]) -> Value {
    let field = |error: &FieldError| {
        if error.path.is_empty() {
            "<nil>".to_owned()
        } else {
            error.path.clone()
        }
    };
    let mut told: Vec<_> = errors.iter().map(|e| (field(e), e.kind.cause(), e.body())).collect();
    told.sort();
    json!(told)
}

fn prepare(schema: &Schema, object: &Value) -> (Value, Vec<String>) {
    let mut object = object.clone();
    let unknown = schema.prune(&mut object);
    schema.drop_nulls(&mut object);
    schema.default_fields(&mut object);
    (object, unknown)
}

#[test]
fn objects_are_refused_and_completed_as_by_a_real_api_server() {
    let recorded = recorded();
    let schema = Schema::of_resource(&recorded["schema"]);
    let mut wrong = Vec::new();
    for case in recorded["cases"].as_array().unwrap() {
        let old = case.get("old").map(|old| prepare(&schema, old).0);
        let of = ["create", "update", "status"]
            .iter()
            .find_map(|key| case.get(*key))
            .unwrap();
        let (mut object, unknown) = prepare(&schema, of);
        let errors = if case.get("status").is_some() {
            schema.validate_status(&object, old.as_ref().unwrap())
        } else {
            // A new object has no status yet.
            object.as_object_mut().unwrap().shift_remove("status");
            schema.validate(&object, old.as_ref())
        };
        let answer = match case["code"].as_u64().unwrap() {
            400 => json!({"message": strict_error(&unknown)}),
            422 => json!({"causes": told(&errors)}),
            _ if !errors.is_empty() => json!({"causes": told(&errors)}),
            _ => json!({"stored": object["spec"]}),
        };
        for (key, ours) in answer.as_object().unwrap() {
            if case.get(key).is_some_and(|theirs| !same(theirs, ours)) || (key == "causes" && case.get(key).is_none()) {
                wrong.push(format!(
                    "{of}\n  real: {}\n  ours: {ours}",
                    case.get(key).unwrap_or(&Value::Null)
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Equal whatever the order of keys, and whether a whole number is written with a fraction.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|w| same(v, w)))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(v, w)| same(v, w)),
        _ => a == b,
    }
}

fn strict_error(unknown: &[String]) -> String {
    let fields: Vec<_> = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
    format!(
        "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: {}",
        fields.join(", ")
    )
}

#[test]
fn definitions_are_refused_as_by_a_real_api_server() {
    let recorded: Value = serde_json::from_str(include_str!("testdata/crds.json")).unwrap();
    let mut wrong = Vec::new();
    for case in recorded["cases"].as_array().unwrap() {
        let mut definition = case["crd"].clone();
        super::default_definition(&mut definition);
        let ours = told(&super::validate_definition(&definition, None));
        let theirs = case.get("causes").cloned().unwrap_or(json!([]));
        let (ours, theirs) = (ours.as_array().unwrap(), theirs.as_array().unwrap());
        let equal = ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| alike(a, b));
        if !equal {
            wrong.push(format!("{}\n  real: {theirs:?}\n  ours: {ours:?}", case["crd"]["spec"]));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Field and reason, and the message too where it does not show internals of the real one.
fn alike(ours: &Value, theirs: &Value) -> bool {
    let internal = ["{\"Rule\":", "[{\"Name\":", "error parsing regexp"];
    let message = theirs[2].as_str().unwrap();
    let shows = internal.iter().any(|sign| message.contains(sign));
    ours[0] == theirs[0] && ours[1] == theirs[1] && (shows || ours[2] == theirs[2])
}
