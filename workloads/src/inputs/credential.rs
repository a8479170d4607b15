//! The Secret of an object storage: Sedna's contract, read without letting the credentials out.

use serde_json::Value;
use skerry_crds::names::{annotation, env, secret};

use super::hash;
use crate::render::env::EnvVar;

/// How workers reach an object storage: the address in clear, the credentials by reference only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credential {
    /// The Secret's name.
    pub(crate) secret: String,
    /// The storage's address, with its scheme.
    pub(crate) endpoint: String,
    /// Differs where the content does.
    pub(crate) digest: String,
}

impl Credential {
    /// Reads the Secret `object`; in vain if something is missing, which is then named.
    pub(crate) fn read(name: &str, object: &Value) -> Result<Self, Vec<&'static str>> {
        let annotations = object.pointer("/metadata/annotations");
        let annotated = |key| annotations.and_then(|annotations| annotations.get(key)?.as_str());
        let endpoint = annotated(annotation::S3_ENDPOINT).filter(|endpoint| !endpoint.is_empty());
        let mut missing = Vec::new();
        if endpoint.is_none() {
            missing.push("annotation s3-endpoint");
        }
        if datum(object, secret::ACCESS_KEY_ID).is_none() {
            missing.push("data key ACCESS_KEY_ID");
        }
        if datum(object, secret::SECRET_ACCESS_KEY).is_none() {
            missing.push("data key SECRET_ACCESS_KEY");
        }
        let Some(endpoint) = endpoint.filter(|_| missing.is_empty()) else {
            return Err(missing);
        };
        let scheme = if annotated(annotation::S3_USE_HTTPS) == Some("0") {
            "http"
        } else {
            "https"
        };
        let endpoint = format!("{scheme}://{endpoint}");
        let content = serde_json::json!([
            endpoint,
            datum(object, secret::ACCESS_KEY_ID),
            datum(object, secret::SECRET_ACCESS_KEY),
        ]);
        Ok(Self {
            secret: name.to_owned(),
            digest: hash::of(&content),
            endpoint,
        })
    }

    /// What a container is told of it.
    pub(crate) fn env(&self) -> [EnvVar; 3] {
        [
            EnvVar::secret(env::ACCESS_KEY_ID, &self.secret, secret::ACCESS_KEY_ID),
            EnvVar::value(env::S3_ENDPOINT_URL, &self.endpoint),
            EnvVar::secret(env::SECRET_ACCESS_KEY, &self.secret, secret::SECRET_ACCESS_KEY),
        ]
    }
}

/// A datum of the Secret; in a file that is not applied yet it may be in clear, under `stringData`.
fn datum<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    let in_clear = object.get("stringData").and_then(|data| data.get(key));
    let encoded = object.get("data").and_then(|data| data.get(key));
    in_clear.or(encoded)?.as_str().filter(|datum| !datum.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn secret(annotations: &Value) -> Value {
        json!({"metadata": {"annotations": annotations}, "data": {"ACCESS_KEY_ID": "aWQ=", "SECRET_ACCESS_KEY": "a2V5"}})
    }

    #[rstest]
    #[case(json!({"s3-endpoint": "s3.example"}), "https://s3.example")]
    #[case(json!({"s3-endpoint": "s3.example", "s3-usehttps": "1"}), "https://s3.example")]
    #[case(json!({"s3-endpoint": "minio:9000", "s3-usehttps": "0"}), "http://minio:9000")]
    fn the_address_is_in_the_annotations(#[case] annotations: Value, #[case] endpoint: &str) {
        let credential = Credential::read("s", &secret(&annotations)).unwrap();
        assert_eq!(credential.endpoint, endpoint);
    }

    #[rstest]
    #[case(json!({"metadata": {}}), &["annotation s3-endpoint", "data key ACCESS_KEY_ID", "data key SECRET_ACCESS_KEY"])]
    #[case(secret(&Value::Null), &["annotation s3-endpoint"])]
    #[case(secret(&json!({"s3-endpoint": ""})), &["annotation s3-endpoint"])]
    #[case(json!({"metadata": {"annotations": {"s3-endpoint": "e"}}, "data": {"ACCESS_KEY_ID": "aWQ="}}),
        &["data key SECRET_ACCESS_KEY"])]
    fn what_is_missing_is_named(#[case] secret: Value, #[case] missing: &[&str]) {
        assert_eq!(Credential::read("s", &secret).unwrap_err(), missing);
    }

    #[test]
    fn credentials_go_by_reference_and_their_change_is_seen() {
        let before = secret(&json!({"s3-endpoint": "e", "note": "a"}));
        let mut unrelated = before.clone();
        unrelated["metadata"]["annotations"]["note"] = json!("b");
        let mut rotated = before.clone();
        rotated["data"]["SECRET_ACCESS_KEY"] = json!("bmV3");
        let read = |secret| Credential::read("s", secret).unwrap();
        assert_eq!(read(&before), read(&unrelated));
        assert_ne!(read(&before).digest, read(&rotated).digest);
        let told = json!(read(&before).env().map(EnvVar::into_json)).to_string();
        assert!(!told.contains("a2V5") && !told.contains("aWQ="), "{told}");
    }
}
