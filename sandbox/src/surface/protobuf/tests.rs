//! Bodies against what a real API server writes, and bodies that nobody ought to send.

use proptest::prelude::*;

use super::*;

#[test]
fn objects_read_as_a_real_api_server_writes_them() {
    let recorded: Value = serde_json::from_str(include_str!("../testdata/protobuf.json")).unwrap();
    for case in recorded["cases"].as_array().unwrap() {
        let binary = STANDARD.decode(case["binary"].as_str().unwrap()).unwrap();
        let (ours, theirs) = (decode(&binary).unwrap(), &case["object"]);
        assert_eq!(without_nothing(&ours), without_nothing(theirs), "{}", theirs["kind"]);
    }
}

/// Empty objects and lists are written in one form and not in the other.
fn without_nothing(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().map(|(name, v)| (name.clone(), without_nothing(v)));
            Value::Object(
                kept.filter(|(_, v)| *v != json!({}) && *v != json!([]) && !is_nothing(v) && !v.is_null())
                    .collect(),
            )
        }
        Value::Array(list) => list.iter().map(without_nothing).collect(),
        scalar => scalar.clone(),
    }
}

#[test]
fn zero_is_kept_where_it_differs_from_nothing() {
    let recorded: Value = serde_json::from_str(include_str!("../testdata/protobuf.json")).unwrap();
    let case = recorded["cases"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["object"]["kind"] == "Deployment")
        .unwrap();
    let object = decode(&STANDARD.decode(case["binary"].as_str().unwrap()).unwrap()).unwrap();
    assert_eq!(object["spec"]["replicas"], 0);
    assert_eq!(
        object.pointer("/spec/template/spec/securityContext/runAsUser"),
        Some(&json!(0))
    );
    assert!(object["spec"].get("paused").is_none());
}

#[test]
fn every_type_that_a_field_names_is_there() {
    fn named(kind: &Kind) -> Option<&'static str> {
        match kind {
            Kind::Of(name) | Kind::Among(name) => Some(name),
            Kind::List(of) | Kind::Map(of) => named(of),
            _ => None,
        }
    }
    for (name, fields) in &*TYPES {
        for field in fields.values() {
            assert!(
                named(&field.kind).is_none_or(|of| TYPES.contains_key(of) || of.ends_with("Source")),
                "{name} {}",
                field.name
            );
        }
    }
}

#[test]
fn what_is_not_the_form_is_told() {
    assert_eq!(decode(b"{}"), Err(ProtobufError::NotKubernetes));
    assert_eq!(decode(b"k8s\0\x0a\xff"), Err(ProtobufError::Broken));
    let unknown = decode(b"k8s\0\x0a\x0e\x0a\x09a.test/v1\x12\x01K").unwrap_err();
    assert_eq!(
        unknown.to_string(),
        format!("K of a.test/v1 is not known in {MEDIA_TYPE}; send JSON")
    );
}

proptest! {
    #[test]
    fn no_body_breaks_the_reader(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let head = b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12";
        let _ = decode(&[head, &[u8::try_from(body.len().min(127)).unwrap()][..], &body].concat());
    }
}
