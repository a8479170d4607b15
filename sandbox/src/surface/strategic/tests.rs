//! Patches against what a real API server made of them.

use serde_json::json;

use super::*;
use crate::schema::builtin;

fn patched(mut original: Value, change: Value) -> Value {
    let schema = builtin("apps", "v1", "Deployment").unwrap();
    patch(schema, &mut original, change).unwrap();
    original
}

fn pod(spec: &Value) -> Value {
    json!({"spec": {"template": {"spec": spec}}})
}

#[test]
fn documents_change_as_on_a_real_api_server() {
    let recorded: Value = serde_json::from_str(include_str!("../testdata/strategic.json")).unwrap();
    let schema = builtin("apps", "v1", "Deployment").unwrap();
    for case in recorded["cases"].as_array().unwrap() {
        let mut document = recorded["original"].clone();
        let outcome = patch(schema, &mut document, case["patch"].clone());
        if case["result"].is_null() {
            assert!(outcome.is_err(), "{}", case["patch"]);
        } else {
            outcome.unwrap();
            assert_eq!(
                without_nothing(document),
                without_nothing(case["result"].clone()),
                "{}",
                case["patch"]
            );
        }
    }
}

/// A real server leaves out what is empty.
fn without_nothing(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().map(|(name, v)| (name, without_nothing(v)));
            Value::Object(kept.filter(|(_, v)| *v != json!({}) && *v != json!([])).collect())
        }
        Value::Array(list) => list.into_iter().map(without_nothing).collect(),
        scalar => scalar,
    }
}

#[test]
fn lists_merge_by_key_and_fields_by_name() {
    for (original, change, result) in [
        (
            json!({"containers": [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}]}),
            json!({"containers": [{"name": "a", "image": "2", "env": [{"name": "Y", "value": "2"}]}]}),
            // What the patch names comes first, unless the old list tells otherwise.
            json!({"containers": [{"name": "a", "image": "2", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]}]}),
        ),
        (
            json!({"containers": [{"name": "a"}, {"name": "b"}]}),
            json!({"containers": [{"name": "a", "$patch": "delete"}]}),
            json!({"containers": [{"name": "b"}]}),
        ),
        (
            json!({"containers": [{"name": "a"}, {"name": "b"}]}),
            json!({"containers": [{"$patch": "replace"}, {"name": "c"}]}),
            json!({"containers": [{"name": "c"}]}),
        ),
        (
            json!({"nodeSelector": {"a": "1", "b": "2"}}),
            json!({"nodeSelector": {"a": null, "c": "3"}}),
            json!({"nodeSelector": {"b": "2", "c": "3"}}),
        ),
        (
            json!({"nodeSelector": {"a": "1"}}),
            json!({"nodeSelector": {"$patch": "replace", "c": "3"}}),
            json!({"nodeSelector": {"c": "3"}}),
        ),
        (
            json!({"tolerations": [{"key": "a"}]}),
            json!({"tolerations": [{"key": "b"}]}),
            json!({"tolerations": [{"key": "b"}]}),
        ),
        (
            json!({"volumes": [{"name": "v", "emptyDir": {}}]}),
            json!({"volumes": [{"$retainKeys": ["name", "hostPath"], "name": "v", "hostPath": {"path": "/x"}}]}),
            json!({"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}),
        ),
    ] {
        assert_eq!(patched(pod(&original), pod(&change)), pod(&result));
    }
}

#[test]
fn the_order_that_is_stated_holds() {
    let original = pod(&json!({"containers": [{"name": "a"}, {"name": "server-only"}, {"name": "b"}]}));
    let change = pod(&json!({
        "$setElementOrder/containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}],
        "containers": [{"name": "c", "image": "x"}],
    }));
    let names = |v: &Value| -> Vec<String> {
        let all = v
            .pointer("/spec/template/spec/containers")
            .unwrap()
            .as_array()
            .unwrap()
            .iter();
        all.map(|c| c["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&patched(original, change)), ["server-only", "b", "c", "a"]);
}

#[test]
fn scalars_in_lists_come_and_go_one_by_one() {
    let original = json!({"metadata": {"finalizers": ["a/1", "a/2"]}});
    let change = json!({"metadata": {
        "$deleteFromPrimitiveList/finalizers": ["a/1"], "$setElementOrder/finalizers": ["a/3", "a/2"],
        "finalizers": ["a/3"],
    }});
    assert_eq!(
        patched(original, change),
        json!({"metadata": {"finalizers": ["a/3", "a/2"]}})
    );
}

#[test]
fn retained_keys_drop_the_others() {
    let original = json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
    let change = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
    assert_eq!(
        patched(original, change),
        json!({"spec": {"strategy": {"type": "Recreate"}}})
    );
}

#[test]
fn what_cannot_be_followed_says_why() {
    let schema = builtin("apps", "v1", "Deployment").unwrap();
    let original = pod(&json!({"containers": [{"name": "a"}]}));
    for (change, why) in [
        (
            json!({"containers": [{"image": "x"}]}),
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (
            json!({"$patch": "melt"}),
            r#"unknown patch type "melt" in $patch: it is merge, replace or delete"#,
        ),
        (
            json!({"$setElementOrder/containers": 1}),
            "invalid patch format: $setElementOrder/containers is a list",
        ),
        (
            json!({"containers": [1]}),
            "list element types are not identical in containers: elements are objects with the field name",
        ),
    ] {
        let error = patch(schema, &mut original.clone(), pod(&change)).unwrap_err();
        assert_eq!(error.to_string(), why);
    }
}
